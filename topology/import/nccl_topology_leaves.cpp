#include "topology/import/nccl_topology_leaves.hpp"

#include <algorithm>
#include <optional>

#include "topology/import/host_numbers.hpp"
#include "topology/import/pci_address.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

constexpr std::uint32_t kBridgeClass = 0x060400;

// Base classes 0x03 (display) and 0x12 (AMD's accelerators); 0x02 (network).
bool is_gpu_class(std::uint32_t device_class) {
  return device_class >> 16 == 0x03 || device_class >> 16 == 0x12;
}
bool is_network_class(std::uint32_t device_class) { return device_class >> 16 == 0x02; }

std::vector<bool> have_children(const Host& host) {
  std::vector<bool> parents(host.pci.size());
  for (const PciDevice& device : host.pci)
    if (device.parent >= 0) parents[static_cast<std::size_t>(device.parent)] = true;
  return parents;
}

// Buses are numbered depth first, so that the bridge a device is under is the last one before it.
std::optional<std::int32_t> bridge_before(const Host& host, const PciAddress& address) {
  const std::vector<bool> parents = have_children(host);
  std::optional<std::int32_t> best;
  std::optional<PciAddress> best_address;
  for (std::size_t i = 0; i < host.pci.size(); ++i) {
    if (!parents[i] && host.pci[i].device_class != kBridgeClass) continue;
    const std::optional<PciAddress> bridge = parse_pci_address(host.pci[i].bus_id);
    if (!bridge || bridge->domain != address.domain || *bridge > address) continue;
    if (best_address && *bridge < *best_address) continue;
    best = static_cast<std::int32_t>(i);
    best_address = bridge;
  }
  return best;
}

// As the last child of `bridge`, behind all that is below it.
void insert_below(Host& host, std::int32_t bridge, const std::string& bus_id,
                  std::vector<std::int32_t>& pci_lines) {
  std::int32_t place = bridge + 1;
  while (place < static_cast<std::int32_t>(host.pci.size()) &&
         host.pci[static_cast<std::size_t>(place)].parent >= bridge)
    ++place;
  const auto shift = [&](std::int32_t& index) {
    if (index >= place) ++index;
  };
  for (PciDevice& device : host.pci) shift(device.parent);
  for (HostGpu& gpu : host.gpus) shift(gpu.pci);
  for (HostNic& nic : host.nics) shift(nic.pci);
  PciDevice device;
  device.bus_id = bus_id;
  device.parent = bridge;
  device.cpu = host.pci[static_cast<std::size_t>(bridge)].cpu;
  host.pci.insert(host.pci.begin() + place, std::move(device));
  pci_lines.insert(pci_lines.begin() + place, 0);
}

struct Finder {
  Host& host;
  std::span<const std::string> gpu_bus_ids;
  std::vector<std::int32_t>& pci_lines;
  NoteTally& notes;

  // The place in the list; −1: not in it.
  std::int32_t listed(const std::string& bus_id) const {
    const auto found = std::ranges::find_if(
        gpu_bus_ids, [&](const std::string& given) { return normal_bus_id(given) == bus_id; });
    return found == gpu_bus_ids.end() ? -1 : static_cast<std::int32_t>(found - gpu_bus_ids.begin());
  }
  void note(Kind kind, std::size_t pci, std::string_view what, std::string_view remedy = {}) {
    notes.add(kind, pci_lines[pci], host.pci[pci].bus_id, what, remedy);
  }

  void place_listed();
  void add_leaves();
  void add_gpu(std::size_t pci);
  void add_nic(std::size_t pci);
  void note_bare();
};

constexpr std::string_view kDump = "run a program with NCCL_TOPO_DUMP_FILE=topology.xml on the machine";

void Finder::place_listed() {
  for (const std::string& given : gpu_bus_ids) {
    const std::string bus_id = normal_bus_id(given);
    if (std::ranges::find(host.pci, bus_id, &PciDevice::bus_id) != host.pci.end()) continue;
    const std::optional<PciAddress> address = parse_pci_address(bus_id);
    const std::optional<std::int32_t> bridge = address ? bridge_before(host, *address) : std::nullopt;
    if (!bridge) {
      notes.add(Kind::kMissing, 0, bus_id,
                "this GPU is not in the file, and no bridge there is before it: left out", kDump);
      continue;
    }
    notes.add(Kind::kAssumed, pci_lines[static_cast<std::size_t>(*bridge)], bus_id,
              "this GPU is not in the file: it is put under the last bridge before it, as PCI numbers buses",
              kDump);
    insert_below(host, *bridge, bus_id, pci_lines);
  }
}

void Finder::add_gpu(std::size_t pci) {
  HostGpu gpu;
  gpu.pci = static_cast<std::int32_t>(pci);
  gpu.index = listed(host.pci[pci].bus_id);
  host.gpus.push_back(std::move(gpu));
}

void Finder::add_nic(std::size_t pci) {
  const auto same_card = [&](const HostNic& nic) {
    return nic.pci >= 0 && host.pci[static_cast<std::size_t>(nic.pci)].bus_id == host.pci[pci].bus_id;
  };
  if (std::ranges::any_of(host.nics, same_card)) return;  // check_host tells of it.
  HostNic nic;
  nic.pci = static_cast<std::int32_t>(pci);
  nic.cpu = host.pci[pci].cpu;
  nic.index = -1;
  host.nics.push_back(std::move(nic));
}

void Finder::add_leaves() {
  std::vector<bool> taken = have_children(host);
  for (const HostGpu& gpu : host.gpus) taken[static_cast<std::size_t>(gpu.pci)] = true;
  for (const HostNic& nic : host.nics)
    if (nic.pci >= 0) taken[static_cast<std::size_t>(nic.pci)] = true;
  for (std::size_t i = 0; i < host.pci.size(); ++i) {
    if (taken[i]) continue;
    const std::uint32_t device_class = host.pci[i].device_class;
    if (is_gpu_class(device_class) || (device_class == 0 && listed(host.pci[i].bus_id) >= 0)) {
      add_gpu(i);
    } else if (is_network_class(device_class)) {
      add_nic(i);
    } else if (device_class == 0 && !gpu_bus_ids.empty()) {
      note(Kind::kAssumed, i,
           "no class, and none of the GPUs given: taken as a network card, the only other leaf NCCL keeps");
      add_nic(i);
    } else if (device_class == 0) {
      note(Kind::kMissing, i, "no class, so that nothing tells whether it is a GPU or a network card",
           "nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader");
    }
  }
}

void Finder::note_bare() {
  for (const HostGpu& gpu : host.gpus)
    if (gpu.compute_capability == 0 && gpu.model.empty() && gpu.nvlinks.empty())
      note(Kind::kMissing, static_cast<std::size_t>(gpu.pci),
           "a GPU of which the file says neither capability nor NVLinks", kDump);
  for (const HostNic& nic : host.nics) {
    if (nic.bytes_per_s > 0) continue;
    if (nic.name.empty() && nic.pci >= 0)
      note(Kind::kMissing, static_cast<std::size_t>(nic.pci),
           "a network card of which the file says neither name nor rate nor ports; NCCL looks for them",
           kDump);
    else
      notes.add(Kind::kMissing, 0, nic.name, "a network port without speed; NCCL counts 10 Gb/s",
                "cat /sys/class/infiniband/*/ports/*/rate");
  }
}

}  // namespace

void find_leaves(Host& host, std::span<const std::string> gpu_bus_ids, std::vector<std::int32_t>& pci_lines,
                 NoteTally& notes) {
  Finder finder{host, gpu_bus_ids, pci_lines, notes};
  finder.place_listed();
  finder.add_leaves();
  if (number_gpus(host))
    notes.add(Kind::kAssumed, 0, "", "GPUs without number are numbered by their bus ids, as the driver does");
  if (number_nics(host))
    notes.add(Kind::kAssumed, 0, "", "network ports without number are numbered by their bus ids");
  finder.note_bare();
}

}  // namespace orrery
