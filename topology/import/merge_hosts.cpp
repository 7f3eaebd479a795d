#include "topology/import/merge_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

std::string label(const Host& host) { return host.name.empty() ? host.source : host.name; }

// Without what differs between equal machines; NVLink targets as places in the tree.
Host shape_of(const Host& host) {
  Host shape = host;
  shape.name.clear();
  shape.source.clear();
  for (HostGpu& gpu : shape.gpus) {
    gpu.rank = -1;
    for (HostNvLink& link : gpu.nvlinks) {
      const auto target = std::ranges::find(host.pci, link.target, &PciDevice::bus_id);
      link.target = target == host.pci.end() ? "hidden" : std::to_string(target - host.pci.begin());
    }
    std::ranges::sort(gpu.nvlinks, [](const HostNvLink& a, const HostNvLink& b) {
      return std::tie(a.target, a.count) < std::tie(b.target, b.count);
    });
  }
  for (HostNic& nic : shape.nics) nic.guid.clear();
  for (PciDevice& device : shape.pci) {
    device.bus_id.clear();
    device.peer.clear();
  }
  return shape;
}

bool has_identity(const Host& host) {
  const auto named = [](const HostNic& nic) { return !nic.guid.empty() && nic.guid != "0x0"; };
  return !host.name.empty() || std::ranges::any_of(host.nics, named);
}

// The same machine in two files, or one file twice.
bool is_same_machine(const Host& a, const Host& b) {
  Host other = b;
  other.source = a.source;
  return a == other && (has_identity(a) || a.source == b.source);
}

std::int32_t nvlinks(const HostGpu& gpu) {
  std::int32_t total = 0;
  for (const HostNvLink& link : gpu.nvlinks) total += link.count;
  return total;
}

// What `host` has otherwise than `usual`, in words.
class Differences {
 public:
  Differences(const Host& host, const Host& usual) : host_(host), usual_(usual) {
    if (host.cpus.size() != usual.cpus.size())
      add("{} NUMA nodes instead of {}", host.cpus.size(), usual.cpus.size());
    for (std::size_t c = 0; c < std::min(host.cpus.size(), usual.cpus.size()); ++c)
      compare(host.cpus[c], usual.cpus[c]);
    compare_gpus();
    compare_nics();
    if (words_.empty()) add("{}", "its PCIe tree has another shape");
  }
  const std::vector<std::string>& words() const { return words_; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    words_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void compare(const HostCpu& cpu, const HostCpu& usual) {
    if (cpu.vendor != usual.vendor || cpu.family != usual.family || cpu.model != usual.model ||
        cpu.architecture != usual.architecture)
      add("processor {} {}/{} instead of {} {}/{}", cpu.vendor, cpu.family, cpu.model, usual.vendor,
          usual.family, usual.model);
    else if (cpu.numa != usual.numa)
      add("NUMA node {} where {} is usual", cpu.numa, usual.numa);
    else if (cpu.affinity != usual.affinity)
      add("NUMA node {} has other processors", cpu.numa);
  }

  void compare_place(const std::string& name, std::int32_t pci, std::int32_t usual_pci) {
    if (pci < 0 || usual_pci < 0) return;
    const PciDevice& device = host_.pci[static_cast<std::size_t>(pci)];
    const PciDevice& usual = usual_.pci[static_cast<std::size_t>(usual_pci)];
    if (device.gigatransfers_per_s != usual.gigatransfers_per_s || device.lanes != usual.lanes)
      add("{} at {} GT/s x{} instead of {} GT/s x{}", name, device.gigatransfers_per_s, device.lanes,
          usual.gigatransfers_per_s, usual.lanes);
    if (device.cpu != usual.cpu) add("{} under cpu {} instead of {}", name, device.cpu, usual.cpu);
  }

  void compare_gpus() {
    for (const HostGpu& usual : usual_.gpus) {
      const auto gpu = std::ranges::find(host_.gpus, usual.index, &HostGpu::index);
      const std::string name = fmt::format("GPU {}", usual.index);
      if (gpu == host_.gpus.end()) {
        add("{} is missing", name);
        continue;
      }
      if (gpu->model != usual.model || gpu->compute_capability != usual.compute_capability)
        add("{} is another model: {} (capability {}) instead of {} ({})", name, gpu->model,
            gpu->compute_capability, usual.model, usual.compute_capability);
      if (nvlinks(*gpu) != nvlinks(usual))
        add("{} has {} NVLinks instead of {}", name, nvlinks(*gpu), nvlinks(usual));
      if (gpu->gpu_direct_rdma != usual.gpu_direct_rdma)
        add("{} is {} GPUDirect", name, gpu->gpu_direct_rdma ? "with" : "without");
      compare_place(name, gpu->pci, usual.pci);
    }
    for (const HostGpu& gpu : host_.gpus)
      if (std::ranges::find(usual_.gpus, gpu.index, &HostGpu::index) == usual_.gpus.end())
        add("GPU {} more", gpu.index);
  }

  // By name and port; where files don't name ports, by number.
  static const HostNic* counterpart(const std::vector<HostNic>& nics, const HostNic& of) {
    const auto found = std::ranges::find_if(nics, [&](const HostNic& nic) {
      return of.name.empty() ? nic.index == of.index : nic.name == of.name && nic.port == of.port;
    });
    return found == nics.end() ? nullptr : &*found;
  }
  static std::string name_of(const HostNic& nic) {
    return nic.name.empty() ? fmt::format("network port {}", nic.index)
                            : fmt::format("{} port {}", nic.name, nic.port);
  }

  void compare_nics() {
    for (const HostNic& usual : usual_.nics) {
      const HostNic* nic = counterpart(host_.nics, usual);
      const std::string name = name_of(usual);
      if (nic == nullptr) {
        add("{} is missing", name);
        continue;
      }
      if (nic->bytes_per_s != usual.bytes_per_s)
        add("{} runs at {:g} Gb/s instead of {:g}", name, nic->bytes_per_s * 8 / 1e9,
            usual.bytes_per_s * 8 / 1e9);
      if (nic->index != usual.index) add("{} is number {} instead of {}", name, nic->index, usual.index);
      if (nic->gpu_direct_rdma != usual.gpu_direct_rdma)
        add("{} is {} GPUDirect", name, nic->gpu_direct_rdma ? "with" : "without");
      if (nic->in_network_reduction != usual.in_network_reduction)
        add("{} is {} reduction in the network", name, nic->in_network_reduction ? "with" : "without");
      compare_place(name, nic->pci, usual.pci);
    }
    for (const HostNic& nic : host_.nics)
      if (counterpart(usual_.nics, nic) == nullptr) add("{} more", name_of(nic));
  }

  const Host& host_;
  const Host& usual_;
  std::vector<std::string> words_;
};

void add_host(MergedHosts& merged, Host host) {
  for (const Host& other : merged.hosts) {
    if (is_same_machine(host, other)) {
      merged.notes.push_back(
          {Kind::kSuspect, 0,
           fmt::format("{} describes the same machine as {}; it counts once", host.source,
                       other.source == host.source ? "an earlier file of this name" : other.source),
           "give each host's own file"});
      return;
    }
    if (!host.name.empty() && host.name == other.name)
      merged.notes.push_back({Kind::kSuspect, 0,
                              fmt::format("{} and {} are both of host {} and not equal; they count as two",
                                          other.source, host.source, host.name),
                              "give each host's latest file only"});
  }
  merged.hosts.push_back(std::move(host));
}

}  // namespace

MergedHosts merge_hosts(std::vector<HostImport> imports) {
  MergedHosts merged;
  for (HostImport& import : imports) {
    const std::string source = import.hosts.empty() ? "" : import.hosts.front().source + ": ";
    for (ImportNote& note : import.notes) {
      note.text.insert(0, source);
      merged.notes.push_back(std::move(note));
    }
    for (Host& host : import.hosts) add_host(merged, std::move(host));
  }
  std::vector<Host> shapes;
  for (std::size_t h = 0; h < merged.hosts.size(); ++h) {
    Host shape = shape_of(merged.hosts[h]);
    const auto known = std::ranges::find(shapes, shape);
    const auto group = static_cast<std::size_t>(known - shapes.begin());
    if (known == shapes.end()) {
      shapes.push_back(std::move(shape));
      merged.groups.emplace_back();
    }
    merged.groups[group].push_back(static_cast<std::int32_t>(h));
  }
  std::ranges::stable_sort(merged.groups, std::ranges::greater(), &std::vector<std::int32_t>::size);
  for (std::size_t g = 1; g < merged.groups.size(); ++g) {
    const std::vector<std::int32_t>& group = merged.groups[g];
    const Host& usual = merged.hosts[static_cast<std::size_t>(merged.groups[0][0])];
    const Host& host = merged.hosts[static_cast<std::size_t>(group[0])];
    const std::string others = group.size() > 1 ? fmt::format(" and {} more", group.size() - 1) : "";
    merged.notes.push_back(
        {Kind::kSuspect, 0,
         fmt::format("{}{} differ{} from {} ({} alike): {}", label(host), others, group.size() > 1 ? "" : "s",
                     label(usual), merged.groups[0].size(),
                     fmt::join(Differences(host, usual).words(), "; ")),
         "mend or leave out the odd hosts; NCCL doesn't compare them, and a port without counterpart hangs"});
  }
  return merged;
}

}  // namespace orrery
