#pragma once
// Small hosts for tests of NCCL's view, device by device.

#include <cstdint>
#include <string>

#include "topology/import/host.hpp"

namespace orrery::testing {

struct HostMaker {
  Host host;

  HostMaker(const char* vendor, std::int32_t model, std::int32_t sockets = 1) {
    host.source = "test";
    for (std::int32_t s = 0; s < sockets; ++s) {
      HostCpu cpu;
      cpu.numa = s;
      cpu.architecture = "x86_64";
      cpu.vendor = vendor;
      cpu.family = 6;
      cpu.model = model;
      host.cpus.push_back(cpu);
    }
  }

  std::int32_t add_pci(std::int32_t cpu, std::int32_t parent, double gigatransfers, std::int32_t lanes) {
    PciDevice device;
    device.bus_id = "0000:" + std::to_string(10 + host.pci.size()) + ":00.0";
    device.cpu = cpu;
    device.parent = parent;
    device.gigatransfers_per_s = gigatransfers;
    device.lanes = lanes;
    host.pci.push_back(device);
    return static_cast<std::int32_t>(host.pci.size()) - 1;
  }
  std::int32_t add_switch(std::int32_t cpu, double gigatransfers, std::int32_t lanes = 16,
                          std::int32_t parent = -1) {
    return add_pci(cpu, parent, gigatransfers, lanes);
  }
  void add_gpu(std::int32_t cpu, std::int32_t parent, std::int32_t capability, double gigatransfers,
               std::int32_t lanes = 16) {
    HostGpu gpu;
    gpu.pci = add_pci(cpu, parent, gigatransfers, lanes);
    gpu.index = static_cast<std::int32_t>(host.gpus.size());
    gpu.compute_capability = capability;
    host.gpus.push_back(gpu);
  }
  void add_port(std::int32_t cpu, std::int32_t parent, double gigatransfers, double bytes_per_s) {
    HostNic nic;
    nic.pci = add_pci(cpu, parent, gigatransfers, 16);
    nic.cpu = cpu;
    nic.index = static_cast<std::int32_t>(host.nics.size());
    nic.bytes_per_s = bytes_per_s;
    host.nics.push_back(nic);
  }
  void cable(std::size_t a, std::size_t b, std::int32_t count) {
    const auto one = [&](std::size_t from, std::size_t to) {
      const PciDevice& peer = host.pci[static_cast<std::size_t>(host.gpus[to].pci)];
      host.gpus[from].nvlinks.push_back({peer.bus_id, count, 0x030200});
    };
    one(a, b);
    one(b, a);
  }
  void to_switch(std::int32_t count) {
    for (HostGpu& gpu : host.gpus) gpu.nvlinks.push_back({"fffffff:ffff:ff", count, 0x068000});
  }
};

}  // namespace orrery::testing
