// Rules over one machine, wherever its description came from.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "report/diagnose_rules.hpp"
#include "topology/import/host_node.hpp"
#include "topology/link_rates.hpp"
#include "topology/nccl/nccl_search.hpp"

namespace orrery::diagnosis {
namespace {

Evidence at(const Host& host, std::string text) { return {host.source, 0, std::move(text)}; }

// What the reader noted of a device, or else `text`.
Evidence noted(const Host& host, std::span<const ImportNote> notes, const std::vector<std::string>& names,
               std::string text) {
  for (const ImportNote& note : notes)
    if (note.kind == ImportNote::Kind::kSuspect)
      for (const std::string& name : names)
        if (note.text.find(name) != std::string::npos) return {host.source, note.line, note.text};
  return at(host, std::move(text));
}

// As logs write it: 0009:06:00.0 is 906000.
std::string log_id(const std::string& bus_id) {
  std::string digits;
  for (const char c : bus_id)
    if (c != ':' && c != '.' && (c != '0' || !digits.empty())) digits += c;
  return digits;
}

std::int32_t nvlinks(const HostGpu& gpu) {
  std::int32_t count = 0;
  for (const HostNvLink& link : gpu.nvlinks) count += link.count;
  return count;
}

const PciDevice& pci(const Host& host, std::int32_t index) {
  return host.pci[static_cast<std::size_t>(index)];
}

std::string name(const Host& host, const HostGpu& gpu) {
  return gpu.pci < 0 ? fmt::format("GPU {}", gpu.index)
                     : fmt::format("GPU {} ({})", gpu.index, pci(host, gpu.pci).bus_id);
}

bool below(const Host& host, std::int32_t device, std::int32_t above) {
  for (; device >= 0; device = pci(host, device).parent)
    if (device == above) return true;
  return false;
}

// The narrowest PCIe link between a device and its CPU, with the device at its lower end; infinite for none.
struct Narrowest {
  double bytes_per_s = std::numeric_limits<double>::infinity();
  std::int32_t at = -1;
};
Narrowest way_up(const Host& host, std::int32_t from) {
  Narrowest found;
  for (std::int32_t device = from; device >= 0; device = pci(host, device).parent)
    if (const double rate = pcie_bytes_per_s(pci(host, device)); rate < found.bytes_per_s)
      found = {rate, device};
  return found;
}

// From a card to the nearest GPU: as far up as the first bridge that has one below, or to the CPU.
Narrowest way_to_gpu(const Host& host, std::int32_t from) {
  Narrowest found;
  for (std::int32_t device = from; device >= 0; device = pci(host, device).parent) {
    if (std::ranges::any_of(host.gpus, [&](const HostGpu& gpu) { return below(host, gpu.pci, device); }))
      break;
    if (const double rate = pcie_bytes_per_s(pci(host, device)); rate < found.bytes_per_s)
      found = {rate, device};
  }
  return found;
}

// What most GPUs have. Empty: no number is had by more than half of them.
std::optional<std::int32_t> usual_nvlinks(const Host& host) {
  std::map<std::int32_t, std::size_t> counts;
  for (const HostGpu& gpu : host.gpus) ++counts[nvlinks(gpu)];
  for (const auto& [links, gpus] : counts)
    if (2 * gpus > host.gpus.size()) return links;
  return std::nullopt;
}

bool behind_a_switch(const HostGpu& gpu) {
  return std::ranges::any_of(gpu.nvlinks,
                             [](const HostNvLink& link) { return link.target_class == kNvSwitchClass; });
}

}  // namespace

std::optional<double> ring_gb_per_s(const Host& host, bool several_nodes, const nccl::Variables& variables) {
  nccl::SystemOptions options;
  options.variables = variables;
  options.other_nodes = several_nodes;
  options.compute_capability =
      80;  // Where the source doesn't say it; both sides of a comparison have the same.
  try {
    const nccl::Graph ring = nccl::search_graphs(nccl::make_system(host, options)).ring;
    return static_cast<double>(ring.channels.size()) *
           (several_nodes ? ring.network_gb_per_s : ring.node_gb_per_s);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void price(Finding& finding, const Host& now, const Host& mended, bool several_nodes) {
  if (several_nodes && now.nics.empty()) return;
  finding.now_gb_per_s = ring_gb_per_s(now, several_nodes);
  finding.mended_gb_per_s = ring_gb_per_s(mended, several_nodes);
  finding.rate_of = several_nodes ? fmt::format("rings over nodes of {} GPUs", now.gpus.size())
                                  : fmt::format("rings over the {} GPUs of a node", now.gpus.size());
}

void look_at_nvlinks(const Host& host, std::span<const ImportNote> notes, Findings& found) {
  const std::optional<std::int32_t> usual = usual_nvlinks(host);
  if (!usual || *usual == 0) return;
  const auto whole =
      std::ranges::find_if(host.gpus, [&](const HostGpu& gpu) { return nvlinks(gpu) == *usual; });
  // Pairs and rings of bridges may leave a GPU out as built; where all others are joined it is a loss.
  const bool mesh = host.gpus.size() > 3 && whole->nvlinks.size() + 2 >= host.gpus.size();
  if (!behind_a_switch(*whole) && !mesh) return;
  for (std::size_t g = 0; g < host.gpus.size(); ++g) {
    const HostGpu& gpu = host.gpus[g];
    const std::int32_t links = nvlinks(gpu);
    if (links >= *usual) continue;
    Finding finding;
    finding.id = links == 0 ? "gpu-without-nvlink" : "gpu-with-fewer-nvlinks";
    finding.title = links == 0 ? fmt::format("{} has lost its NVLinks", name(host, gpu))
                               : fmt::format("{} has {} of {} NVLinks", name(host, gpu), links, *usual);
    finding.evidence.push_back(noted(
        host, notes,
        {fmt::format("GPU{} ", gpu.index), pci(host, gpu.pci).bus_id,
         "-" + log_id(pci(host, gpu.pci).bus_id)},
        fmt::format("{} has {} NVLinks, {} has {}", name(host, gpu), links, name(host, *whole), *usual)));
    finding.cause =
        "links that did not train, a cable or baseboard fault, or a fabric manager that left this GPU out; a "
        "communicator with it falls back to PCIe and has no NVLS";
    finding.remedy =
        "nvidia-smi nvlink --status and nvidia-smi -q | grep -A3 Fabric on that host; reset the GPU or "
        "restart "
        "nvidia-fabricmanager; until then leave the host out";
    if (behind_a_switch(*whole)) {
      Host mended = host;
      mended.gpus[g].nvlinks = whole->nvlinks;
      price(finding, host, mended, false);
    }
    found.push_back(std::move(finding));
  }
}

// A bridge that is far slower than what hangs below it.
void look_at_pcie(const Host& host, std::span<const ImportNote> notes, Findings& found) {
  constexpr double kImplausible =
      1.0 / 8;  // x1 under x16, or Gen1 under Gen4: no machine is built like that.
  std::map<std::int32_t, std::vector<std::string>> users;  // By slow bridge.
  const auto use = [&](std::int32_t device, const std::string& user) {
    if (device < 0) return;
    const Narrowest narrowest = way_up(host, device);
    if (narrowest.at != device && narrowest.bytes_per_s < kImplausible * pcie_bytes_per_s(pci(host, device)))
      users[narrowest.at].push_back(user);
  };
  for (const HostGpu& gpu : host.gpus)
    if (gpu.c2c_bytes_per_s <= 0) use(gpu.pci, name(host, gpu));
  for (const HostNic& nic : host.nics) use(nic.pci, nic.name);
  if (users.empty()) return;
  Host mended = host;
  Finding finding;
  finding.id = "bridge-too-slow";
  for (const auto& [bridge, below_it] : users) {
    PciDevice& device = mended.pci[static_cast<std::size_t>(bridge)];
    Evidence evidence =
        noted(host, notes, {device.bus_id},
              fmt::format("bridge {} at {:g} GT/s x{}, above {}", device.bus_id, device.gigatransfers_per_s,
                          device.lanes, fmt::join(below_it, ", ")));
    // One note may speak of all of them.
    if (finding.evidence.empty() || finding.evidence.back().text != evidence.text)
      finding.evidence.push_back(std::move(evidence));
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(host.pci.size()); ++d)
      if (d != bridge && below(host, d, bridge)) {
        device.gigatransfers_per_s = host.pci[static_cast<std::size_t>(d)].gigatransfers_per_s;
        device.lanes = host.pci[static_cast<std::size_t>(d)].lanes;
        break;
      }
  }
  const std::size_t bridges = users.size();
  finding.title = fmt::format("{} PCIe bridge{} far slower than the devices below", bridges,
                              bridges == 1 ? " is" : "s are");
  finding.cause =
      "a virtual machine's bridges report 2.5 GT/s x1, or a link did not train; NCCL believes it and prices "
      "everything below at that rate";
  finding.remedy =
      "give NCCL a topology file with the real rates (NCCL_TOPO_FILE; orrery topo convert writes one); on a "
      "real machine lspci -vv shows LnkSta against LnkCap";
  price(finding, host, mended, true);
  found.push_back(std::move(finding));
}

void look_at_nics(const Host& host, Findings& found) {
  for (const HostNic& nic : host.nics) {
    if (nic.pci < 0 || nic.bytes_per_s <= 0) continue;
    const Narrowest narrowest = way_to_gpu(host, nic.pci);
    if (narrowest.bytes_per_s >= 0.5 * nic.bytes_per_s) continue;
    const PciDevice& slot = pci(host, narrowest.at);
    Finding finding;
    finding.id = "nic-behind-slow-pcie";
    finding.title = fmt::format("{} at {:g} Gb/s sits behind PCIe of {:.3g} GB/s", nic.name,
                                nic.bytes_per_s * 8e-9, narrowest.bytes_per_s * 1e-9);
    finding.evidence.push_back(
        at(host, fmt::format("{}: {:g} GT/s, {} lanes", slot.bus_id, slot.gigatransfers_per_s, slot.lanes)));
    finding.cause = "the slot or bridge above the card is narrower than its port, or reported so";
    finding.remedy = fmt::format(
        "lspci -vv -s {} (LnkSta against LnkCap); move the card, or correct the topology file", slot.bus_id);
    finding.now_gb_per_s = narrowest.bytes_per_s * 1e-9;
    finding.mended_gb_per_s = nic.bytes_per_s * 1e-9;
    finding.rate_of = "traffic of that card";
    found.push_back(std::move(finding));
  }
}

}  // namespace orrery::diagnosis
