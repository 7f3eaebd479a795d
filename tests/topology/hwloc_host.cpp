#include "topology/import/hwloc_host.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

std::string machine() { return topo_test::read_file(topo_test::own_folder() / "hwloc.xml"); }

std::string error_of(const std::string& text) {
  try {
    read_hwloc_xml(text, "m.xml");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("hwloc's XML gives NCCL's tree", "[topology][hwloc]") {
  const HostImport import = read_hwloc_xml(machine(), "m.xml");
  REQUIRE(import.hosts.size() == 1);
  const Host& host = import.hosts[0];
  CHECK(host.name == "node7");
  REQUIRE(host.cpus.size() == 2);
  CHECK(host.cpus[1].numa == 1);
  CHECK(host.cpus[1].affinity == "0000000c");
  CHECK(host.cpus[1].vendor == "AuthenticAMD");
  CHECK(host.cpus[1].family == 175);  // 15 + 16 · (25 − 15).
  // Root ports and lower ports of switches are left out, and so is the display of the board.
  REQUIRE(host.pci.size() == 5);
  CHECK(host.pci[0].bus_id == "0000:01:00.0");
  CHECK(host.pci[0].device_class == 0x060400);
  CHECK(host.pci[0].vendor == 0x1000);
  for (std::size_t device = 1; device < 4; ++device) CHECK(host.pci[device].parent == 0);
  CHECK(host.pci[4].parent == -1);
  CHECK(host.pci[4].cpu == 1);
  CHECK(host.pci[1].gigatransfers_per_s == 16);  // 31.5 GB/s.
  CHECK(host.pci[1].lanes == 16);
  CHECK(host.pci[4].gigatransfers_per_s == 8);  // 15.75 GB/s.
}

TEST_CASE("hwloc's OS devices say what cards are", "[topology][hwloc]") {
  const HostImport import = read_hwloc_xml(machine(), "m.xml");
  const Host& host = import.hosts[0];
  REQUIRE(host.gpus.size() == 3);
  CHECK(host.pci[host.gpus[0].pci].bus_id == "0000:04:00.0");  // nvml0 is the second one here.
  CHECK(host.gpus[2].index == 2);
  CHECK(host.gpus[0].model == "NVIDIA A100-SXM4-80GB");
  REQUIRE(host.nics.size() == 1);  // ib0 is the same card's.
  CHECK(host.nics[0].name == "mlx5_0");
  CHECK(host.nics[0].guid == "0x0200000000000001");
  CHECK(find_note(import.notes, Kind::kMissing, "capability of GPUs") != nullptr);
  CHECK(find_note(import.notes, Kind::kMissing, "rates of network ports") != nullptr);
}

TEST_CASE("other XML is not taken for hwloc's", "[topology][hwloc]") {
  CHECK_THAT(error_of("<system version=\"1\"/>"), Catch::Contains("NCCL's XML"));
  CHECK_THAT(error_of("<platform/>"), Catch::Contains("begins with <topology>"));
  CHECK_THAT(error_of("<topology version=\"2.0\"><object/></topology>"), Catch::Contains("without type"));
  CHECK_THAT(error_of("<topology version=\"2.0\"/>"), Catch::Contains("can't load"));
  std::string edited = machine();
  edited.replace(edited.find(" nodeset="), 9, " n=");
  CHECK_THAT(error_of(edited), Catch::Contains("line 4: Machine without nodeset"));
  CHECK_THAT(error_of(machine().substr(0, 900)), Catch::Contains("not well-formed"));
}
