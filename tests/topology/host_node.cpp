// Hosts as node types: shared segments, ports of one card, NVLinks of both ends.
#include "topology/import/host_node.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "topology/node_routes.hpp"
#include "topology/ring_order.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

// Two GPUs of Hopper and a card with two ports under one switch; a third GPU under the CPU itself.
Host small_host() {
  Host host;
  host.source = "small.xml";
  host.cpus.resize(1);
  const auto add = [&](const char* bus_id, std::int32_t parent) {
    PciDevice device;
    device.bus_id = bus_id;
    device.parent = parent;
    device.gigatransfers_per_s = 16;
    device.lanes = 16;
    host.pci.push_back(device);
  };
  add("0000:01:00.0", -1);  // The switch.
  add("0000:02:00.0", 0);
  add("0000:03:00.0", 0);
  add("0000:04:00.0", 0);  // The card.
  add("0000:05:00.0", -1);
  for (const std::int32_t pci : {1, 2, 4}) {
    HostGpu gpu;
    gpu.pci = pci;
    gpu.index = static_cast<std::int32_t>(host.gpus.size());
    gpu.compute_capability = 90;
    host.gpus.push_back(gpu);
  }
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    HostNic nic;
    nic.pci = 3;
    nic.name = name;
    nic.index = static_cast<std::int32_t>(host.nics.size());
    nic.bytes_per_s = 25e9;
    host.nics.push_back(nic);
  }
  return host;
}

NodeType node(const Host& host) {
  std::vector<ImportNote> notes;
  return node_of(host, gpu_type_of(host, notes), notes);
}

}  // namespace

TEST_CASE("ports of one card share its PCIe link", "[topology][host]") {
  const NodeType type = node(small_host());
  CHECK(type.gpus == 3);
  CHECK(type.nics == 2);
  const NodeRoutes routes = find_routes(type);
  // GPU 0's way to port 0 and GPU 1's to port 1 both go over the card's one link of 24 GB/s.
  const auto last_but_one = [](const NodePath& path) { return path.arcs[path.arcs.size() - 2]; };
  CHECK(routes.nic_of == std::vector<std::int32_t>{0, 1, 0});
  CHECK(last_but_one(routes.to_nic[0]) == last_but_one(routes.to_nic[1]));
  CHECK(type.links[static_cast<std::size_t>(last_but_one(routes.to_nic[0]) / 2)].bytes_per_s == Approx(24e9));
  CHECK(path_class(type, routes.between[0 * 3 + 1]) == nccl::PathClass::kPix);
  CHECK(path_class(type, routes.between[0 * 3 + 2]) == nccl::PathClass::kPhb);
}

TEST_CASE("slower network ports are left out and said", "[topology][host]") {
  Host host = small_host();
  host.nics[1].bytes_per_s = 12.5e9;
  std::vector<ImportNote> notes;
  const NodeType type = node_of(host, gpu_type_of(host, notes), notes);
  CHECK(type.nics == 1);
  REQUIRE(notes.size() == 2);  // The GPUs' model, and the port.
  CHECK_THAT(notes[1].text, Contains("mlx5_1 (100 Gb/s)"));
}

// 18 links of 20.6 GB/s to the switch for two GPUs, none for the third: it stays on PCIe.
TEST_CASE("a GPU without NVLinks is reached over PCIe", "[topology][host]") {
  Host host = small_host();
  for (std::size_t g = 0; g < 2; ++g) host.gpus[g].nvlinks = {{"0000:ff:00.0", 18, kNvSwitchClass}};
  const NodeType type = node(host);
  const NodeRoutes routes = find_routes(type);
  CHECK(path_class(type, routes.between[0 * 3 + 1]) == nccl::PathClass::kNvl);
  CHECK(type.links[static_cast<std::size_t>(routes.between[1].arcs.front() / 2)].bytes_per_s ==
        Approx(18 * 20.6e9));
  CHECK(path_class(type, routes.between[0 * 3 + 2]) == nccl::PathClass::kPhb);
}

TEST_CASE("of direct NVLinks the end with fewer counts", "[topology][host]") {
  Host host = small_host();
  host.gpus[0].nvlinks = {{"0000:03:00.0", 4, 0x030200}};
  host.gpus[1].nvlinks = {{"0000:02:00.0", 3, 0x030200}};
  std::vector<ImportNote> notes;
  const NodeType type = node_of(host, gpu_type_of(host, notes), notes);
  CHECK_THAT(notes.back().text, Contains("4 NVLinks") && Contains("3 back"));
  CHECK(type.links.back().kind == LinkKind::kNvLink);
  CHECK(type.links.back().bytes_per_s == Approx(3 * 20.6e9));
}

TEST_CASE("a node of the twin has one kind of GPU", "[topology][host]") {
  Host host = small_host();
  std::vector<ImportNote> notes;
  CHECK(gpu_type_of(host, notes).name == "H100-SXM5-80GB");
  CHECK(notes.size() == 1);
  host.gpus[2].compute_capability = 80;
  CHECK_THROWS_WITH(gpu_type_of(host, notes), Contains("GPU 0") && Contains("GPU 2"));
  host.gpus.clear();
  CHECK_THROWS_WITH(node_of(host, GpuType{}, notes), Contains("small.xml: no GPU"));
}
