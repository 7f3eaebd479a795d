#include "topology/import/node_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "topology/link_rates.hpp"

namespace orrery {
namespace {

// What sockets of this rate are, by their links' rate in link_rates.hpp.
HostCpu cpu_of(double bytes_per_s, bool grace) {
  HostCpu cpu;
  cpu.architecture = grace ? "arm64" : "x86_64";
  if (grace) return cpu;
  HostCpu amd = cpu;
  amd.vendor = "AuthenticAMD";
  HostCpu best = amd;
  double least = std::abs(cpu_interconnect_bytes_per_s(amd) - bytes_per_s);
  for (const std::int32_t model : {0x4F, 0x55, 0x8F, 0xCF}) {
    HostCpu intel = cpu;
    intel.vendor = "GenuineIntel";
    intel.family = 6;
    intel.model = model;
    const double off = std::abs(cpu_interconnect_bytes_per_s(intel) - bytes_per_s);
    if (off < least) {
      least = off;
      best = intel;
    }
  }
  return best;
}

// The generation on sixteen lanes, or fewer lanes, that comes nearest.
void set_rate(PciDevice& device, double bytes_per_s) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::int32_t lanes : {16, 8, 4})
    for (const double gigatransfers : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
      const double off = std::abs(pcie_bytes_per_s(gigatransfers, lanes) - bytes_per_s);
      if (off >= least) continue;
      least = off;
      device.gigatransfers_per_s = gigatransfers;
      device.lanes = lanes;
    }
}

class HostBuilder {
 public:
  explicit HostBuilder(const NodeType& node) : node_(node), place_(node.devices.size()) {}

  std::vector<Host> build() {
    find_boards();
    for (std::size_t d = 0; d < node_.devices.size(); ++d)
      if (node_.devices[d].kind == DeviceKind::kCpu) add_cpu(static_cast<std::int32_t>(d));
    // From the CPUs down, in the order of devices.
    for (std::size_t d = 0; d < node_.devices.size(); ++d)
      if (node_.devices[d].kind == DeviceKind::kCpu) add_below(static_cast<std::int32_t>(d));
    for (std::int32_t gpu = 0; gpu < node_.gpus; ++gpu) add_nvlinks(gpu);
    for (Host& host : hosts_) {
      std::ranges::sort(host.gpus, {}, &HostGpu::index);
      std::ranges::sort(host.nics, {}, &HostNic::index);
    }
    return std::move(hosts_);
  }

 private:
  struct Place {
    std::int32_t host = -1, cpu = -1, pci = -1;
  };
  DeviceKind kind(std::int32_t device) const { return node_.devices[static_cast<std::size_t>(device)].kind; }
  Place& place(std::int32_t device) { return place_[static_cast<std::size_t>(device)]; }
  std::int32_t other_end(const NodeLink& link, std::int32_t device) const {
    return link.a == device ? link.b : link.b == device ? link.a : -1;
  }

  // CPUs that reach each other without NVLink.
  void find_boards() {
    for (std::size_t d = 0; d < node_.devices.size(); ++d) {
      const auto device = static_cast<std::int32_t>(d);
      if (kind(device) != DeviceKind::kCpu || place(device).host >= 0) continue;
      const auto host = static_cast<std::int32_t>(hosts_.size());
      Host& made = hosts_.emplace_back();
      made.name = node_.name;
      made.source = node_.name;
      std::vector<std::int32_t> todo{device};
      place(device).host = host;
      while (!todo.empty()) {
        const std::int32_t at = todo.back();
        todo.pop_back();
        for (const NodeLink& link : node_.links) {
          const std::int32_t to = other_end(link, at);
          if (to < 0 || link.kind == LinkKind::kNvLink || place(to).host >= 0) continue;
          place(to).host = host;
          todo.push_back(to);
        }
      }
    }
  }

  void add_cpu(std::int32_t device) {
    Host& host = hosts_[static_cast<std::size_t>(place(device).host)];
    double socket = kLocalBytesPerS;
    for (const NodeLink& link : node_.links)
      if (link.kind == LinkKind::kCpuInterconnect && other_end(link, device) >= 0)
        socket = std::min(socket, link.bytes_per_s);
    HostCpu cpu = cpu_of(socket, hosts_.size() > 1);
    cpu.numa = static_cast<std::int32_t>(host.cpus.size());
    place(device).cpu = cpu.numa;
    host.cpus.push_back(std::move(cpu));
  }

  void add_below(std::int32_t parent) {
    for (std::size_t d = 0; d < node_.devices.size(); ++d) {
      const auto device = static_cast<std::int32_t>(d);
      if (place(device).cpu >= 0) continue;
      for (const NodeLink& link : node_.links) {
        if (link.kind != LinkKind::kPcie || other_end(link, parent) != device) continue;
        add_device(device, parent, link.bytes_per_s);
        add_below(device);
        break;
      }
    }
  }

  void add_device(std::int32_t device, std::int32_t parent, double bytes_per_s) {
    const std::int32_t h = place(parent).host;
    Host& host = hosts_[static_cast<std::size_t>(h)];
    PciDevice pci;
    pci.bus_id = fmt::format("{:04x}:{:02x}:00.0", host.pci.size() / 255, host.pci.size() % 255 + 1);
    pci.cpu = place(parent).cpu;
    pci.parent = place(parent).pci;
    set_rate(pci, bytes_per_s);
    place(device) = {h, pci.cpu, static_cast<std::int32_t>(host.pci.size())};
    if (kind(device) == DeviceKind::kGpu) {
      pci.device_class = 0x030200;
      HostGpu gpu;
      gpu.pci = place(device).pci;
      gpu.index = static_cast<std::int32_t>(host.gpus.size());
      gpu.rank = device;
      gpu.compute_capability = compute_capability(node_.gpu);
      gpu.model = node_.gpu.name;
      host.gpus.push_back(std::move(gpu));
    } else if (kind(device) == DeviceKind::kNic) {
      pci.device_class = 0x020700;
      HostNic nic;
      nic.pci = place(device).pci;
      nic.cpu = pci.cpu;
      nic.index = static_cast<std::int32_t>(host.nics.size());
      nic.name = node_.devices[static_cast<std::size_t>(device)].name;
      nic.bytes_per_s = node_.nic_bytes_per_s;
      nic.guid = fmt::format("0x{:x}", device + 1);
      host.nics.push_back(std::move(nic));
    } else {
      pci.device_class = 0x060400;
    }
    host.pci.push_back(std::move(pci));
  }

  void add_nvlinks(std::int32_t device) {
    if (place(device).pci < 0) return;
    Host& host = hosts_[static_cast<std::size_t>(place(device).host)];
    const auto gpu = std::ranges::find(host.gpus, place(device).pci, &HostGpu::pci);
    const double each = nvlink_bytes_per_s(gpu->compute_capability);
    for (const NodeLink& link : node_.links) {
      const std::int32_t to = other_end(link, device);
      if (link.kind != LinkKind::kNvLink || to < 0) continue;
      HostNvLink nvlink;
      nvlink.count = std::max(1, static_cast<std::int32_t>(std::lround(link.bytes_per_s / each)));
      if (kind(to) == DeviceKind::kGpu) {
        nvlink.target = host.pci[static_cast<std::size_t>(place(to).pci)].bus_id;
        nvlink.target_class = 0x030200;
      } else {
        nvlink.target = "fffffff:ffff:ff";
        nvlink.target_class = kNvSwitchClass;
      }
      gpu->nvlinks.push_back(std::move(nvlink));
    }
  }

  const NodeType& node_;
  std::vector<Place> place_;
  std::vector<Host> hosts_;
};

}  // namespace

std::int32_t compute_capability(const GpuType& gpu) {
  switch (gpu.architecture) {
    case Architecture::kVolta: return 70;
    case Architecture::kAmpere: return 80;
    case Architecture::kAda: return 89;
    case Architecture::kHopper: return 90;
    case Architecture::kBlackwell: return gpu.name.find("B300") != std::string::npos ? 103 : 100;
    case Architecture::kCdna3:
    case Architecture::kHost:
    case Architecture::kUnknown: break;
  }
  return 0;
}

std::vector<Host> hosts_of(const NodeType& node) { return HostBuilder(node).build(); }

}  // namespace orrery
