#include "topology/import/merge_hosts.hpp"

#include <catch2/catch.hpp>

#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

// Two GPUs with 18 NVLinks and two ports of 400 Gb/s; addresses and guids are the host's own.
HostImport machine(const std::string& name, const std::string& domain) {
  Host host;
  host.name = name;
  host.source = name + ".xml";
  host.cpus.resize(1);
  host.cpus[0].numa = 0;
  for (std::int32_t i = 0; i < 4; ++i) {
    PciDevice device;
    device.bus_id = domain + ":0" + std::to_string(i) + ":00.0";
    device.gigatransfers_per_s = 32;
    device.lanes = 16;
    host.pci.push_back(device);
  }
  for (std::int32_t i = 0; i < 2; ++i) {
    HostGpu gpu;
    gpu.pci = i;
    gpu.index = i;
    gpu.rank = 2 * static_cast<std::int32_t>(domain.back() - '0') + i;
    gpu.compute_capability = 90;
    gpu.nvlinks = {{domain + ":0" + std::to_string(1 - i) + ":00.0", 18, 0x030200}};
    host.gpus.push_back(gpu);
    HostNic nic;
    nic.pci = 2 + i;
    nic.index = i;
    nic.name = "mlx5_" + std::to_string(i);
    nic.bytes_per_s = 50e9;
    nic.guid = "0x" + domain + std::to_string(i);
    host.nics.push_back(nic);
  }
  return {{host}, {}};
}

}  // namespace

TEST_CASE("machines of one shape are one group", "[topology]") {
  const MergedHosts merged = merge_hosts({machine("a", "0001"), machine("b", "0002"), machine("c", "0003")});
  CHECK(merged.hosts.size() == 3);
  CHECK(merged.groups == std::vector<std::vector<std::int32_t>>{{0, 1, 2}});
  CHECK(merged.notes.empty());
}

TEST_CASE("the odd host is named with what it lacks", "[topology]") {
  HostImport odd = machine("odd", "0001");
  odd.hosts[0].nics.pop_back();
  odd.hosts[0].gpus[1].nvlinks[0].count = 0;
  odd.hosts[0].pci[0].lanes = 8;
  const MergedHosts merged = merge_hosts({odd, machine("b", "0002"), machine("c", "0003")});
  CHECK(merged.groups == std::vector<std::vector<std::int32_t>>{{1, 2}, {0}});
  REQUIRE(merged.notes.size() == 1);
  CHECK(
      merged.notes[0].text ==
      "odd differs from b (2 alike): GPU 0 at 32 GT/s x8 instead of 32 GT/s x16; GPU 1 has 0 NVLinks instead "
      "of 18; mlx5_1 port 1 is missing");
  CHECK_THAT(merged.notes[0].remedy, Catch::Contains("hangs"));
}

TEST_CASE("each kind of difference has its words", "[topology]") {
  const auto said = [](auto change) {
    HostImport odd = machine("odd", "0001");
    change(odd.hosts[0]);
    return merge_hosts({machine("a", "0002"), odd, machine("b", "0003")}).notes.at(0).text;
  };
  using Catch::Contains;
  CHECK_THAT(said([](Host& host) { host.nics[1].bytes_per_s = 25e9; }),
             Contains("mlx5_1 port 1 runs at 200 Gb/s instead of 400"));
  CHECK_THAT(said([](Host& host) { host.nics[1].gpu_direct_rdma = false; }), Contains("without GPUDirect"));
  CHECK_THAT(said([](Host& host) { host.gpus.pop_back(); }), Contains("GPU 1 is missing"));
  CHECK_THAT(said([](Host& host) { host.gpus[0].compute_capability = 80; }), Contains("another model"));
  CHECK_THAT(said([](Host& host) { host.cpus[0].vendor = "GenuineIntel"; }),
             Contains("processor GenuineIntel"));
  CHECK_THAT(said([](Host& host) { host.cpus.resize(2); }), Contains("2 NUMA nodes instead of 1"));
  CHECK_THAT(said([](Host& host) { host.nics[1].name = "mlx5_9"; }), Contains("mlx5_9 port 1 more"));
  CHECK_THAT(said([](Host& host) { std::swap(host.nics[0].index, host.nics[1].index); }),
             Contains("mlx5_0 port 1 is number 1 instead of 0"));
  CHECK_THAT(said([](Host& host) { host.pci[3].parent = 2; }), Contains("PCIe tree has another shape"));
}

TEST_CASE("one machine's file twice counts once", "[topology]") {
  HostImport again = machine("a", "0001");
  again.hosts[0].source = "copy.xml";
  again.notes.push_back({Kind::kAssumed, 3, "width", ""});
  const MergedHosts merged = merge_hosts({machine("a", "0001"), again});
  CHECK(merged.hosts.size() == 1);
  CHECK(find_note(merged.notes, Kind::kSuspect, "copy.xml describes the same machine as a.xml") != nullptr);
  CHECK(find_note(merged.notes, Kind::kAssumed, "copy.xml: width") != nullptr);
  // Files without names and guids may well be of two machines.
  const auto bare = [](const char* source) {
    HostImport import = machine("", "0001");
    import.hosts[0].source = source;
    for (HostNic& nic : import.hosts[0].nics) nic.guid = "0x0";
    return import;
  };
  CHECK(merge_hosts({bare("one.xml"), bare("two.xml")}).hosts.size() == 2);
  CHECK(merge_hosts({bare("one.xml"), bare("one.xml")}).hosts.size() == 1);
  const MergedHosts two = merge_hosts({machine("a", "0001"), machine("a", "0002")});
  CHECK(two.hosts.size() == 2);
  CHECK(find_note(two.notes, Kind::kSuspect, "are both of host a and not equal") != nullptr);
}
