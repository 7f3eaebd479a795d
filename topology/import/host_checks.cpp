#include "topology/import/host_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "topology/import/note_tally.hpp"
#include "topology/link_rates.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

// A link that is this many times narrower than what hangs below it is a wrong report, not a design: real
// machines halve (x8 slots, a generation less).
constexpr double kNarrow = 4;

struct Checker {
  const Host& host;
  std::span<const std::int32_t> pci_lines;
  NoteTally notes = {};
  std::vector<bool> reported = {};  // By PCI device: its narrow link.

  const PciDevice& pci(std::int32_t index) const { return host.pci[static_cast<std::size_t>(index)]; }
  std::int32_t line(std::int32_t index) const {
    return index >= 0 && !pci_lines.empty() ? pci_lines[static_cast<std::size_t>(index)] : 0;
  }
  std::string name(const HostGpu& gpu) const {
    return gpu.pci >= 0 ? fmt::format("GPU {} ({})", gpu.index, pci(gpu.pci).bus_id)
                        : fmt::format("GPU {}", gpu.index);
  }
  std::string name(const HostNic& nic) const {
    return nic.name.empty() ? fmt::format("network port {}", nic.index) : nic.name;
  }
  std::string users_below(std::int32_t bridge) const;
  bool matters(std::int32_t bridge) const;
  bool is_below(std::int32_t device, std::int32_t bridge) const;

  void check_bus_ids();
  void check_bridges();
  void check_ports();
  void check_nvlinks();
  void check_nvlink_counts();
  void check_cpus();
  void check_numbers();
};

bool known(const PciDevice& device) { return device.gigatransfers_per_s > 0; }

std::string describe(const PciDevice& device) {
  const std::string lanes = device.lanes > 0 ? fmt::format("x{}", device.lanes) : "lanes unknown";
  return fmt::format("{} GT/s {}", device.gigatransfers_per_s, lanes);
}

bool Checker::is_below(std::int32_t device, std::int32_t bridge) const {
  for (; device >= 0; device = pci(device).parent)
    if (device == bridge) return true;
  return false;
}

std::string Checker::users_below(std::int32_t bridge) const {
  std::string users;
  const auto append = [&](const std::string& user) { users += (users.empty() ? "" : ", ") + user; };
  for (const HostGpu& gpu : host.gpus)
    if (is_below(gpu.pci, bridge)) append(fmt::format("GPU {}", gpu.index));
  for (const HostNic& nic : host.nics)
    if (is_below(nic.pci, bridge)) append(name(nic));
  return users.empty() ? "nothing known" : users;
}

// GPUs that are joined to their CPU by C2C don't use the bridge.
bool Checker::matters(std::int32_t bridge) const {
  const auto below = [&](const auto& item) { return is_below(item.pci, bridge); };
  const auto gpus = static_cast<std::size_t>(std::ranges::count_if(host.gpus, below));
  const auto by_c2c = static_cast<std::size_t>(std::ranges::count_if(
      host.gpus, [&](const HostGpu& gpu) { return below(gpu) && gpu.c2c_bytes_per_s > 0; }));
  return gpus == 0 || by_c2c < gpus || std::ranges::any_of(host.nics, below);
}

void Checker::check_bus_ids() {
  std::map<std::string, std::vector<std::int32_t>> places;
  for (std::size_t i = 0; i < host.pci.size(); ++i)
    places[host.pci[i].bus_id].push_back(static_cast<std::int32_t>(i));
  for (const auto& [bus_id, devices] : places) {
    if (devices.size() == 1) continue;
    std::vector<std::string> where;
    std::map<std::string, std::int32_t> kinds;
    for (const std::int32_t device : devices) {
      const std::uint32_t base = pci(device).device_class >> 16;
      ++kinds[base == 0x03 ? "GPU" : base == 0x02 ? "network card" : "device"];
      where.push_back(line(device) > 0 ? fmt::format("line {}", line(device))
                                       : fmt::format("cpu {}", pci(device).cpu));
    }
    std::string what =
        kinds.size() > 1 ? "stands there as GPU and as something else at once" : "stands there several times";
    notes.add(Kind::kSuspect, line(devices.front()), bus_id,
              fmt::format("{} ({}); one address is one function, and NCCL takes the first", what,
                          fmt::join(where, ", ")),
              "lspci -D shows which function has this address; correct the others");
  }
}

void Checker::check_bridges() {
  const std::size_t count = host.pci.size();
  std::vector<double> widest(count, 0);  // Among what is known below it.
  reported.assign(count, false);
  for (std::size_t i = count; i-- > 0;) {
    const PciDevice& device = host.pci[i];
    if (known(device) && pcie_bytes_per_s(device) * kNarrow <= widest[i] &&
        matters(static_cast<std::int32_t>(i)))
      reported[i] = true;
    if (device.parent < 0) continue;
    double& above = widest[static_cast<std::size_t>(device.parent)];
    above = std::max({above, widest[i], known(device) ? pcie_bytes_per_s(device) : 0});
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!reported[i]) continue;
    const auto index = static_cast<std::int32_t>(i);
    notes.add(
        Kind::kSuspect, line(index), fmt::format("{} above {}", host.pci[i].bus_id, users_below(index)),
        fmt::format("this bridge reports {}, from which NCCL makes a link of {:.1f} GB/s for all below it",
                    describe(host.pci[i]), pcie_bytes_per_s(host.pci[i]) / 1e9),
        "compare with LnkSta of `sudo lspci -vv` on the bare machine; in a virtual machine give NCCL a "
        "file with the real link_speed and link_width (NCCL_TOPO_FILE)");
  }
}

void Checker::check_ports() {
  // What the standards have, one lane or four, and sums that bonds make of them.
  constexpr double kGigabits[] = {1,  2.5, 5,  10, 14,  16,  20,  25,  32,  40,
                                  50, 54,  56, 80, 100, 200, 400, 800, 1600};
  for (const HostNic& nic : host.nics) {
    if (nic.bytes_per_s <= 0) continue;
    const double gigabits = nic.bytes_per_s * 8 / 1e9;
    if (std::ranges::find(kGigabits, gigabits) == std::end(kGigabits))
      notes.add(Kind::kSuspect, line(nic.pci), name(nic),
                fmt::format("{:g} Gb/s is no port's rate", gigabits),
                "cat /sys/class/infiniband/*/ports/*/rate; write the real rate as speed, in Mb/s");
    for (std::int32_t at = nic.pci; at >= 0; at = pci(at).parent) {
      if (!known(pci(at)) || reported[static_cast<std::size_t>(at)] ||
          pcie_bytes_per_s(pci(at)) * kNarrow > nic.bytes_per_s)
        continue;
      notes.add(Kind::kSuspect, line(at), fmt::format("{} ({})", pci(at).bus_id, name(nic)),
                fmt::format("reports {}, {:.1f} GB/s to NCCL, for a port of {:g} Gb/s", describe(pci(at)),
                            pcie_bytes_per_s(pci(at)) / 1e9, gigabits),
                "compare with LnkSta of `sudo lspci -vv`; give NCCL a corrected file (NCCL_TOPO_FILE)");
      break;
    }
  }
}

void Checker::check_nvlinks() {
  for (const HostGpu& gpu : host.gpus) {
    const std::string own = gpu.pci >= 0 ? pci(gpu.pci).bus_id : "";
    for (const HostNvLink& link : gpu.nvlinks) {
      if (link.target == own && !own.empty()) {
        notes.add(Kind::kSuspect, line(gpu.pci), name(gpu),
                  "its NVLinks lead to itself, so that no pair has any; the target must be the other GPU",
                  "nvidia-smi nvlink --remotelinkinfo");
        continue;
      }
      if (link.target_class >> 16 != 0x03) continue;
      const auto peer = std::ranges::find_if(host.gpus, [&](const HostGpu& other) {
        return other.pci >= 0 && pci(other.pci).bus_id == link.target;
      });
      if (peer == host.gpus.end()) {
        notes.add(Kind::kMissing, line(gpu.pci), name(gpu),
                  "has NVLinks to GPUs that are not listed; the dump saw only some of the machine's GPUs",
                  "dump again without CUDA_VISIBLE_DEVICES, with all GPUs in the container");
        continue;
      }
      std::int32_t back = 0;
      for (const HostNvLink& other : peer->nvlinks)
        if (other.target == own) back += other.count;
      if (back != link.count)
        notes.add(Kind::kSuspect, line(gpu.pci), name(gpu),
                  fmt::format("has {} NVLinks to GPU {}, which has {} back", link.count, peer->index, back),
                  "nvidia-smi nvlink --status");
    }
  }
}

// One GPU that differs from all others is the usual fault.
void Checker::check_nvlink_counts() {
  std::map<std::int32_t, std::int32_t> frequency;
  std::vector<std::int32_t> totals;
  for (const HostGpu& gpu : host.gpus) {
    std::int32_t total = 0;
    for (const HostNvLink& link : gpu.nvlinks) total += std::min(link.count, 1 << 16);
    totals.push_back(total);
    ++frequency[total];
  }
  // The larger one where two are equally frequent.
  std::int32_t usual = 0, most = 0;
  for (const auto& [total, gpus] : frequency) {
    if (gpus < most) continue;
    usual = total;
    most = gpus;
  }
  for (std::size_t g = 0; g < totals.size(); ++g) {
    const HostGpu& gpu = host.gpus[g];
    const bool down =
        std::ranges::any_of(gpu.nvlinks, [](const HostNvLink& link) { return link.count == 0; });
    if (totals[g] >= usual && !down) continue;
    const std::string what =
        totals[g] == 0 && usual > 0
            ? fmt::format(
                  "has no NVLink up where others have {}: NCCL's rings over all GPUs fall back to PCIe "
                  "or the network, and NVLS is off",
                  usual)
        : totals[g] < usual ? fmt::format("has {} NVLinks where others have {}", totals[g], usual)
                            : std::string("has NVLinks that are down (count 0)");
    notes.add(Kind::kSuspect, line(gpu.pci), name(gpu), what,
              fmt::format("nvidia-smi nvlink --status -i {}; restart the fabric manager or reset the GPU",
                          gpu.index));
  }
}

// Digits of a mask in hexadecimal, least significant first; groups after the first have eight.
std::string mask_digits(const std::string& affinity) {
  std::string digits;
  std::size_t begin = 0;
  while (begin <= affinity.size()) {
    const std::size_t end = std::min(affinity.find(',', begin), affinity.size());
    std::string group = affinity.substr(begin, end - begin);
    if (group.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return "";
    if (begin > 0 && group.size() < 8) group.insert(0, 8 - group.size(), '0');
    digits += group;
    begin = end + 1;
  }
  std::ranges::reverse(digits);
  return digits;
}

bool share_processors(const std::string& a, const std::string& b) {
  const std::string first = mask_digits(a), second = mask_digits(b);
  const auto value = [](char digit) { return std::stoi(std::string(1, digit), nullptr, 16); };
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i)
    if ((value(first[i]) & value(second[i])) != 0) return true;
  return false;
}

void Checker::check_cpus() {
  for (std::size_t a = 0; a < host.cpus.size(); ++a) {
    const HostCpu& cpu = host.cpus[a];
    if (cpu.numa < 0)
      notes.add(Kind::kMissing, 0, fmt::format("cpu element {}", a), "its NUMA node is not known (numaid -1)",
                "cat /sys/bus/pci/devices/BUS_ID/numa_node; a BIOS that doesn't tell it prints -1");
    for (std::size_t b = a + 1; b < host.cpus.size(); ++b) {
      const std::string pair = fmt::format("cpus {} and {}", cpu.numa, host.cpus[b].numa);
      if (cpu.numa >= 0 && cpu.numa == host.cpus[b].numa)
        notes.add(Kind::kSuspect, 0, pair, "two elements for one NUMA node; NCCL takes them for one");
      else if (share_processors(cpu.affinity, host.cpus[b].affinity))
        notes.add(Kind::kSuspect, 0, pair, "their affinity masks share processors, which NUMA nodes don't",
                  "lscpu | grep NUMA");
    }
  }
}

void Checker::check_numbers() {
  const auto repeated = [&](const auto& items, std::string_view what) {
    for (std::size_t i = 1; i < items.size(); ++i)
      if (items[i].index == items[i - 1].index)
        notes.add(Kind::kSuspect, line(items[i].pci), name(items[i]), what);
  };
  repeated(host.gpus, "another GPU has the same dev");
  repeated(host.nics, "another network port has the same dev");
}

}  // namespace

std::vector<ImportNote> check_host(const Host& host, std::span<const std::int32_t> pci_lines) {
  Checker checker{host, pci_lines};
  checker.check_cpus();
  checker.check_bus_ids();
  checker.check_numbers();
  checker.check_bridges();
  checker.check_ports();
  checker.check_nvlinks();
  checker.check_nvlink_counts();
  return checker.notes.notes();
}

}  // namespace orrery
