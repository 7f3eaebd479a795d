// Host values from the dumps of machines in NCCL's log.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/link_rates.hpp"

namespace orrery {
namespace {

constexpr std::string_view kDumpCommand =
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints it; NCCL_TOPO_DUMP_FILE=topo.xml writes all of it";
// What NCCL writes for a link target that it can't see.
constexpr std::string_view kHiddenTarget = "fffffff:ffff:ff";

// Half of the last printed digit, 0.1 GB/s.
bool prints_as(double bytes_per_s, double gb_per_s) {
  return std::abs(bytes_per_s / 1e9 - gb_per_s) < 0.0501;
}

// "3/-1/-1": architecture, vendor and model by NCCL's numbers (graph/topo.h).
void read_cpu_kind(std::string_view detail, HostCpu& cpu) {
  log_text::Cursor cursor(detail);
  const std::int32_t architecture = cursor.integer().value_or(-1);
  const std::int32_t vendor = cursor.skip("/") ? cursor.integer().value_or(-1) : -1;
  if (architecture == 1) cpu.architecture = "x86_64";
  if (architecture == 2) cpu.architecture = "ppc64";
  if (architecture == 3) cpu.architecture = "arm64";
  if (architecture == 1 && vendor == 1) cpu.vendor = "GenuineIntel";
  if (architecture == 1 && vendor == 2) cpu.vendor = "AuthenticAMD";
}

// The rate of a port that the dump rounds to a tenth stands behind it in full:
// "(asic/port/12.500000)" or "(rail/asic/port/12.500000)".
struct NetDetail {
  std::string guid;
  std::int32_t rail = -1, port = 1;
  double gb_per_s = 0;
};

NetDetail read_net_detail(std::string_view detail) {
  std::vector<std::string_view> fields;
  log_text::Cursor cursor(detail);
  do {
    fields.push_back(cursor.until("/"));
  } while (cursor.skip("/"));
  NetDetail net;
  if (fields.size() < 3) return net;
  const std::size_t last = fields.size() - 1;
  net.gb_per_s = log_text::whole_number(fields[last]).value_or(0);
  net.port = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(log_text::whole_integer(fields[last - 1]).value_or(1), 0, 255));
  net.guid = "0x" + std::string(fields[last - 2]);
  if (fields.size() == 4)
    net.rail = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(log_text::whole_integer(fields[0]).value_or(-1), -1, 1 << 20));
  return net;
}

// One host of one dump.
class HostBuilder {
 public:
  HostBuilder(const LogSystem& system, std::int32_t number, const NcclLog& log,
              std::vector<ImportNote>& notes)
      : system_(system),
        number_(number),
        log_(log),
        notes_(notes),
        pci_(system.nodes.size(), -1),
        cpu_(system.nodes.size(), -1) {}

  Host build(const std::string& name) {
    host_.name = name;
    host_.source = log_.file;
    for (std::size_t i = 0; i < system_.nodes.size(); ++i) {
      if (owner(system_.nodes[i]) == number_) add(i);
    }
    std::ranges::stable_sort(host_.gpus, {}, &HostGpu::rank);
    for (std::size_t i = 0; i < host_.gpus.size(); ++i) host_.gpus[i].index = static_cast<std::int32_t>(i);
    // Their links tell the kind; a GPU whose links are down is of the kind of the others.
    std::int32_t capability = 0;
    for (const HostGpu& gpu : host_.gpus) capability = std::max(capability, gpu.compute_capability);
    for (HostGpu& gpu : host_.gpus)
      if (gpu.compute_capability == 0) gpu.compute_capability = capability;
    std::ranges::stable_sort(host_.nics, {}, &HostNic::index);
    name_nics();
    if (has_rates_) {
      notes_.push_back(
          {ImportNote::Kind::kAssumed, system_.line,
           "PCIe generations and widths follow from the printed rates, of which only the product is known; "
           "a rate that fits none is taken as the nearest",
           std::string(kDumpCommand)});
    }
    return std::move(host_);
  }

 private:
  // A link is its GPU's: hosts that share NVLink all name the first one's switch.
  std::int32_t owner(const LogSystemNode& node) const {
    const bool of_parent = node.reference && node.parent >= 0;
    return of_parent ? system_.nodes[static_cast<std::size_t>(node.parent)].id.system : node.id.system;
  }

  void add(std::size_t i) {
    const LogSystemNode& node = system_.nodes[i];
    if (node.id.kind == "CPU" && !node.reference) return add_cpu(i);
    if (node.reference) return add_link(i);
    if (node.parent < 0) return;
    const auto parent = static_cast<std::size_t>(node.parent);
    cpu_[i] = cpu_[parent];
    pci_[i] = pci_[parent];
    if (cpu_[i] < 0) return;
    if (node.id.kind == "PCI" || node.id.kind == "DEV") add_pci(i, 0x060400);
    if (node.id.kind == "GPU") add_gpu(i);
    if (node.id.kind == "NIC" && !prints_as(kLocalBytesPerS, node.gb_per_s)) add_pci(i, 0x020000);
    if (node.id.kind == "NET") add_nic(i);
  }

  void add_cpu(std::size_t i) {
    const LogSystemNode& node = system_.nodes[i];
    HostCpu cpu;
    cpu.numa = node.id.id > 0xffff ? -1 : static_cast<std::int32_t>(node.id.id);
    read_cpu_kind(node.detail, cpu);
    cpu_[i] = static_cast<std::int32_t>(host_.cpus.size());
    host_.cpus.push_back(std::move(cpu));
  }

  void add_pci(std::size_t i, std::uint32_t device_class) {
    const LogSystemNode& node = system_.nodes[i];
    PciDevice device;
    device.bus_id = bus_id_of_log(fmt::format("{:x}", node.id.id));
    device.cpu = cpu_[i];
    device.parent = pci_[i];
    device.device_class = device_class;
    if (device_class == 0x060400 && node.detail.size() == 16) set_model(node.detail, device);
    set_rate(node.gb_per_s, device);
    pci_[i] = static_cast<std::int32_t>(host_.pci.size());
    host_.pci.push_back(std::move(device));
  }

  static void set_model(std::string_view detail, PciDevice& device) {
    const std::array<std::uint32_t*, 4> fields{&device.vendor, &device.device, &device.subsystem_vendor,
                                               &device.subsystem_device};
    for (std::size_t i = 0; i < fields.size(); ++i) {
      log_text::Cursor cursor(detail.substr(4 * i, 4));
      *fields[i] = static_cast<std::uint32_t>(cursor.hex().value_or(0));
    }
  }

  // Sixteen lanes where that fits, else the widest that does.
  void set_rate(double gb_per_s, PciDevice& device) {
    has_rates_ = true;
    double nearest = 1e9;
    for (const std::int32_t lanes : {16, 8, 4, 2, 1}) {
      for (const double rate : {64.0, 32.0, 16.0, 8.0, 5.0, 2.5}) {
        const double error = std::abs(pcie_bytes_per_s(rate, lanes) / 1e9 - gb_per_s);
        if (error >= nearest - 1e-9) continue;
        nearest = error;
        device.gigatransfers_per_s = rate;
        device.lanes = lanes;
      }
    }
  }

  void add_gpu(std::size_t i) {
    const LogSystemNode& node = system_.nodes[i];
    const auto parent = static_cast<std::size_t>(node.parent);
    if (system_.nodes[parent].id.kind == "DEV") {
      host_.pci[static_cast<std::size_t>(pci_[parent])].device_class = 0x030200;
    } else {
      add_pci(i, 0x030200);
    }
    HostGpu gpu;
    gpu.pci = pci_[i];
    gpu.rank = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(log_text::whole_integer(node.detail).value_or(-1), -1, 1 << 20));
    host_.gpus.push_back(std::move(gpu));
  }

  HostGpu* gpu_above(std::size_t i) {
    const std::int32_t pci = pci_[static_cast<std::size_t>(std::max(system_.nodes[i].parent, 0))];
    const auto found = std::ranges::find(host_.gpus, pci, &HostGpu::pci);
    return pci < 0 || found == host_.gpus.end() ? nullptr : &*found;
  }

  void add_link(std::size_t i) {
    const LogSystemNode& node = system_.nodes[i];
    HostGpu* const gpu = gpu_above(i);
    if (gpu == nullptr) return;
    if (node.link == "C2C" && node.id.kind == "CPU") gpu->c2c_bytes_per_s = node.gb_per_s * 1e9;
    if (node.link != "NVL" && node.link != "XGMI") return;
    HostNvLink link;
    const bool to_switch = node.id.kind == "NVS";
    link.target = to_switch || node.id.kind == "CPU" ? std::string(kHiddenTarget)
                                                     : bus_id_of_log(fmt::format("{:x}", node.id.id));
    link.target_class = to_switch ? kNvSwitchClass : node.id.kind == "CPU" ? kCpuBridgeClass : 0x030200;
    link.count = count_links(node, *gpu);
    gpu->nvlinks.push_back(std::move(link));
  }

  // The newest kind of GPU whose rate per link divides what is printed: Blackwell, Hopper, Volta or Ampere,
  // Pascal, Ada.
  std::int32_t count_links(const LogSystemNode& node, HostGpu& gpu) {
    if (node.gb_per_s <= 0) return 0;
    for (const std::int32_t capability : {100, 90, 80, 60, 89}) {
      const double rate = nvlink_bytes_per_s(capability);
      const double count = std::round(node.gb_per_s * 1e9 / rate);
      if (count < 1 || count > 64 || !prints_as(count * rate, node.gb_per_s)) continue;
      gpu.compute_capability = std::max(gpu.compute_capability, capability);
      note_links(node, capability, static_cast<std::int32_t>(count));
      return static_cast<std::int32_t>(count);
    }
    const double count = std::round(node.gb_per_s * 1e9 / nvlink_bytes_per_s(0));
    notes_.push_back({ImportNote::Kind::kAssumed,
                      node.line,
                      fmt::format("NVL[{:.1f}] is no multiple of a known NVLink rate: taken as {:.0f} links",
                                  node.gb_per_s, count),
                      {}});
    return static_cast<std::int32_t>(std::clamp(count, 1.0, 64.0));
  }

  void note_links(const LogSystemNode& node, std::int32_t capability, std::int32_t count) {
    if (!link_rates_.insert(node.gb_per_s).second) return;
    notes_.push_back(
        {ImportNote::Kind::kAssumed, node.line,
         fmt::format(
             "NVL[{:.1f}] is taken as {} NVLinks of {:.1f} GB/s, so the GPU as compute capability {}.{}",
             node.gb_per_s, count, nvlink_bytes_per_s(capability) / 1e9, capability / 10, capability % 10),
         "nvidia-smi --query-gpu=name,compute_cap --format=csv"});
  }

  void add_nic(std::size_t i) {
    const LogSystemNode& node = system_.nodes[i];
    const NetDetail detail = read_net_detail(node.detail);
    HostNic nic;
    const bool under_nic = system_.nodes[static_cast<std::size_t>(node.parent)].id.kind == "NIC";
    nic.pci =
        under_nic && prints_as(kLocalBytesPerS, system_.nodes[static_cast<std::size_t>(node.parent)].gb_per_s)
            ? -1
            : pci_[i];
    nic.cpu = cpu_[i];
    nic.index = static_cast<std::int32_t>(std::min<std::uint64_t>(node.id.id, 1 << 20));
    nic.port = detail.port;
    nic.rail = detail.rail;
    nic.guid = detail.guid;
    nic.bytes_per_s = (detail.gb_per_s > 0 ? detail.gb_per_s : node.gb_per_s) * 1e9;
    host_.nics.push_back(std::move(nic));
  }

  void name_nics() {
    for (HostNic& nic : host_.nics) {
      for (const LogNicList& list : log_.nic_lists) {
        if (list.host != system_.host) continue;
        const auto named = std::ranges::find(list.nics, nic.index, &LogNic::index);
        if (named == list.nics.end()) continue;
        nic.name = named->name;
        nic.in_network_reduction = named->sharp;
      }
      for (const LogGpuDirect& said : log_.gpu_direct) {
        if (said.host == system_.host && said.nic == nic.index && !said.enabled) nic.gpu_direct_rdma = false;
      }
      if (nic.name.empty()) nic.name = fmt::format("net{}", nic.index);
    }
  }

  const LogSystem& system_;
  std::int32_t number_;
  const NcclLog& log_;
  std::vector<ImportNote>& notes_;
  std::vector<std::int32_t> pci_, cpu_;  // Of each node: the nearest at or above it.
  std::set<double> link_rates_;          // Those that a note speaks of.
  Host host_;
  bool has_rates_ = false;
};

void note_no_dump(const NcclLog& log, HostImport& import) {
  const bool rings = std::ranges::any_of(log.comms, [](const LogComm& comm) { return !comm.rings.empty(); });
  import.notes.push_back(
      {ImportNote::Kind::kMissing, 0,
       fmt::format("the log has {} but no dump of a machine ('=== System')", rings ? "rings" : "lines"),
       std::string(kDumpCommand)});
}

}  // namespace

HostImport hosts_from_log(const NcclLog& log) {
  HostImport import;
  std::set<std::string> done;
  for (const LogComm& comm : log.comms) {
    for (const LogSystem& system : comm.systems) {
      std::set<std::int32_t> numbers;
      for (const LogSystemNode& node : system.nodes) numbers.insert(node.id.system);
      for (const std::int32_t number : numbers) {
        // Hosts that share NVLink stand in one dump by number only.
        const std::string name =
            numbers.size() == 1 ? system.host : fmt::format("{}#{}", system.host, number);
        if (!done.insert(name).second) continue;
        import.hosts.push_back(HostBuilder(system, number, log, import.notes).build(name));
      }
    }
  }
  if (import.hosts.empty()) note_no_dump(log, import);
  return import;
}

}  // namespace orrery
