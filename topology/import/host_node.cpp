#include "topology/import/host_node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "topology/link_rates.hpp"
#include "topology/node_layout.hpp"
#include "topology/node_routes.hpp"

namespace orrery {
namespace {

void note(std::vector<ImportNote>& notes, ImportNote::Kind kind, std::string text, std::string remedy = {}) {
  notes.push_back({kind, 0, std::move(text), std::move(remedy)});
}

// The board of a capability that most clusters have.
std::string_view usual_gpu(std::int32_t compute_capability) {
  switch (compute_capability) {
    case 70: return "v100-sxm-32gb";
    case 80: return "a100-sxm-80gb";
    case 89: return "l40s";
    case 90: return "h100-sxm";
    case 100: return "b200-sxm";
    case 103: return "b300-sxm";
    default: return "";
  }
}

struct Builder {
  const Host& host;
  std::vector<ImportNote>& notes;
  NodeType node;
  std::vector<std::int32_t> pci_device;  // By Host::pci: the device that it is; −1: it has nothing below it.
  std::int32_t first_cpu = 0;

  std::int32_t add(const char* stem, DeviceKind kind, std::size_t index) {
    node.devices.push_back({fmt::format("{}{}", stem, index), kind});
    return static_cast<std::int32_t>(node.devices.size()) - 1;
  }
  void link(std::int32_t a, std::int32_t b, LinkKind kind, double bytes_per_s, double latency_s) {
    const auto name = [&](std::int32_t device) {
      return node.devices[static_cast<std::size_t>(device)].name;
    };
    node.links.push_back({name(a) + "-" + name(b), a, b, kind, bytes_per_s, latency_s});
  }
  const PciDevice& pci(std::int32_t index) const { return host.pci[static_cast<std::size_t>(index)]; }
  std::int32_t cpu_device(std::int32_t cpu) const { return first_cpu + cpu; }

  std::vector<const HostNic*> usable_nics() const;
  void add_pci_tree(const std::vector<const HostNic*>& nics);
  void add_nvlinks();
};

std::vector<const HostNic*> Builder::usable_nics() const {
  double fastest = 0;
  for (const HostNic& nic : host.nics) fastest = std::max(fastest, nic.bytes_per_s);
  std::vector<const HostNic*> kept;
  std::string left_out;
  for (const HostNic& nic : host.nics) {
    if (nic.bytes_per_s == fastest) {
      kept.push_back(&nic);
      continue;
    }
    const std::string rate =
        nic.bytes_per_s > 0 ? fmt::format("{:g} Gb/s", nic.bytes_per_s * 8e-9) : "rate not known";
    left_out += fmt::format("{}{} ({})", left_out.empty() ? "" : ", ", nic.name, rate);
  }
  if (!left_out.empty())
    note(notes, ImportNote::Kind::kAssumed,
         fmt::format("left out for collectives, being slower than the others: {}", left_out));
  if (fastest == 0 && !kept.empty())
    note(notes, ImportNote::Kind::kAssumed,
         fmt::format("no network card's rate is known: {:g} Gb/s is taken, as NCCL does",
                     kUnknownPortBytesPerS * 8e-9),
         "ibstat, or cat /sys/class/infiniband/*/ports/*/rate");
  return kept;
}

// Only bridges with a GPU or a NIC below them count. A function with one port or GPU is that device itself; a
// card with several ports is a switch with ports on it, since they share its link.
void Builder::add_pci_tree(const std::vector<const HostNic*>& nics) {
  std::vector<std::int32_t> users(host.pci.size(), 0);
  const auto use = [&](std::int32_t at) {
    for (; at >= 0; at = pci(at).parent) ++users[static_cast<std::size_t>(at)];
  };
  std::vector<std::int32_t> ports(host.pci.size(), 0);
  for (const HostGpu& gpu : host.gpus) use(gpu.pci);
  for (const HostNic* const nic : nics) {
    use(nic->pci);
    if (nic->pci >= 0) ++ports[static_cast<std::size_t>(nic->pci)];
  }

  pci_device.assign(host.pci.size(), -1);
  for (std::size_t g = 0; g < host.gpus.size(); ++g)
    if (host.gpus[g].pci >= 0)
      pci_device[static_cast<std::size_t>(host.gpus[g].pci)] = static_cast<std::int32_t>(g);
  for (std::size_t n = 0; n < nics.size(); ++n) {
    const std::int32_t at = nics[n]->pci;
    if (at >= 0 && ports[static_cast<std::size_t>(at)] == 1 && pci_device[static_cast<std::size_t>(at)] < 0)
      pci_device[static_cast<std::size_t>(at)] = node.gpus + static_cast<std::int32_t>(n);
  }
  std::size_t switches = 0;
  for (std::size_t p = 0; p < host.pci.size(); ++p)
    if (users[p] > 0 && pci_device[p] < 0) pci_device[p] = add("pcie", DeviceKind::kPcieSwitch, switches++);
  first_cpu = static_cast<std::int32_t>(node.devices.size());
  for (std::size_t c = 0; c < host.cpus.size(); ++c) add("cpu", DeviceKind::kCpu, c);

  for (std::size_t p = 0; p < host.pci.size(); ++p) {
    if (users[p] == 0) continue;
    const PciDevice& device = host.pci[p];
    const std::int32_t up =
        device.parent >= 0 ? pci_device[static_cast<std::size_t>(device.parent)] : cpu_device(device.cpu);
    link(pci_device[p], up, LinkKind::kPcie, pcie_bytes_per_s(device), kPcieHopLatency);
  }
  for (std::size_t n = 0; n < nics.size(); ++n) {
    const std::int32_t device = node.gpus + static_cast<std::int32_t>(n);
    const HostNic& nic = *nics[n];
    if (nic.pci < 0)
      link(device, cpu_device(nic.cpu), LinkKind::kPcie, kLocalBytesPerS, kPcieHopLatency);
    else if (pci_device[static_cast<std::size_t>(nic.pci)] != device)
      link(device, pci_device[static_cast<std::size_t>(nic.pci)], LinkKind::kPcie, kLocalBytesPerS, 0);
  }
  for (std::size_t g = 0; g < host.gpus.size(); ++g)
    if (host.gpus[g].c2c_bytes_per_s > 0 && host.gpus[g].pci >= 0)
      link(static_cast<std::int32_t>(g), cpu_device(pci(host.gpus[g].pci).cpu), LinkKind::kC2c,
           host.gpus[g].c2c_bytes_per_s, kCpuInterconnectLatency);
  for (std::int32_t a = 0; a < static_cast<std::int32_t>(host.cpus.size()); ++a)
    for (std::int32_t b = a + 1; b < static_cast<std::int32_t>(host.cpus.size()); ++b) {
      const double rate = cpu_interconnect_bytes_per_s(host.cpus[static_cast<std::size_t>(a)]);
      link(cpu_device(a), cpu_device(b), LinkKind::kCpuInterconnect, rate > 0 ? rate : kLocalBytesPerS,
           kCpuInterconnectLatency);
    }
}

// All switches are one. Both ends of a direct link name it; the one with fewer cables counts.
void Builder::add_nvlinks() {
  std::map<std::string, std::int32_t> gpu_at;
  for (std::size_t g = 0; g < host.gpus.size(); ++g)
    if (host.gpus[g].pci >= 0) gpu_at[pci(host.gpus[g].pci).bus_id] = static_cast<std::int32_t>(g);
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> direct;  // From, to: cables.
  std::vector<std::int32_t> to_switch(host.gpus.size(), 0), to_cpu(host.gpus.size(), 0);
  for (std::size_t g = 0; g < host.gpus.size(); ++g)
    for (const HostNvLink& links : host.gpus[g].nvlinks) {
      const auto peer = gpu_at.find(links.target);
      if (peer != gpu_at.end() && links.target_class != kNvSwitchClass)
        direct[{static_cast<std::int32_t>(g), peer->second}] += links.count;
      else if (links.target_class == kCpuBridgeClass)
        to_cpu[g] += links.count;
      else
        to_switch[g] += links.count;
    }
  const auto rate = [&](std::size_t gpu, std::int32_t count) {
    return count * nvlink_bytes_per_s(host.gpus[gpu].compute_capability);
  };
  if (std::ranges::any_of(to_switch, [](std::int32_t count) { return count > 0; })) {
    const std::int32_t nvswitch = add("nvswitch", DeviceKind::kNvSwitch, 0);
    for (std::size_t g = 0; g < to_switch.size(); ++g)
      if (to_switch[g] > 0)
        link(static_cast<std::int32_t>(g), nvswitch, LinkKind::kNvLink, rate(g, to_switch[g]),
             kNvLinkHopLatency);
  }
  for (std::size_t g = 0; g < to_cpu.size(); ++g)
    if (to_cpu[g] > 0 && host.gpus[g].pci >= 0)
      link(static_cast<std::int32_t>(g), cpu_device(pci(host.gpus[g].pci).cpu), LinkKind::kNvLink,
           rate(g, to_cpu[g]), 2 * kNvLinkHopLatency);
  std::set<std::pair<std::int32_t, std::int32_t>> seen;
  for (const auto& [ends, there] : direct) {
    const auto [a, b] = std::minmax(ends.first, ends.second);
    if (a == b || !seen.insert({a, b}).second) continue;
    const auto back = direct.find({ends.second, ends.first});
    const std::int32_t other = back == direct.end() ? 0 : back->second;
    if (other != there)
      note(notes, ImportNote::Kind::kSuspect,
           fmt::format("GPU {} says {} NVLinks to GPU {}, which says {} back: the smaller number counts",
                       ends.first, there, ends.second, other),
           "nvidia-smi nvlink --status");
    if (std::min(there, other) > 0)
      link(a, b, LinkKind::kNvLink, rate(static_cast<std::size_t>(a), std::min(there, other)),
           2 * kNvLinkHopLatency);
  }
}

}  // namespace

GpuType gpu_type_of(const Host& host, std::vector<ImportNote>& notes) {
  if (host.gpus.empty()) fail(ErrorKind::kInput, "{}: no GPU in it", host.source);
  const HostGpu& first = host.gpus.front();
  for (const HostGpu& gpu : host.gpus)
    if (gpu.model != first.model || gpu.compute_capability != first.compute_capability)
      fail(ErrorKind::kInput,
           "{}: GPU {} is a {} of compute capability {}, GPU {} a {} of {}; a node of the twin has one kind "
           "of "
           "GPU",
           host.source, first.index, first.model.empty() ? "GPU" : first.model, first.compute_capability,
           gpu.index, gpu.model.empty() ? "GPU" : gpu.model, gpu.compute_capability);
  if (auto named = catalogue_gpu(first.model)) return *named;
  if (const std::string_view usual = usual_gpu(first.compute_capability); !usual.empty()) {
    const GpuType type = catalogue_gpu(usual).value();
    note(notes, ImportNote::Kind::kAssumed,
         fmt::format("GPUs of compute capability {}.{} are taken for {}", first.compute_capability / 10,
                     first.compute_capability % 10, type.name),
         "nvidia-smi --query-gpu=name --format=csv");
    return type;
  }
  GpuType unknown;
  unknown.name = first.model.empty() ? "unknown GPU" : first.model;
  unknown.source = host.source;
  note(notes, ImportNote::Kind::kMissing,
       fmt::format("the catalogue has no {}: routes are worked out, kernels can't be timed", unknown.name),
       "nvidia-smi --query-gpu=name --format=csv, and orrery catalogue for the names that are known");
  return unknown;
}

NodeType node_of(const Host& host, const GpuType& gpu, std::vector<ImportNote>& notes) {
  if (host.gpus.empty()) fail(ErrorKind::kInput, "{}: no GPU in it", host.source);
  Builder builder{host, notes, {}, {}, 0};
  NodeType& node = builder.node;
  node.name = host.name.empty() ? host.source : host.name;
  node.gpu = gpu;
  node.gpus = static_cast<std::int32_t>(host.gpus.size());
  node.source = host.source;
  for (std::size_t g = 0; g < host.gpus.size(); ++g) builder.add("gpu", DeviceKind::kGpu, g);
  const std::vector<const HostNic*> nics = builder.usable_nics();
  node.nics = static_cast<std::int32_t>(nics.size());
  if (!nics.empty()) {
    node.nic_bytes_per_s = nics.front()->bytes_per_s > 0 ? nics.front()->bytes_per_s : kUnknownPortBytesPerS;
    node.nic_latency_s = kNicLatency;
  }
  for (std::size_t n = 0; n < nics.size(); ++n) builder.add("nic", DeviceKind::kNic, n);
  builder.add_pci_tree(nics);
  builder.add_nvlinks();
  find_routes(node);  // Says which GPUs nothing joins.
  return std::move(node);
}

}  // namespace orrery
