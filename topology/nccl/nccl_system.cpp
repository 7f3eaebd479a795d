// Hosts to NCCL's graph; the paths are nccl_paths.cpp's.

#include "topology/nccl/nccl_system.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.hpp"
#include "topology/link_rates.hpp"
#include "topology/nccl/nccl_paths.hpp"

namespace orrery::nccl {
namespace {

float gb(double bytes_per_s) { return static_cast<float>(bytes_per_s / 1e9); }

// "0008:06:00.0" is 0x806000.
std::int64_t bus_number(std::string_view bus_id) {
  std::int64_t number = 0;
  for (const char c : bus_id) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    number = number * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return number;
}

CpuArchitecture architecture(const HostCpu& cpu) {
  if (cpu.architecture == "x86_64") return CpuArchitecture::kX86;
  if (cpu.architecture == "ppc64") return CpuArchitecture::kPower;
  return cpu.architecture == "arm64" ? CpuArchitecture::kArm : CpuArchitecture::kUnknown;
}

CpuVendor vendor(const HostCpu& cpu) {
  if (cpu.vendor == "GenuineIntel") return CpuVendor::kIntel;
  if (cpu.vendor == "AuthenticAMD") return CpuVendor::kAmd;
  const bool zhaoxin = cpu.vendor == "CentaurHauls" || cpu.vendor == "  Shanghai  ";
  return zhaoxin ? CpuVendor::kZhaoxin : CpuVendor::kUnknown;
}

// Rates were other ones before.
float nvlink_gb_per_s(std::int32_t capability, std::int32_t nccl_minor) {
  if (nccl_minor < 17 && (capability == 70 || capability == 80)) return 22;
  if (nccl_minor < 20 && capability >= 90) return 20;
  return gb(nvlink_bytes_per_s(capability));
}

// Intel: Broadwell and older, Skylake, Sapphire Rapids, Emerald Rapids.
std::int32_t cpu_model(const HostCpu& cpu) {
  if (vendor(cpu) == CpuVendor::kIntel)
    return cpu.model >= 0xCF ? 4 : cpu.model >= 0x8F ? 3 : cpu.model >= 0x55 ? 2 : 1;
  if (vendor(cpu) == CpuVendor::kZhaoxin && cpu.family == 7 && cpu.model == 0x5B) return 1;
  return -1;
}

// Two-level PCIe switches of Broadcom; level 0 is the upper one. 0: another device.
int broadcom_generation(std::uint64_t device, int level) {
  const std::uint64_t model = device & 0xfffffffffffff000;
  if (model == 0x1000c0101000a000) return 4;
  return model == (0x1000c03010000000 | static_cast<std::uint64_t>(level) * 0x1000) ? 5 : 0;
}

class Builder {
 public:
  Builder(std::span<const Host> hosts, const SystemOptions& options) : hosts_(hosts), options_(options) {
    system_.hosts = static_cast<std::int32_t>(hosts.size());
    system_.inter = options.other_nodes;
    system_.nccl_minor = options.nccl_minor;
    system_.variables = options.variables;
  }

  System build() {
    for (std::size_t h = 0; h < hosts_.size(); ++h) add_host(static_cast<std::int32_t>(h));
    for (const auto& [gpu, from] : gpus_) add_nvlinks(gpu, *from);
    for (const auto& [gpu, from] : gpus_) add_c2c(gpu, *from);
    flatten_switches();
    connect_cpus();
    for (const std::int32_t cpu : system_.all(NodeKind::kCpu)) uplinks_last(cpu, -1);
    if (gpus_.empty())
      fail(ErrorKind::kInput,
           "no GPU of the communicator is on {}: check the device numbers against `nvidia-smi -L`",
           hosts_.empty() ? std::string("any host") : hosts_.front().source);
    return std::move(system_);
  }

 private:
  SystemNode& at(std::int32_t node) { return system_.nodes[static_cast<std::size_t>(node)]; }
  SystemLink& link(std::int32_t index) { return system_.links[static_cast<std::size_t>(index)]; }

  std::int32_t add(NodeKind kind, std::int32_t host, std::int64_t id) {
    const auto index = static_cast<std::int32_t>(system_.nodes.size());
    SystemNode node;
    node.kind = kind;
    node.host = host;
    node.id = id;
    system_.nodes.push_back(std::move(node));
    parent_.push_back(-1);
    system_.of_kind[static_cast<std::size_t>(kind)].push_back(index);
    return index;
  }

  // Cables between the same two nodes add up; the widest link of a node stands first.
  void connect(std::int32_t from, std::int32_t to, LinkClass kind, float gb_per_s) {
    std::vector<std::int32_t>& out = at(from).links;
    auto place =
        std::ranges::find_if(out, [&](std::int32_t l) { return link(l).to == to && link(l).kind == kind; });
    if (place == out.end()) {
      system_.links.push_back({kind, from, to, 0});
      place = out.insert(out.end(), static_cast<std::int32_t>(system_.links.size()) - 1);
    }
    link(*place).gb_per_s += gb_per_s;
    for (; place != out.begin() && link(*std::prev(place)).gb_per_s < link(*place).gb_per_s; --place)
      std::iter_swap(place, std::prev(place));
  }
  void join(std::int32_t a, std::int32_t b, LinkClass kind, float gb_per_s) {
    connect(a, b, kind, gb_per_s);
    connect(b, a, kind, gb_per_s);
  }

  bool takes_part(std::int32_t host, std::int32_t device) const {
    if (options_.gpus.empty()) return true;
    const auto h = static_cast<std::size_t>(host);
    return h < options_.gpus.size() && std::ranges::find(options_.gpus[h], device) != options_.gpus[h].end();
  }

  void add_host(std::int32_t h) {
    const Host& host = hosts_[static_cast<std::size_t>(h)];
    // A device is kept when a GPU or a port hangs on it or below.
    std::vector<char> keep(host.pci.size(), 0);
    const auto mark = [&](std::int32_t device) {
      for (; device >= 0; device = host.pci[static_cast<std::size_t>(device)].parent)
        keep[static_cast<std::size_t>(device)] = 1;
    };
    for (const HostGpu& gpu : host.gpus)
      if (takes_part(h, gpu.index)) mark(gpu.pci);
    for (const HostNic& nic : host.nics) mark(nic.pci);
    for (std::size_t c = 0; c < host.cpus.size(); ++c) {
      const std::int32_t cpu = add_cpu(h, host.cpus[c], c);
      for (std::size_t d = 0; d < host.pci.size(); ++d)
        if (host.pci[d].parent < 0 && host.pci[d].cpu == static_cast<std::int32_t>(c) && keep[d] != 0)
          add_pci(h, static_cast<std::int32_t>(d), cpu, keep);
      for (const HostNic& nic : host.nics)
        if (nic.pci < 0 && nic.cpu == static_cast<std::int32_t>(c)) {
          const std::int32_t node = add(NodeKind::kNic, h, nic.index);
          add_port(h, nic, node);
          join(cpu, node, LinkClass::kPci, gb(kLocalBytesPerS));
        }
    }
  }

  std::int32_t add_cpu(std::int32_t h, const HostCpu& from, std::size_t index) {
    const std::int32_t cpu = add(NodeKind::kCpu, h, from.numa);
    if (hosts_[static_cast<std::size_t>(h)].cpus.size() > 1 && from.numa < 0)
      at(cpu).id = static_cast<std::int64_t>(index);
    at(cpu).architecture = architecture(from);
    at(cpu).vendor = vendor(from);
    at(cpu).cpu_model = cpu_model(from);
    const double rate = cpu_interconnect_bytes_per_s(from);
    socket_gb_per_s_.emplace_back(cpu, rate > 0 ? gb(rate) : gb(kLocalBytesPerS));
    return cpu;
  }

  void add_pci(std::int32_t h, std::int32_t d, std::int32_t parent, const std::vector<char>& keep) {
    const Host& host = hosts_[static_cast<std::size_t>(h)];
    const PciDevice& device = host.pci[static_cast<std::size_t>(d)];
    const auto is_here = [&](const auto& part) { return part.pci == d; };
    const auto gpu = std::ranges::find_if(host.gpus, is_here);
    const bool port = std::ranges::any_of(host.nics, is_here);
    const NodeKind kind = gpu != host.gpus.end() ? NodeKind::kGpu : port ? NodeKind::kNic : NodeKind::kPci;
    const std::int32_t node = add(kind, h, bus_number(device.bus_id));
    parent_[static_cast<std::size_t>(node)] = parent;
    at(node).pci_device = std::uint64_t{device.vendor} << 48 | std::uint64_t{device.device} << 32 |
                          std::uint64_t{device.subsystem_vendor} << 16 | device.subsystem_device;
    if (kind == NodeKind::kGpu) add_gpu(*gpu, node);
    if (kind == NodeKind::kNic)
      for (const HostNic& nic : host.nics)
        if (nic.pci == d) add_port(h, nic, node);
    for (std::size_t child = 0; child < host.pci.size(); ++child)
      if (host.pci[child].parent == d && keep[child] != 0)
        add_pci(h, static_cast<std::int32_t>(child), node, keep);
    join(node, parent, LinkClass::kPci, gb(pcie_bytes_per_s(device)));
  }

  void add_gpu(const HostGpu& from, std::int32_t node) {
    SystemNode& gpu = at(node);
    gpu.device = from.index;
    gpu.rank = from.rank >= 0 ? from.rank : static_cast<std::int32_t>(gpus_.size());
    gpu.gpu_direct = from.gpu_direct_rdma;
    gpu.compute_capability =
        from.compute_capability > 0 ? from.compute_capability : options_.compute_capability;
    if (gpu.compute_capability <= 0)
      fail(ErrorKind::kInput,
           "{}: the compute capability of GPU {} isn't known, and NCCL's rates and rules depend on it: say "
           "which GPU it is (`nvidia-smi --query-gpu=compute_cap --format=csv`)",
           hosts_[static_cast<std::size_t>(gpu.host)].source, from.index);
    gpus_.emplace_back(node, &from);
  }

  void add_port(std::int32_t h, const HostNic& from, std::int32_t nic) {
    const std::int32_t node = add(NodeKind::kNet, h, from.index);
    SystemNode& port = at(node);
    port.device = from.index;
    const std::string guid = from.guid.starts_with("0x") ? from.guid.substr(2) : from.guid;
    port.card = guid.empty() ? std::to_string(h) + "-" + std::to_string(from.index) : guid;
    port.port = from.port;
    port.rail = from.rail;
    port.plane = from.plane;
    port.gb_per_s = gb(from.bytes_per_s > 0 ? from.bytes_per_s : kUnknownPortBytesPerS);
    port.latency_us = static_cast<float>(from.latency_s * 1e6);
    port.collnet = from.in_network_reduction;
    port.gpu_direct = from.gpu_direct_rdma;
    join(nic, node, LinkClass::kNet, port.gb_per_s);
  }

  std::int32_t gpu_at(std::int32_t host, std::string_view bus_id) const {
    for (const auto& [gpu, from] : gpus_) {
      const SystemNode& node = system_.nodes[static_cast<std::size_t>(gpu)];
      if (node.host == host && node.id == bus_number(bus_id)) return gpu;
    }
    return -1;
  }

  // The root of its PCIe tree; −1: none.
  std::int32_t own_cpu(std::int32_t node) const {
    while (node >= 0 && system_.nodes[static_cast<std::size_t>(node)].kind != NodeKind::kCpu)
      node = parent_[static_cast<std::size_t>(node)];
    return node;
  }

  void add_nvlinks(std::int32_t gpu, const HostGpu& from) {
    const float each = nvlink_gb_per_s(at(gpu).compute_capability, options_.nccl_minor);
    for (const HostNvLink& nvlink : from.nvlinks) {
      const float rate = static_cast<float>(nvlink.count) * each;
      const std::int32_t peer = gpu_at(at(gpu).host, nvlink.target);
      const bool to_cpu = nvlink.target_class == kCpuBridgeClass;
      const bool to_gpu = nvlink.target_class >> 16 == 0x03 || (nvlink.target_class == 0 && peer >= 0);
      if (to_gpu) {
        if (peer >= 0) connect(gpu, peer, LinkClass::kNvl, rate);
      } else if (to_cpu) {
        if (const std::int32_t cpu = own_cpu(gpu); cpu >= 0) join(gpu, cpu, LinkClass::kNvl, rate);
      } else {
        if (system_.all(NodeKind::kNvs).empty()) add(NodeKind::kNvs, 0, 0);
        join(gpu, system_.all(NodeKind::kNvs).front(), LinkClass::kNvl, rate);
      }
    }
  }

  void add_c2c(std::int32_t gpu, const HostGpu& from) {
    if (from.c2c_bytes_per_s <= 0) return;
    if (const std::int32_t cpu = own_cpu(gpu); cpu >= 0)
      join(gpu, cpu, LinkClass::kC2c, gb(from.c2c_bytes_per_s));
  }

  // Such a switch has full bandwidth between all its ports, though it shows itself as two levels: the lower
  // ones' devices move to the upper one.
  void flatten_switches() {
    for (bool again = true; again;) {
      again = false;
      for (const std::int32_t upper : std::vector(system_.all(NodeKind::kPci))) {
        const int generation = broadcom_generation(at(upper).pci_device, 0);
        if (generation == 0) continue;
        flatten(upper, generation);
        at(upper).pci_device |= 0xffff;  // So that it isn't merged again.
        again = true;
        break;
      }
    }
  }

  void flatten(std::int32_t upper, int generation) {
    std::vector<std::int32_t> lower;
    std::erase_if(at(upper).links, [&](std::int32_t l) {
      const std::int32_t to = link(l).to;
      // A lower switch lists the upper one too: only what was created after it is below it.
      const bool below = at(to).kind == NodeKind::kPci && to > upper &&
                         broadcom_generation(at(to).pci_device, 1) == generation;
      if (below) lower.push_back(to);
      return below;
    });
    auto& switches = system_.of_kind[static_cast<std::size_t>(NodeKind::kPci)];
    for (const std::int32_t sub : lower) {
      for (const std::int32_t l : at(sub).links) {
        const std::int32_t to = link(l).to;
        if (to == upper) continue;
        link(l).from = upper;
        at(upper).links.push_back(l);
        for (const std::int32_t back : at(to).links)
          if (link(back).to == sub) {
            link(back).to = upper;
            break;
          }
      }
      at(sub).links.clear();
      std::erase(switches, sub);
    }
  }

  void connect_cpus() {
    for (const auto& [a, rate] : socket_gb_per_s_)
      for (const auto& [b, other] : socket_gb_per_s_)
        if (a != b && at(a).host == at(b).host) connect(a, b, LinkClass::kSys, rate);
  }

  void uplinks_last(std::int32_t node, std::int32_t up) {
    std::vector<std::int32_t>& out = at(node).links;
    if (up >= 0) {
      const auto place = std::ranges::find_if(out, [&](std::int32_t l) { return link(l).to == up; });
      if (place != out.end()) std::rotate(place, std::next(place), out.end());
    }
    for (const std::int32_t l : out)
      if (link(l).kind == LinkClass::kPci && link(l).to != up) uplinks_last(link(l).to, node);
  }

  std::span<const Host> hosts_;
  const SystemOptions& options_;
  System system_;
  std::vector<std::int32_t> parent_;  // Of every node, towards its CPU; −1: none.
  std::vector<std::pair<std::int32_t, const HostGpu*>> gpus_;
  std::vector<std::pair<std::int32_t, float>> socket_gb_per_s_;  // By CPU, to every other of its host.
};

// What the search starts from.
void set_limits(System& system) {
  const auto& gpus = system.all(NodeKind::kGpu);
  if (!system.inter && gpus.size() == 1) {
    system.max_gb_per_s = gb(kLocalBytesPerS);
    return;
  }
  for (const std::int32_t gpu : gpus) {
    for (const std::int32_t to : system.all(system.inter ? NodeKind::kNet : NodeKind::kGpu)) {
      const SystemPath& path = system.path(gpu, to);
      if (!path.links.empty()) system.max_gb_per_s = std::max(system.max_gb_per_s, path.gb_per_s);
    }
    float nvlink = 0, pcie = 0;
    for (const std::int32_t l : system.nodes[static_cast<std::size_t>(gpu)].links) {
      const SystemLink& link = system.links[static_cast<std::size_t>(l)];
      if (link.kind == LinkClass::kNvl) nvlink += link.gb_per_s;
      if (link.kind == LinkClass::kPci) pcie = link.gb_per_s;
    }
    system.total_gb_per_s = std::max({system.total_gb_per_s, nvlink, pcie});
  }
}

}  // namespace

std::int32_t System::least_capability() const {
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t gpu : all(NodeKind::kGpu))
    least = std::min(least, nodes[static_cast<std::size_t>(gpu)].compute_capability);
  return least;
}

System make_system(std::span<const Host> hosts, const SystemOptions& options) {
  System system = Builder(hosts, options).build();
  find_paths(system);
  set_limits(system);
  return system;
}

System make_system(const Host& host, const SystemOptions& options) {
  return make_system(std::span(&host, 1), options);
}

}  // namespace orrery::nccl
