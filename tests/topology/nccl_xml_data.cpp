// Every published topology file reads as what its machine is, and writes back equal.

#include <catch2/catch.hpp>

#include <iostream>
#include <map>

#include "base/error.hpp"
#include "tests/topology/topo_files.hpp"
#include "topology/import/nccl_topology_xml.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

struct Expected {
  std::size_t cpus = 0, pci = 0, gpus = 0, nics = 0;
  Kind kind = Kind::kMissing;
  std::string note;  // Words of the note that matters most; empty: there must be none.
};

const std::map<std::string, Expected>& expectations() {
  static const std::map<std::string, Expected> table{
      {"aws-g5-48xl", {2, 9, 0, 0, Kind::kMissing, "GPU or a network card"}},
      {"aws-p4d", {2, 16, 8, 4, Kind::kMissing, "neither capability nor NVLinks"}},
      {"aws-p4de", {2, 16, 8, 4, Kind::kMissing, "neither capability nor NVLinks"}},
      {"azure-nc48v4", {2, 2, 2, 1, Kind::kAssumed, "NCCL counts 16 lanes"}},
      {"azure-ncv4", {4, 4, 4, 1, Kind::kSuspect, "NVLinks lead to itself"}},
      {"azure-ndv4", {4, 20, 8, 8, Kind::kRepaired, "familyid is AMD's own number"}},
      {"gb300-1tray", {2, 13, 4, 1, Kind::kMissing, ""}},
      {"gb300-1tray-gpu1-no-links", {2, 13, 4, 1, Kind::kSuspect, "GPU 1 (0009:06:00.0): has no NVLink up"}},
      {"ibm-h100-vm", {2, 24, 8, 8, Kind::kSuspect, "2.5 GT/s x1, from which NCCL makes a link of 0.2 GB/s"}},
      {"mlperf-dell-xe8545",
       {6, 6, 4, 1, Kind::kSuspect, "stands there as GPU and as something else at once"}},
      {"mlperf-dgxa100", {4, 28, 8, 8, Kind::kMissing, "neither capability nor NVLinks"}},
      {"mlperf-dgxa100-rnnt", {4, 28, 8, 8, Kind::kMissing, "neither capability nor NVLinks"}},
      {"mlperf-hpe-675d", {4, 24, 8, 4, Kind::kMissing, ""}},
      {"nemo-aws-p5", {2, 40, 0, 0, Kind::kMissing, "GPU or a network card"}},
      {"nemo-azure", {1, 20, 8, 8, Kind::kMissing, "neither capability nor NVLinks"}},
      {"oci-flattened", {4, 20, 8, 8, Kind::kMissing, "neither capability nor NVLinks"}},
      {"oci-h100", {2, 40, 8, 16, Kind::kSuspect, "reports 5 GT/s x16"}},
      {"proteus-1080-8gpu", {2, 13, 8, 1, Kind::kMissing, "NUMA node is not known"}},
      {"proteus-dgx1-2ib-8gpu", {2, 14, 8, 2, Kind::kSuspect, "600 Gb/s is no port's rate"}},
      {"proteus-titanxp-4gpu", {2, 7, 4, 1, Kind::kAssumed, "NCCL counts 8 GT/s"}},
      {"rccl-8p-rome-vm", {4, 8, 8, 1, Kind::kAssumed, "RCCL's file"}},
      {"rccl-8pcie-2nic", {1, 20, 8, 2, Kind::kAssumed, "RCCL's file"}},
      {"rccl-mi300x-8", {2, 40, 8, 8, Kind::kAssumed, "RCCL's file"}},
      {"superbench-ndv4", {4, 20, 8, 8, Kind::kSuspect, "affinity masks share processors"}},
      {"superbench-ndv5", {2, 24, 8, 8, Kind::kMissing, "neither capability nor NVLinks"}},
  };
  return table;
}

bool skip_without_data() {
  if (std::filesystem::exists(topo_test::published_folder() / "xml")) return false;
  std::cout << "skipped: no published topologies (set ORRERY_DATA to the data folder)\n";
  return true;
}

std::string published(const std::string& name) {
  return topo_test::read_file(topo_test::published_folder() / "xml" / (name + ".xml"));
}

// GPU models and the name of the file don't stand in what is written.
void drop_unwritten(std::vector<Host>& hosts) {
  for (Host& host : hosts)
    for (HostGpu& gpu : host.gpus) gpu.model.clear();
}

void check_file(const std::string& name, const Expected& expected) {
  INFO(name);
  NcclTopologyOptions options;
  options.map_rccl = true;
  HostImport import = read_nccl_topology(published(name), name, options);
  REQUIRE(import.hosts.size() == 1);
  const Host& host = import.hosts[0];
  CHECK(host.cpus.size() == expected.cpus);
  CHECK(host.pci.size() == expected.pci);
  CHECK(host.gpus.size() == expected.gpus);
  CHECK(host.nics.size() == expected.nics);
  if (expected.note.empty())
    CHECK(import.notes == std::vector<ImportNote>{});
  else
    CHECK(find_note(import.notes, expected.kind, expected.note) != nullptr);
  drop_unwritten(import.hosts);
  const NcclTopologyText written = write_nccl_topology(import.hosts);
  CHECK(written.notes.empty());
  CHECK(read_nccl_topology(written.text, name).hosts == import.hosts);
}

}  // namespace

TEST_CASE("every published topology file is read and written back", "[topology][nccl_xml][data]") {
  if (skip_without_data()) return;
  for (const auto& [name, expected] : expectations()) check_file(name, expected);
  for (const auto& entry : std::filesystem::directory_iterator(topo_test::published_folder() / "xml")) {
    INFO(entry.path().string());
    CHECK(expectations().contains(entry.path().stem().string()));
  }
}

TEST_CASE("published RCCL files are refused unasked", "[topology][nccl_xml][data]") {
  if (skip_without_data()) return;
  for (const auto& [name, expected] : expectations())
    if (name.starts_with("rccl"))
      CHECK_THROWS_WITH(read_nccl_topology(published(name), name), Catch::Contains("RCCL"));
}

TEST_CASE("the GPU list makes machines of published skeletons", "[topology][nccl_xml][data]") {
  if (skip_without_data()) return;
  NcclTopologyOptions options;
  for (const char* last : {"16", "17", "18", "19", "1a", "1b", "1c", "1d"})
    options.gpu_bus_ids.push_back(std::string("00000000:00:") + last + ".0");
  const Host g5 = read_nccl_topology(published("aws-g5-48xl"), "g5", options).hosts[0];
  CHECK(g5.gpus.size() == 8);
  CHECK(g5.nics.size() == 1);  // 0000:00:15.0
  // Eight bridges with four cards each; the GPU's bus is the one after its cards'.
  options.gpu_bus_ids.clear();
  for (const char* bus : {"53", "64", "75", "86", "97", "a8", "b9", "ca"})
    options.gpu_bus_ids.push_back(std::string("0000:") + bus + ":00.0");
  const Host p5 = read_nccl_topology(published("nemo-aws-p5"), "p5", options).hosts[0];
  CHECK(p5.gpus.size() == 8);
  CHECK(p5.nics.size() == 32);
  for (const HostGpu& gpu : p5.gpus) {
    const std::int32_t bridge = p5.pci[static_cast<std::size_t>(gpu.pci)].parent;
    const auto cards = std::count_if(p5.nics.begin(), p5.nics.end(), [&](const HostNic& nic) {
      return p5.pci[static_cast<std::size_t>(nic.pci)].parent == bridge;
    });
    CHECK(cards == 4);
  }
}

TEST_CASE("CRLF files read as their twins", "[topology][nccl_xml][data]") {
  if (skip_without_data()) return;
  Host one = read_nccl_topology(published("mlperf-dgxa100"), "one").hosts[0];
  Host other = read_nccl_topology(published("mlperf-dgxa100-rnnt"), "one").hosts[0];
  CHECK(one == other);
}
