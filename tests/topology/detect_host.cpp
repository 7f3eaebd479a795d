#include "topology/import/detect_host.hpp"

#include <unistd.h>
#include <catch2/catch.hpp>

#include <fstream>

#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;
namespace fs = std::filesystem;

namespace {

// A small /sys of its own, gone with it.
class FakeSysfs {
 public:
  FakeSysfs() : root_(fs::temp_directory_path() / ("orrery-sysfs-" + std::to_string(getpid()))) {}
  ~FakeSysfs() { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& line) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << line << "\n";
  }
  void link(const std::string& from, const std::string& to) const {
    fs::create_directories((root_ / from).parent_path());
    fs::create_directory_symlink(root_ / to, root_ / from);
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

Host two_cards() {
  Host host;
  host.cpus.resize(1);
  for (const char* bus_id : {"0000:41:00.0", "0000:42:00.0"}) {
    PciDevice device;
    device.bus_id = bus_id;
    host.pci.push_back(device);
    HostNic nic;
    nic.pci = static_cast<std::int32_t>(host.pci.size()) - 1;
    nic.index = nic.pci;
    nic.name = nic.pci == 0 ? "mlx5_0" : "eth0";
    host.nics.push_back(nic);
  }
  return host;
}

}  // namespace

TEST_CASE("/sys tells links, ports and rates", "[topology]") {
  const FakeSysfs sysfs;
  // The slot is of generation 4, the card of generation 5 with 16 lanes: 16 GT/s and 8 lanes are what both
  // can.
  sysfs.write("devices/port/max_link_speed", "16.0 GT/s PCIe");
  sysfs.write("devices/port/max_link_width", "8");
  sysfs.write("devices/port/0000:41:00.0/max_link_speed", "32.0 GT/s PCIe");
  sysfs.write("devices/port/0000:41:00.0/max_link_width", "16");
  sysfs.write("devices/port/0000:41:00.0/class", "0x020700");
  sysfs.link("bus/pci/devices/0000:41:00.0", "devices/port/0000:41:00.0");
  sysfs.write("class/infiniband/mlx5_0/sys_image_guid", "0200:0000:0000:0001");
  for (const char* port : {"1", "2", "3"}) {
    const std::string folder = std::string("class/infiniband/mlx5_0/ports/") + port;
    sysfs.write(folder + "/state", port == std::string("2") ? "1: DOWN" : "4: ACTIVE");
    sysfs.write(folder + "/rate", "200 Gb/sec (4X HDR)");
  }
  sysfs.write("class/net/eth0/speed", "25000");
  Host host = two_cards();
  NoteTally notes;
  add_sysfs(host, sysfs.root(), notes);
  CHECK(host.pci[0].gigatransfers_per_s == 16);
  CHECK(host.pci[0].lanes == 8);
  CHECK(host.pci[0].device_class == 0x020700);
  CHECK(host.pci[1].lanes == 0);  // Not there: not known.
  REQUIRE(host.nics.size() == 3);
  CHECK(host.nics[0].bytes_per_s == 25e9);
  CHECK(host.nics[0].guid == "0x0200000000000001");
  CHECK(host.nics[1].port == 3);
  CHECK(host.nics[2].name == "eth0");
  CHECK(host.nics[2].bytes_per_s == 25e9 / 8);
  CHECK(find_note(notes.notes(), Kind::kMissing, "mlx5_0 port 2: this port is not up") != nullptr);
}

TEST_CASE("a container without /sys leaves things unknown", "[topology]") {
  Host host = two_cards();
  NoteTally notes;
  add_sysfs(host, "nowhere", notes);
  CHECK(host.pci == two_cards().pci);
  CHECK(host.nics.size() == 2);
  CHECK(find_note(notes.notes(), Kind::kMissing, "mlx5_0, eth0: /sys doesn't say this port's rate") !=
        nullptr);
}

TEST_CASE("this machine can be described whatever it is", "[topology]") {
  const HostImport import = detect_host();
  REQUIRE(import.hosts.size() == 1);
  const Host& host = import.hosts[0];
  CHECK(host.source == "this machine");
  CHECK_FALSE(host.cpus.empty());
  for (const PciDevice& device : host.pci) CHECK(device.cpu < static_cast<std::int32_t>(host.cpus.size()));
  for (std::size_t i = 1; i < host.gpus.size(); ++i) CHECK(host.gpus[i - 1].index < host.gpus[i].index);
  // What isn't there is said.
  if (host.gpus.empty()) CHECK(find_note(import.notes, Kind::kMissing, "no GPU") != nullptr);
  if (host.nics.empty()) CHECK(find_note(import.notes, Kind::kMissing, "no network card") != nullptr);
}
