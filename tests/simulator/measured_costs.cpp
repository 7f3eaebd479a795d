// Costs that a calibration measured, in place of the models.

#include <catch2/catch.hpp>

#include "simulator/collective_cost.hpp"
#include "simulator/cost.hpp"
#include "simulator/engine.hpp"
#include "topology/host_cores.hpp"

using namespace orrery;
using namespace orrery::time_literals;

namespace {

Kernel product() {
  Kernel kernel;
  kernel.kind = KernelKind::kMatmul;
  kernel.dtype = DType::kFp32;
  kernel.m = kernel.n = kernel.k = 100;
  kernel.flops = 2e6;
  kernel.read_bytes = 80'000;
  kernel.written_bytes = 40'000;
  return kernel;
}

MeasuredKernel measured(const char* label, double seconds) {
  MeasuredKernel kernel;
  kernel.label = label;
  kernel.kind = "matmul";
  kernel.m = kernel.n = kernel.k = 100;
  kernel.flops = 2e6;
  kernel.read_bytes = 80'000;
  kernel.written_bytes = 40'000;
  kernel.seconds = seconds;
  return kernel;
}

Cluster host(std::int32_t cores) {
  HostShape shape;
  shape.cores = cores;
  Cluster cluster;
  cluster.node = make_host_node(shape);
  return cluster;
}

CollectiveFit all_reduce(std::int32_t ranks, double base_s, double seconds_per_byte) {
  return {"all-reduce", ranks, base_s, seconds_per_byte, 0, 1, ""};
}

double seconds_of(std::int32_t ranks, std::int64_t bytes, const Profile& profile) {
  GroupShape shape;
  shape.ranks = ranks;
  return collective_cost(CollectiveKind::kAllReduce, bytes, shape, collective_machine(host(2).node), 5e9,
                         profile)
      .seconds();
}

// The only transfer of `text` on two ranks, alone.
SimTime transfer_time(const char* text, const Profile& profile) {
  const Program program = parse_program(text);
  const Job job = make_job(program, host(4), profile, {});
  REQUIRE(job.transfers.size() == 1);
  return uncontended_time(job.transfers[0]);
}

}  // namespace

TEST_CASE("a kernel costs what was measured of it, else of its shape, else by the fit of its kind",
          "[costs]") {
  const GpuType core = host(1).node.gpu;
  Profile profile = default_profile(core);
  profile.instruction_s = 1e-6;
  CHECK(kernel_cost(product(), "qkv", core, profile).origin == CostOrigin::kModel);
  // 1 us + 2e6 flops at 50 GFLOP/s + 120 kB at 10 GB/s = 1 + 40 + 12 us, and 1 us for the instruction.
  profile.kernel_fits = {{"matmul", "", 1e-6, 50e9, 10e9, 0.1, 1, ""}};
  CHECK(kernel_cost(product(), "qkv", core, profile).origin == CostOrigin::kFit);
  CHECK(kernel_time(product(), "qkv", core, profile) == 54_us);
  profile.kernels = {measured("head", 60e-6)};
  CHECK(kernel_cost(product(), "qkv", core, profile).origin == CostOrigin::kMeasuredShape);
  CHECK(kernel_time(product(), "qkv", core, profile) == 61_us);
  // 2 us whatever its size: a fit of its own label is a better guide than another kernel of its shape.
  profile.kernel_fits.push_back({"matmul", "qkv", 2e-6, 0, 0, 0.1, 1, ""});
  CHECK(kernel_time(product(), "qkv", core, profile) == 3_us);
  profile.kernels.push_back(measured("qkv", 70e-6));
  CHECK(kernel_cost(product(), "qkv", core, profile).origin == CostOrigin::kMeasured);
  CHECK(kernel_time(product(), "qkv", core, profile) == 71_us);
  // Another shape isn't measured, and another kind has no fit.
  Kernel other = product();
  other.m = 101;
  CHECK(kernel_cost(other, "qkv", core, profile).origin == CostOrigin::kFit);
  other.kind = KernelKind::kOptimizer;
  CHECK(kernel_cost(other, "qkv", core, profile).origin == CostOrigin::kModel);
}

TEST_CASE("a Program's own times stay as they are", "[costs]") {
  Kernel fixed;
  fixed.kind = KernelKind::kFixed;
  fixed.fixed = 10_us;
  const GpuType core = host(1).node.gpu;
  CHECK(kernel_time(fixed, "", core, default_profile(core)) == 10_us);
}

TEST_CASE("collectives between measured group sizes are interpolated, beyond them the nearest", "[costs]") {
  Profile profile;
  profile.collective_fits = {all_reduce(2, 10e-6, 1e-9), all_reduce(4, 30e-6, 3e-9)};
  CHECK(seconds_of(2, 1000, profile) == Approx(11e-6));
  CHECK(seconds_of(3, 1000, profile) == Approx(22e-6));  // Base 20 us, 2 ns a byte.
  CHECK(seconds_of(4, 1000, profile) == Approx(33e-6));
  CHECK(seconds_of(8, 1000, profile) == Approx(33e-6));
}

TEST_CASE("a fit replaces what links say, quicker or slower", "[costs]") {
  // Links carry 5 GB/s: 1 MB would take 200 us; measured are 50 us, or 1000.
  Profile profile;
  for (const double each : {0.05e-9, 1e-9}) {
    profile.message_fit = {4e-6, each, 0, 1, ""};
    profile.collective_fits = {all_reduce(2, 4e-6, each), {"all-to-all", 2, 4e-6, each, 0, 1, ""}};
    const SimTime expected = from_seconds(4e-6 + 1e6 * each);
    for (const char* text :
         {"role a (ranks 0): s = send 1MB to next\nrole b (ranks 1): r = recv 1MB from previous\n",
          "role all (ranks 0-1): a = all-reduce 1MB\n", "role all (ranks 0-1): a = all-to-all 1MB\n"}) {
      INFO(text << " " << each);
      const SimTime found = transfer_time(text, profile);
      CHECK(std::abs((found - expected).picoseconds) <= 1000);
    }
  }
}
