// The interval of a step time, on programs whose answer can be written down.

#include "simulator/uncertainty.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/simulator/machines.hpp"

using namespace orrery;

namespace {

constexpr double kQuantile = 1.6448536269514722;

// A GPU that multiplies 1 TFLOP in a second and streams 1 GB in one.
Cluster slow_pair() {
  Cluster cluster = testing::two_ranks(1e9, SimTime{});
  cluster.node.gpu.peak_flops_per_s.fill(1e12);
  cluster.node.gpu.memory_bytes_per_s = 1e9;
  return cluster;
}

Kernel kernel(KernelKind kind, double flops, std::int64_t bytes) {
  Kernel made;
  made.kind = kind;
  made.flops = flops;
  made.read_bytes = bytes;
  return made;
}

// One rank that runs `kernels` one after another.
Program one_rank(const std::vector<Kernel>& kernels) {
  Program program;
  program.name = "one";
  testing::RoleWriter role(program, "only", {{"compute", 0}});
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    program.kernels.push_back(kernels[i]);
    program.kernels.back().label = program.intern("k" + std::to_string(i));
    role.add("f" + std::to_string(i), 0, Compute{KernelId(static_cast<std::int64_t>(i))}, -1, -1, {});
  }
  program.roles.push_back(role.take());
  program.role_of = {RoleId(0)};
  program.device_of = {0};
  return program;
}

struct Case {
  Timeline timeline;
  StepInterval interval;
};

Case interval_of(const Program& program, const Cluster& cluster, const Profile& profile,
                 std::int64_t max_instructions) {
  const Job job = make_job(program, cluster, profile, {});
  Case made;
  made.timeline = run_fast(job);
  UncertaintyOptions options;
  options.max_instructions = max_instructions;
  made.interval = step_interval(job, cluster, profile, made.timeline, options);
  return made;
}

}  // namespace

TEST_CASE("the expected maximum of normals is near the tables", "[simulator]") {
  CHECK(expected_maximum(1) == 0);
  // Exact: 1/√π; 1.42360, 1.76599, 2.50759 (Harter 1961).
  CHECK(expected_maximum(2) == Approx(0.56419).margin(1e-4));
  CHECK(expected_maximum(8) == Approx(1.42360).margin(1e-4));
  CHECK(expected_maximum(16) == Approx(1.76599).margin(1e-4));
  CHECK(expected_maximum(100) == Approx(2.50759).margin(1e-4));
}

TEST_CASE("a machine without errors has an interval of no width", "[simulator]") {
  const Program program = one_rank({kernel(KernelKind::kMatmul, 1e9, 0)});
  const Case made = interval_of(program, slow_pair(), Profile(), 1000);
  CHECK(made.interval.low_s == Approx(made.timeline.step_time.seconds()));
  CHECK(made.interval.high_s == Approx(made.timeline.step_time.seconds()));
}

TEST_CASE("one family's error passes through whole, run again or by share", "[simulator]") {
  const Program program = one_rank({kernel(KernelKind::kMatmul, 1e9, 0)});
  Profile profile;
  profile.errors.matmul.family_sigma = 0.1;
  profile.errors.memory.family_sigma = 0.5;  // Nothing is bound by memory.
  for (const std::int64_t budget : {1000, 0}) {
    const Case made = interval_of(program, slow_pair(), profile, budget);
    CAPTURE(budget);
    CHECK(made.interval.run_again == (budget > 0));
    const double step = made.timeline.step_time.seconds();
    CHECK(made.interval.low_s == Approx(step * std::exp(-kQuantile * 0.1)).epsilon(1e-6));
    CHECK(made.interval.high_s == Approx(step * std::exp(kQuantile * 0.1)).epsilon(1e-6));
  }
}

TEST_CASE("families are independent, single costs average out", "[simulator]") {
  // 1 ms of matmul in two equal parts, 1 ms of memory.
  const Program program =
      one_rank({kernel(KernelKind::kMatmul, 0.5e9, 0), kernel(KernelKind::kMatmul, 0.5e9, 1),
                kernel(KernelKind::kElementwise, 0, 1'000'000)});
  Profile profile;
  profile.errors.matmul = {0.1, 0.2};
  profile.errors.memory.family_sigma = 0.1;
  const Case made = interval_of(program, slow_pair(), profile, 0);
  // Halves of the step: (0.05)² twice, and 0.2 on each of two quarters: 0.25² · 0.2² · 2.
  const double sigma = std::sqrt(2 * 0.05 * 0.05 + 2 * 0.25 * 0.25 * 0.2 * 0.2);
  const double step = made.timeline.step_time.seconds();
  CHECK(step == Approx(2e-3));
  CHECK(made.interval.high_s == Approx(step * std::exp(kQuantile * sigma)).epsilon(1e-6));
}

TEST_CASE("what hides behind other work doesn't widen the interval when run again", "[simulator]") {
  // Rank 0 computes 2 ms while its all-reduce of some 1 ms runs on another stream.
  Program program;
  program.name = "hidden";
  program.kernels.push_back(kernel(KernelKind::kMatmul, 2e9, 0));
  program.kernels.back().label = program.intern("k");
  testing::RoleWriter role(program, "both", {{"compute", 0}, {"communication", 0}});
  role.add("f", 0, Compute{KernelId(0)}, -1, -1, {});
  role.add("r", 1, Collective{CollectiveKind::kAllReduce, AxisId(0), 1'000'000, DType::kBf16}, -1, -1, {});
  program.roles.push_back(role.take());
  program.axes.push_back({"dp", {{RankId(0), RankId(1)}}});
  program.role_of = {RoleId(0), RoleId(0)};
  program.device_of = {0, 1};
  REQUIRE(verify(program).empty());
  Profile profile;
  profile.collectives.node_bandwidth.family_sigma = 0.3;
  const Case made = interval_of(program, slow_pair(), profile, 1000);
  REQUIRE(made.timeline.step_time.seconds() == Approx(2e-3));
  CHECK(made.interval.sensitivity[static_cast<std::size_t>(CostFamily::kNodeBandwidth)] ==
        Approx(0).margin(1e-9));
}

TEST_CASE("launch noise adds the wait for the slowest", "[simulator]") {
  // Two ranks, a matmul of 1 ms, then a tensor-parallel all-reduce.
  Program program;
  program.name = "noisy";
  program.kernels.push_back(kernel(KernelKind::kMatmul, 1e9, 0));
  program.kernels.back().label = program.intern("k");
  testing::RoleWriter role(program, "both", {{"compute", 0}});
  role.add("f", 0, Compute{KernelId(0)}, -1, -1, {});
  role.add("r", 0, Collective{CollectiveKind::kAllReduce, AxisId(0), 2, DType::kBf16}, -1, -1, {0});
  program.roles.push_back(role.take());
  program.roles[0].instructions[1].purpose = Purpose::kTensorParallel;
  program.axes.push_back({"tp", {{RankId(0), RankId(1)}}});
  program.role_of = {RoleId(0), RoleId(0)};
  program.device_of = {0, 1};
  Profile profile;
  profile.errors.launch_sigma = 0.02;
  const Case made = interval_of(program, slow_pair(), profile, 0);
  // Once at the collective and once at the end of the step, both over the same matmul.
  CHECK(made.interval.noise_wait_s == Approx(2 * expected_maximum(2) * 0.02 * 1e-3).epsilon(1e-6));
}
