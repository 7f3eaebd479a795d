#include "simulator/collective_time.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

std::vector<std::int32_t> first(std::int32_t count) {
  std::vector<std::int32_t> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

TransferCost alone(CollectiveKind kind, std::int64_t bytes, const char* node, std::int32_t nodes,
                   std::int32_t ranks) {
  const Router router(cluster_of(node, nodes));
  return collective_alone(kind, bytes, first(ranks), router, default_profile(router.cluster().node.gpu));
}

}  // namespace

TEST_CASE("one collective alone, by hand", "[simulator]") {
  using enum CollectiveKind;
  // Two nodes of eight H100, NVLSTree: 246.2 GB/s of payload, which puts 8 GB / 8 NICs through each at 30.8.
  const TransferCost two = alone(kAllReduce, 8'000'000'000, "dgx-h100", 2, 16);
  CHECK(two.bytes == 1'000'000'000);
  CHECK(two.latency_s == Approx((66.8 + 2) * 1e-6));
  CHECK(two.bytes_per_s == Approx(246.187e9 / 8).epsilon(1e-3));
  // An all-gather over the same nodes fills the NICs: 8 · 48 · 16/15 GB/s, ends 0.325 of 15 steps.
  CHECK(
      alone(kAllGather, 8'000'000'000, "dgx-h100", 2, 16).seconds() ==
      Approx(8e9 / (8 * 48e9 * 16 / 15) * (1 + 0.325 / 15) + (2 + 8.4 + 14 * 3.4 + 14) * 1e-6).epsilon(1e-6));
  // All-to-all on one node: 7/8 of the bytes leave each GPU.
  CHECK(alone(kAllToAll, 8'000'000'000, "dgx-h100", 1, 8).seconds() ==
        Approx(7e9 * 1.075 / 370.8e9 + 9e-6).epsilon(1e-6));
  // Two L40S under one switch: two channels of 12 GB/s fill PCIe, which one of 20 wouldn't.
  CHECK(alone(kAllReduce, 4'000'000'000, "pcie-l40s", 1, 2).seconds() ==
        Approx(4e9 / 24e9 * (1 + 0.08 / 2)).epsilon(1e-3));
  CHECK(alone(kAllReduce, 1, "dgx-h100", 1, 1).seconds() == 0);
}

TEST_CASE("a bigger payload never takes less time, but for a change of algorithm", "[simulator]") {
  using enum CollectiveKind;
  struct Case {
    const char* node;
    std::int32_t nodes, ranks;
  };
  for (const Case& it : {Case{"dgx-h100", 1, 8}, Case{"dgx-h100", 4, 32}, Case{"dgx-a100", 2, 16},
                         Case{"pcie-a100", 1, 8}, Case{"dgx-b200", 8, 64}, Case{"dgx-v100", 1, 4}})
    for (const CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast}) {
      INFO(it.node << " x " << it.nodes);
      double before = 0;
      for (std::int64_t bytes = 1; bytes <= 1LL << 34; bytes *= 4) {
        const double now = alone(kind, bytes, it.node, it.nodes, it.ranks).seconds();
        CHECK(now > 0);
        // Corrections that only some algorithms have can make the dearer one the quicker one.
        CHECK(now >= 0.9 * before);
        before = now;
      }
    }
}
