#include "topology/import/host_checks.hpp"

#include <catch2/catch.hpp>

#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

// GPUs and a port of 200 Gb/s under one bridge, all of generation 4; each GPU with 12 links to the switch.
Host machine(std::int32_t gpus) {
  Host host;
  host.cpus.resize(1);
  host.cpus[0].numa = 0;
  const auto add = [&](const char* bus_id, std::uint32_t device_class, std::int32_t parent) {
    PciDevice device;
    device.bus_id = bus_id;
    device.device_class = device_class;
    device.parent = parent;
    device.gigatransfers_per_s = 16;
    device.lanes = 16;
    host.pci.push_back(device);
    return static_cast<std::int32_t>(host.pci.size()) - 1;
  };
  add("0000:01:00.0", 0x060400, -1);
  for (std::int32_t i = 0; i < gpus; ++i) {
    HostGpu gpu;
    gpu.pci = add(i == 0 ? "0000:02:00.0" : i == 1 ? "0000:03:00.0" : "0000:04:00.0", 0x030200, 0);
    gpu.index = i;
    gpu.nvlinks = {{"0000:f0:00.0", 12, 0x068000}};
    host.gpus.push_back(gpu);
  }
  HostNic nic;
  nic.pci = add("0000:05:00.0", 0x020700, 0);
  nic.name = "mlx5_0";
  nic.bytes_per_s = 25e9;
  host.nics.push_back(nic);
  return host;
}

}  // namespace

TEST_CASE("a sound machine has no notes", "[topology]") { CHECK(check_host(machine(3)).empty()); }

TEST_CASE("a virtual machine's bridge throttles all below it", "[topology]") {
  Host host = machine(1);
  host.pci[0].gigatransfers_per_s = 2.5;
  host.pci[0].lanes = 1;
  const std::vector<std::int32_t> lines{7, 8, 9};
  const std::vector<ImportNote> notes = check_host(host, lines);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].kind == Kind::kSuspect);
  CHECK(notes[0].line == 7);
  // 15 · 1 / 80 = 0.1875 GB/s.
  CHECK(notes[0].text ==
        "0000:01:00.0 above GPU 0, mlx5_0: this bridge reports 2.5 GT/s x1, from which NCCL makes a link of "
        "0.2 GB/s for all below it");
  CHECK_THAT(notes[0].remedy, Catch::Contains("NCCL_TOPO_FILE"));

  host.pci[0].gigatransfers_per_s = 16;  // A generation or half the lanes less is a design: 12 of 24 GB/s.
  host.pci[0].lanes = 8;
  CHECK(check_host(host).empty());
}

TEST_CASE("a bridge that C2C goes past doesn't matter", "[topology]") {
  Host host = machine(2);
  host.pci[0].lanes = 1;
  host.nics.clear();
  CHECK(check_host(host).size() == 1);
  for (HostGpu& gpu : host.gpus) gpu.c2c_bytes_per_s = 220e9;
  CHECK(check_host(host).empty());
}

TEST_CASE("a slow link above a fast port is implausible", "[topology]") {
  Host host = machine(1);
  host.pci.back().gigatransfers_per_s = 2.5;  // The port's own: 15 · 16 / 80 = 3 GB/s for 25.
  const std::vector<ImportNote> notes = check_host(host);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0].text,
             Catch::StartsWith("0000:05:00.0 (mlx5_0): reports 2.5 GT/s x16, 3.0 GB/s to NCCL, "
                               "for a port of 200 Gb/s"));
  host = machine(1);
  host.nics[0].bytes_per_s = 75e9;
  CHECK(find_note(check_host(host), Kind::kSuspect, "600 Gb/s is no port's rate") != nullptr);
}

TEST_CASE("the GPU that lost its NVLinks is named", "[topology]") {
  Host host = machine(3);
  host.gpus[1].nvlinks[0].count = 0;
  const std::vector<ImportNote> lost = check_host(host);
  REQUIRE(lost.size() == 1);
  CHECK_THAT(lost[0].text, Catch::StartsWith("GPU 1 (0000:03:00.0): has no NVLink up where others have 12"));
  CHECK_THAT(lost[0].remedy, Catch::Contains("nvlink --status -i 1"));
  host.gpus[1].nvlinks[0].count = 10;
  CHECK(find_note(check_host(host), Kind::kSuspect,
                  "GPU 1 (0000:03:00.0): has 10 NVLinks where others have 12") != nullptr);
}

TEST_CASE("NVLinks lead to another GPU, and back", "[topology]") {
  Host host = machine(2);
  host.gpus[0].nvlinks = {{"0000:02:00.0", 4, 0x030200}};
  host.gpus[1].nvlinks = {{"0000:02:00.0", 4, 0x030200}};
  const std::vector<ImportNote> notes = check_host(host);
  CHECK(find_note(notes, Kind::kSuspect, "GPU 0 (0000:02:00.0): its NVLinks lead to itself") != nullptr);
  CHECK(find_note(notes, Kind::kSuspect, "has 4 NVLinks to GPU 0, which has 0 back") != nullptr);
  host.gpus[0].nvlinks = {{"0000:09:00.0", 4, 0x030200}};
  CHECK(find_note(check_host(host), Kind::kMissing, "GPUs that are not listed") != nullptr);
}

TEST_CASE("one address is one function", "[topology]") {
  Host host = machine(2);
  host.pci.back().bus_id = "0000:03:00.0";
  const std::vector<std::int32_t> lines{2, 3, 4, 5};
  const std::vector<ImportNote> notes = check_host(host, lines);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(
      notes[0].text,
      Catch::StartsWith("0000:03:00.0: stands there as GPU and as something else at once (line 4, line 5)"));
}

TEST_CASE("NUMA nodes are known and have their own processors", "[topology]") {
  Host host = machine(1);
  host.cpus.resize(3);
  host.cpus[0].affinity = "0000ffff,0000ffff";
  host.cpus[1].affinity = "1,00010000";  // Bits 16 and 32: bit 32 is the other's, too.
  host.cpus[1].numa = 0;
  host.cpus[2].affinity = "ffff0000";
  const std::vector<ImportNote> notes = check_host(host);
  CHECK(find_note(notes, Kind::kSuspect, "cpus 0 and 0: two elements for one NUMA node") != nullptr);
  // Elements 1 and 2 by bit 16; 0 and 2 share none, 0000ffff against ffff0000.
  CHECK(find_note(notes, Kind::kSuspect, "cpus 0 and -1: their affinity masks share") != nullptr);
  CHECK(find_note(notes, Kind::kMissing, "cpu element 2: its NUMA node is not known") != nullptr);
}

TEST_CASE("two devices have two numbers", "[topology]") {
  Host host = machine(2);
  host.gpus[1].index = 0;
  CHECK(find_note(check_host(host), Kind::kSuspect, "another GPU has the same dev") != nullptr);
}
