// NCCL's graph of a node, its paths and what follows from them, on hosts small enough to count by hand.
#include "topology/nccl/nccl_system.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/nccl_hosts.hpp"
#include "topology/nccl/nccl_connect.hpp"
#include "topology/nccl/nccl_paths.hpp"

using namespace orrery;
using namespace orrery::nccl;
using namespace orrery::testing;

namespace {

const SystemPath& between(const System& system, std::int32_t a, std::int32_t b) {
  const auto& gpus = system.all(NodeKind::kGpu);
  return system.path(gpus[static_cast<std::size_t>(a)], gpus[static_cast<std::size_t>(b)]);
}
const SystemPath& to_port(const System& system, std::int32_t gpu, std::int32_t port) {
  return system.path(system.all(NodeKind::kGpu)[static_cast<std::size_t>(gpu)],
                     system.all(NodeKind::kNet)[static_cast<std::size_t>(port)]);
}

}  // namespace

TEST_CASE("rates are those that NCCL counts", "[topology]") {
  // Two GPUs and a port below one switch, generation 4: 120 · 16 / 80 = 24; an unreadable link counts 60 and
  // 16 lanes: 12; a port of 200 Gb/s 25.
  HostMaker maker("GenuineIntel", 0x8F);
  const std::int32_t bridge = maker.add_switch(0, 16);
  maker.add_gpu(0, bridge, 80, 16);
  maker.add_gpu(0, bridge, 80, 0, 0);
  maker.add_port(0, bridge, 16, 25e9);
  const System system = make_system(maker.host);
  CHECK(between(system, 0, 1).type == PathClass::kPix);
  CHECK(between(system, 0, 1).gb_per_s == 12);
  CHECK(to_port(system, 0, 0).type == PathClass::kPix);
  CHECK(to_port(system, 0, 0).gb_per_s == 24);
  // One node only: nothing leaves it; the widest between GPUs, and the widest link of any.
  CHECK(system.max_gb_per_s == 12);
  CHECK(system.total_gb_per_s == 24);
}

TEST_CASE("the slowest bridge throttles what is below it", "[topology]") {
  // A virtual bridge that says x1 at 2.5 GT/s: 15 · 1 / 80.
  HostMaker maker("AuthenticAMD", 1);
  const std::int32_t bridge = maker.add_switch(0, 2.5, 1);
  maker.add_gpu(0, bridge, 80, 16);
  maker.add_gpu(0, -1, 80, 16);
  const System system = make_system(maker.host);
  CHECK(between(system, 0, 1).type == PathClass::kPhb);
  CHECK(between(system, 0, 1).gb_per_s == Approx(0.1875));
}

TEST_CASE("P2P reaches as far as NCCL's level", "[topology]") {
  // Through the CPU: two GPUs of an AMD host may, three may not; Intel's never, unless told to.
  const auto system_of = [](const char* vendor, int gpus, const Variables& variables) {
    HostMaker maker(vendor, 0x8F);
    for (int g = 0; g < gpus; ++g) maker.add_gpu(0, -1, 80, 16);
    SystemOptions options;
    options.variables = variables;
    return make_system(maker.host, options);
  };
  const auto pair_of = [&](const char* vendor, int gpus, const Variables& variables = {}) {
    return transport(system_of(vendor, gpus, variables), 0, 1).transport;
  };
  CHECK(pair_of("AuthenticAMD", 2) == Transport::kP2p);
  CHECK(pair_of("AuthenticAMD", 3) == Transport::kShm);
  CHECK(pair_of("GenuineIntel", 2) == Transport::kShm);
  Variables variables;
  variables.p2p_level = PathClass::kSys;
  CHECK(pair_of("GenuineIntel", 2, variables) == Transport::kP2p);
  variables.p2p_level = PathClass::kLoc;
  variables.shm = false;
  // Neither P2P nor shared memory: the GPUs are nodes of their own.
  const System alone = system_of("GenuineIntel", 2, variables);
  CHECK(alone.gpu_count() == 1);
  CHECK(alone.inter);
}

TEST_CASE("reads are for Ampere's NVLinks, and one GPU may forward", "[topology]") {
  // 0 — 1 — 2 in a line: 0 reaches 2 through 1.
  HostMaker maker("GenuineIntel", 0x55);
  for (int g = 0; g < 3; ++g) maker.add_gpu(0, -1, 80, 16);
  maker.cable(0, 1, 2);
  maker.cable(1, 2, 2);
  const System system = make_system(maker.host);
  CHECK(transport(system, 0, 1).read);
  CHECK(between(system, 0, 1).gb_per_s == 40);
  CHECK(between(system, 0, 2).type == PathClass::kNvb);
  CHECK(transport(system, 0, 2).intermediate == 1);
  SystemOptions options;
  options.variables.nvb = false;
  CHECK(between(make_system(maker.host, options), 0, 2).type == PathClass::kPhb);
}

TEST_CASE("a port of another socket is reached through the GPU beside it", "[topology]") {
  HostMaker maker("GenuineIntel", 0x8F, 2);
  for (int s = 0; s < 2; ++s) {
    const std::int32_t bridge = maker.add_switch(s, 32);
    maker.add_gpu(s, bridge, 90, 32);
    if (s == 0) maker.add_port(s, bridge, 32, 50e9);
  }
  maker.to_switch(18);
  SystemOptions options;
  options.other_nodes = true;
  const System system = make_system(maker.host, options);
  // GPU — switch — GPU, then bridge, card and port: 2 + 3 links, at PCIe's 48.
  CHECK(to_port(system, 1, 0).type == PathClass::kPxn);
  CHECK(to_port(system, 1, 0).links.size() == 5);
  CHECK(to_port(system, 1, 0).gb_per_s == 48);
  CHECK(sending_gpu(system, 1, 0) == 0);
  CHECK(gpu_direct(system, 0, 0, true) == GpuDirect::kOn);
  options.variables.pxn = false;
  const System without = make_system(maker.host, options);
  CHECK(to_port(without, 1, 0).type == PathClass::kSys);
  CHECK(gpu_direct(without, 1, 0, true) == GpuDirect::kOff);
}

TEST_CASE("two levels of one Broadcom switch are one", "[topology]") {
  HostMaker maker("AuthenticAMD", 1);
  const std::int32_t upper = maker.add_switch(0, 16);
  const std::int32_t lower[] = {maker.add_switch(0, 16, 16, upper), maker.add_switch(0, 16, 16, upper)};
  for (const std::int32_t bridge : lower) maker.add_gpu(0, bridge, 80, 16);
  CHECK(between(make_system(maker.host), 0, 1).type == PathClass::kPxb);
  for (const std::int32_t bridge : {upper, lower[0], lower[1]}) {
    PciDevice& device = maker.host.pci[static_cast<std::size_t>(bridge)];
    device.vendor = 0x1000;
    device.device = 0xc010;
    device.subsystem_vendor = 0x1000;
    device.subsystem_device = 0xa000;
  }
  CHECK(between(make_system(maker.host), 0, 1).type == PathClass::kPix);
}

TEST_CASE("what NCCL can't know is asked for", "[topology]") {
  HostMaker maker("GenuineIntel", 0x8F);
  maker.add_gpu(0, -1, 0, 16);
  CHECK_THROWS_AS(make_system(maker.host), Error);
  SystemOptions options;
  options.compute_capability = 90;
  CHECK(make_system(maker.host, options).least_capability() == 90);
  options.gpus = {{7}};
  CHECK_THROWS_AS(make_system(maker.host, options), Error);
}

TEST_CASE("two H200 have the channels that NCCL 2.28 found", "[topology]") {
  // Six channels of 60 on 18 · 20.6 = 370.8, doubled to 12 of 30; the tree's chains run in both directions,
  // so that 12 fit at 60: as its own graph dump shows.
  HostMaker maker("GenuineIntel", 0x8F);
  for (int g = 0; g < 2; ++g) maker.add_gpu(0, -1, 90, 32);
  maker.to_switch(18);
  SystemOptions options;
  options.nccl_minor = 28;
  const System system = make_system(maker.host, options);
  const Graphs graphs = search_graphs(system);
  CHECK(graphs.ring.channels.size() == 12);
  CHECK(graphs.ring.node_gb_per_s == 30);
  CHECK(graphs.tree.channels.size() == 12);
  CHECK(graphs.tree.node_gb_per_s == 60);
  std::size_t forward = 0;
  for (const GraphChannel& channel : graphs.tree.channels) forward += channel.gpus.front() == 0 ? 1 : 0;
  CHECK(forward == 6);
  // 2 · 370.8 / 20.6 = 36 per peer, to the power above, at most all.
  const P2pChannels p2p = p2p_channels(system, 24, 2, false);
  CHECK(p2p.all == 32);
  CHECK(p2p.per_peer == 32);
}

TEST_CASE("one GPU alone has as many channels as there can be", "[topology]") {
  HostMaker maker("GenuineIntel", 0x8F);
  maker.add_gpu(0, -1, 120, 32);
  const Graphs graphs = search_graphs(make_system(maker.host));
  Channels channels = connect_nodes({{graphs, {{0, 0}}}});
  CHECK(channels.rings.size() == 64);  // Seen in a log of 2.29.
  CHECK(graphs.tree.pattern == Pattern::kTree);
}

TEST_CASE("without a path the search says so by speed 0.1", "[topology]") {
  HostMaker maker("GenuineIntel", 0x8F, 2);
  maker.add_gpu(0, maker.add_switch(0, 2.5, 1), 80, 16);
  maker.add_gpu(1, maker.add_switch(1, 2.5, 1), 80, 16);
  const Graphs graphs = search_graphs(make_system(maker.host));
  CHECK(graphs.ring.node_gb_per_s == Approx(0.1));
  CHECK(graphs.ring.node_path == PathClass::kSys);
  CHECK(graphs.ring.channels.size() == 1);
}
