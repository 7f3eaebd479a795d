#include <catch2/catch.hpp>

#include <limits>
#include <map>

#include "base/random.hpp"
#include "simulator/transfer_links.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::folding;

namespace {

struct Counted {
  std::map<std::int32_t, std::int32_t> uses;
  std::int64_t rate = 0;
};

// Some of the GPUs of a few nodes.
std::vector<std::int32_t> random_devices(Random& random, const Cluster& cluster) {
  std::vector<std::int32_t> devices;
  for (std::int32_t device = 0; device < cluster.gpu_count(); ++device)
    if (random.between(0, 2) > 0) devices.push_back(device);
  if (devices.empty()) devices.push_back(0);
  return devices;
}

Cluster random_cluster(Random& random) {
  const char* nodes[] = {"dgx-h100", "dgx-v100", "pcie-l40s", "dgx-a100"};
  Cluster cluster =
      testing::cluster_of(nodes[random.between(0, 3)], static_cast<std::int32_t>(random.between(1, 5)), 4,
                          static_cast<std::int32_t>(random.between(1, 3)));
  testing::randomize_fabric(random, cluster);
  if (cluster.nodes > 2 && collective_machine(cluster.node).nvswitch && random.between(0, 2) == 0)
    cluster.nodes_per_nvlink_domain = 2;
  return cluster;
}

}  // namespace

TEST_CASE("an all-to-all uses links as all its pairs do one by one", "[simulator]") {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const Router router(random_cluster(random));
    const std::vector<std::int32_t> devices = random_devices(random, router.cluster());
    LinkCounter counter(router);
    std::vector<PathLink> path;
    for (const std::int32_t from : devices)
      for (const std::int32_t to : devices) {
        if (from == to) continue;
        path.clear();
        router.append_binding(from, to, path);
        counter.add(path, 1);
      }
    const auto counted = [&] {
      std::vector<LinkUse> uses;
      Counted result;
      result.rate = counter.take(uses);
      for (const LinkUse& use : uses) result.uses[use.link] = use.count;
      return result;
    };
    const Counted pairs = counted();
    add_all_to_all(lay_out(devices, router.cluster().gpus_per_domain()), router, counter);
    const Counted group = counted();
    INFO("trial " << trial << ", " << devices.size() << " ranks");
    CHECK(group.uses == pairs.uses);
    CHECK(group.rate == pairs.rate);
  }
}

TEST_CASE("a ring never asks for more than its links have, and its rate is the most that they allow",
          "[simulator]") {
  Random random(4);
  for (int trial = 0; trial < 60; ++trial) {
    const Router router(random_cluster(random));
    const Layout group =
        lay_out(random_devices(random, router.cluster()), router.cluster().gpus_per_domain());
    if (group.devices.size() == 1) continue;
    LinkCounter counter(router);
    add_ring(group, router, counter);
    std::vector<LinkUse> uses;
    const std::int64_t rate = counter.take(uses);
    REQUIRE_FALSE(uses.empty());
    std::int64_t spare = std::numeric_limits<std::int64_t>::max();
    for (const LinkUse& use : uses)
      spare = std::min(spare, counter.capacity()[static_cast<std::size_t>(use.link)] - rate * use.count);
    CHECK(spare >= 0);
    bool full = false;
    for (const LinkUse& use : uses)
      full = full || counter.capacity()[static_cast<std::size_t>(use.link)] < (rate + 1) * use.count;
    CHECK(full);
  }
}

TEST_CASE("a group's layout counts nodes and the members that all of them have", "[simulator]") {
  const Layout group = lay_out({17, 3, 1, 9, 8, 2}, 8);
  CHECK(group.devices == std::vector<std::int32_t>{1, 2, 3, 8, 9, 17});
  CHECK(group.nodes == std::vector<Range>{{0, 3}, {3, 5}, {5, 6}});
  CHECK(group.channels == 1);
  CHECK(lay_out({0, 1, 8, 9, 10}, 8).channels == 2);
  CHECK(lay_out({0, 1, 2}, 8).channels == 1);
}
