#include "topology/import/host_dot.hpp"

#include <catch2/catch.hpp>

using namespace orrery;

namespace {

Host machine() {
  Host host;
  host.name = "a \"host\"";
  host.cpus.resize(2);
  host.cpus[0] = {0, "", "x86_64", "AuthenticAMD", 175, 1};
  host.cpus[1] = host.cpus[0];
  host.cpus[1].numa = -1;
  for (std::int32_t i = 0; i < 4; ++i) {
    PciDevice device;
    device.bus_id = "0000:0" + std::to_string(i) + ":00.0";
    device.parent = i == 0 || i == 3 ? -1 : 0;
    device.cpu = i == 3 ? 1 : 0;
    device.gigatransfers_per_s = 32;
    device.lanes = 16;
    host.pci.push_back(device);
  }
  for (std::int32_t i = 0; i < 2; ++i) {
    HostGpu gpu;
    gpu.pci = 1 + i;
    gpu.index = i;
    gpu.compute_capability = 90;
    gpu.nvlinks = {{"0000:0" + std::to_string(2 - i) + ":00.0", 2, 0x030200}, {"0000:f0:00.0", 4, 0x068000}};
    host.gpus.push_back(gpu);
  }
  host.gpus[1].nvlinks[1].count = 0;
  HostNic nic;
  nic.pci = 3;
  nic.name = "mlx5_0";
  nic.bytes_per_s = 50e9;
  host.nics.push_back(nic);
  return host;
}

}  // namespace

TEST_CASE("a machine is drawn with the rates of its links", "[topology]") {
  // 240 · 16 / 80 = 48 GB/s; 2 · 20.6 = 41.2; 4 · 20.6 = 82.4.
  CHECK(write_graphviz(machine()) == R"dot(graph "a \"host\"" {
  subgraph cluster_cpu0 {
    label="NUMA node 0";
    cpu0 [label="CPU
AuthenticAMD 175/1" shape=ellipse];
    pci0 [label="0000:00:00.0" shape=box];
    gpu0 [label="GPU 0
sm90
0000:01:00.0" shape=box style=filled fillcolor=palegreen];
    gpu1 [label="GPU 1
sm90
0000:02:00.0" shape=box style=filled fillcolor=palegreen];
  }
  subgraph cluster_cpu1 {
    label="NUMA node unknown";
    cpu1 [label="CPU
AuthenticAMD 175/1" shape=ellipse];
    pci3 [label="0000:03:00.0
mlx5_0 port 1, 400 Gb/s" shape=box style=filled fillcolor=lightblue];
  }
  cpu0 -- pci0 [label="48 GB/s"];
  pci0 -- gpu0 [label="48 GB/s"];
  pci0 -- gpu1 [label="48 GB/s"];
  cpu1 -- pci3 [label="48 GB/s"];
  cpu0 -- cpu1 [style=dashed label="16 GB/s"];
  nvswitch [label="NVSwitch" shape=box style=filled fillcolor=gold];
  gpu0 -- gpu1 [color=darkgreen penwidth=2 constraint=false label="2 NVLinks, 41.2 GB/s"];
  gpu0 -- nvswitch [color=darkgreen penwidth=2 constraint=false label="4 NVLinks, 82.4 GB/s"];
  gpu1 -- nvswitch [color=darkgreen penwidth=2 constraint=false label="NVLink down"];
}
)dot");
}

TEST_CASE("GPUs without a PCIe tree are drawn, too", "[topology]") {
  Host host;
  host.source = "matrix";
  host.gpus.resize(1);
  CHECK(write_graphviz(host) ==
        "graph \"matrix\" {\n  gpu0 [label=\"GPU 0\" shape=box style=filled fillcolor=palegreen];\n}\n");
}
