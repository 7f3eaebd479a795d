#include "topology/import/smi_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "topology/import/smi_nvlink.hpp"
#include "topology/import/smi_tree.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

constexpr std::uint32_t kBridgeClass = 0x060400, kGpuClass = 0x030200, kNicClass = 0x020000;
// Data GPUs and cards for training have sixteen lanes (their datasheets); the matrix has no widths.
constexpr std::int32_t kLanes = 16;
// NVLink-C2C between a Grace CPU and its GPU: 900 GB/s both ways together (NVIDIA, Grace Hopper white paper,
// 2023).
constexpr double kC2cBytesPerS = 450e9;

// NVLinks per GPU and PCIe generation by compute capability: the white papers on Pascal (4 links), Volta (6),
// Ampere (12), Hopper (18), and datasheets of GeForce and RTX boards with a bridge (4) and of Blackwell (18).
struct Generation {
  std::int32_t compute_capability, nvlinks;
  double gigatransfers_per_s;
};
constexpr std::array<Generation, 11> kGenerations = {{{60, 4, 8},
                                                      {70, 6, 8},
                                                      {75, 2, 8},
                                                      {80, 12, 16},
                                                      {86, 4, 16},
                                                      {89, 0, 16},
                                                      {90, 18, 32},
                                                      {100, 18, 32},
                                                      {103, 18, 64},
                                                      {110, 18, 64},
                                                      {120, 0, 32}}};

const Generation* generation_of(std::int32_t compute_capability) {
  for (const Generation& generation : kGenerations) {
    if (generation.compute_capability == compute_capability) return &generation;
  }
  return nullptr;
}

// Words of product names, the longer ones of a kind first.
struct Product {
  std::string_view word;
  std::int32_t compute_capability;
};
constexpr std::array<Product, 22> kProducts = {
    {{"GB300", 103}, {"B300", 103}, {"GB200", 100}, {"B200", 100}, {"B100", 100}, {"GH200", 90},
     {"H100", 90},   {"H200", 90},  {"H800", 90},   {"H20", 90},   {"A100", 80},  {"A800", 80},
     {"A30", 80},    {"A40", 86},   {"A10", 86},    {"A6000", 86}, {"L40", 89},   {"L4", 89},
     {"4090", 89},   {"V100", 70},  {"P100", 60},   {"5090", 120}}};

std::int32_t capability_of_model(std::string_view model) {
  for (const Product& product : kProducts) {
    if (model.find(product.word) != std::string_view::npos) return product.compute_capability;
  }
  return 0;
}

// The matrix and the host that is made of it.
struct Builder {
  const SmiMatrix& matrix;
  const SmiAssumptions& assumptions;
  SmiTree tree;
  Host host;
  std::vector<ImportNote> notes;
  std::vector<std::int32_t> pci;  // By device of the matrix.
  double gigatransfers_per_s = 0;
  std::int32_t nvlinks_per_gpu = 0;  // 0: not known.

  void note(Kind kind, std::string text, std::string remedy = "") {
    notes.push_back({kind, 0, std::move(text), std::move(remedy)});
  }
};

// Links of all cells of one GPU together: more than it has where every cell counts the links to a switch.
std::int32_t link_sum(const SmiMatrix& matrix, std::size_t gpu) {
  std::int32_t sum = 0;
  for (std::size_t b = 0; b < matrix.gpu_count(); ++b) sum += matrix.at(gpu, b).nvlinks;
  return sum;
}

std::int32_t highest(const SmiMatrix& matrix, std::int32_t (*of)(const SmiMatrix&, std::size_t)) {
  std::int32_t most = 0;
  for (std::size_t gpu = 0; gpu < matrix.gpu_count(); ++gpu) most = std::max(most, of(matrix, gpu));
  return most;
}

// What numbers of NVLinks tell of the GPU: 18 to a switch since Hopper, 12 on A100, 6 on V100, 4 on P100.
std::int32_t capability_of_links(const SmiMatrix& matrix) {
  const std::int32_t most = highest(matrix, most_nvlinks), sum = highest(matrix, link_sum);
  if (most > 12) return 90;
  if (most > 6 || (sum > 6 && sum <= 12 && most > 2)) return 80;
  if (matrix.old_words && sum == 4) return 60;
  if (most == 6 && sum == 18) return 90;  // HGX H100 with four GPUs: six links to each peer.
  if (most == 6 || sum == 6) return 70;
  return 0;
}

constexpr const char* kGpuRemedy =
    "nvidia-smi --query-gpu=name,compute_cap,pcie.link.gen.max,pcie.link.width.max --format=csv";

void settle_generation(Builder& b, std::string& model, std::int32_t& capability) {
  model = b.assumptions.gpu_model.empty() ? b.matrix.gpu_model : b.assumptions.gpu_model;
  capability = b.assumptions.compute_capability;
  if (capability == 0 && !model.empty()) capability = capability_of_model(model);
  if (capability == 0) {
    const bool grace = std::any_of(b.matrix.devices.begin(), b.matrix.devices.end(),
                                   [](const SmiDevice& device) { return device.gpu_numa_id.has_value(); });
    capability = capability_of_links(b.matrix);
    // One Grace CPU with one GPU is GH200; with more it is GB200 or later.
    if (grace) capability = b.matrix.gpu_count() > 1 && capability == 90 ? 100 : 90;
    if (capability > 0) {
      b.note(
          Kind::kAssumed,
          fmt::format("GPUs taken as compute capability {}.{}, from {}", capability / 10, capability % 10,
                      grace ? "their NUMA ids, which a Grace CPU gives them" : "the number of their NVLinks"),
          kGpuRemedy);
    } else {
      b.note(Kind::kMissing, "nothing tells the GPU model, and with it the rate of its links", kGpuRemedy);
    }
  }
  const Generation* generation = generation_of(capability);
  b.nvlinks_per_gpu = generation != nullptr ? generation->nvlinks : 0;
  b.gigatransfers_per_s = b.assumptions.gigatransfers_per_s;
  if (b.gigatransfers_per_s == 0 && generation != nullptr) {
    b.gigatransfers_per_s = generation->gigatransfers_per_s;
    b.note(Kind::kAssumed,
           fmt::format("PCIe taken as {} GT/s and {} lanes everywhere, the fastest that such GPUs have",
                       b.gigatransfers_per_s, kLanes),
           kGpuRemedy);
  } else if (b.gigatransfers_per_s == 0) {
    b.note(Kind::kMissing, "the PCIe generation is not known", kGpuRemedy);
  }
}

// The first number of a NUMA list: a CPU's own node stands before those of memory ("0,3-9").
std::int32_t first_number(const std::string& list) {
  std::int32_t number = -1;
  std::from_chars(list.data(), list.data() + list.size(), number);
  return number;
}

void add_cpus(Builder& b) {
  std::set<std::int32_t> used;
  const auto& devices = b.matrix.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto group = static_cast<std::size_t>(b.tree.cpu[i]);
    if (group >= b.host.cpus.size()) b.host.cpus.resize(group + 1);
    HostCpu& cpu = b.host.cpus[group];
    cpu.architecture = b.assumptions.cpu_architecture;
    cpu.vendor = b.assumptions.cpu_vendor;
    if (cpu.affinity.empty()) cpu.affinity = devices[i].cpu_affinity;
    if (cpu.numa < 0 && !devices[i].numa_affinity.empty()) cpu.numa = first_number(devices[i].numa_affinity);
    used.insert(cpu.numa);
  }
  std::vector<std::string> assumed;
  for (std::size_t group = 0; group < b.host.cpus.size(); ++group) {
    HostCpu& cpu = b.host.cpus[group];
    if (cpu.numa >= 0) continue;
    cpu.numa = 0;
    while (!used.insert(cpu.numa).second) ++cpu.numa;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (static_cast<std::size_t>(b.tree.cpu[i]) == group) assumed.push_back(devices[i].label);
    }
  }
  if (!assumed.empty()) {
    b.note(Kind::kAssumed,
           fmt::format("no NUMA node is given for {}: a free number is taken", fmt::join(assumed, ", ")),
           "cat /sys/class/infiniband/*/device/numa_node, and nvidia-smi topo -m");
  }
  if (b.assumptions.cpu_vendor.empty() && b.host.cpus.size() > 1) {
    b.note(Kind::kMissing, "the matrix doesn't name the processor, which decides the rate between sockets",
           "lscpu");
  }
}

std::int32_t add_pci(Builder& b, std::size_t device, std::int32_t parent, std::uint32_t device_class,
                     std::int32_t bus) {
  PciDevice pci;
  pci.bus_id = fmt::format("{:04x}:{:02x}:00.0", b.tree.root[device], bus);
  pci.cpu = b.tree.cpu[device];
  pci.parent = parent;
  pci.device_class = device_class;
  pci.gigatransfers_per_s = b.gigatransfers_per_s;
  pci.lanes = b.gigatransfers_per_s > 0 ? kLanes : 0;
  b.host.pci.push_back(pci);
  return static_cast<std::int32_t>(b.host.pci.size()) - 1;
}

// A switch where devices share it, one more above where switches meet.
void add_devices(Builder& b) {
  std::map<std::int32_t, std::int32_t> near_count, upper_switch, near_switch, next_bus;
  std::map<std::int32_t, std::set<std::int32_t>> nears;
  const auto& devices = b.matrix.devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    ++near_count[b.tree.near[i]];
    nears[b.tree.upper[i]].insert(b.tree.near[i]);
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::int32_t near = b.tree.near[i], upper = b.tree.upper[i];
    std::int32_t& bus = next_bus[b.tree.root[i]];
    std::int32_t parent = -1;
    const bool meets = nears[upper].size() > 1;
    if (meets && upper_switch.count(upper) == 0) upper_switch[upper] = add_pci(b, i, -1, kBridgeClass, ++bus);
    if (meets) parent = upper_switch[upper];
    if (meets || near_count[near] > 1) {
      if (near_switch.count(near) == 0) near_switch[near] = add_pci(b, i, parent, kBridgeClass, ++bus);
      parent = near_switch[near];
    }
    b.pci.push_back(add_pci(b, i, parent, devices[i].gpu ? kGpuClass : kNicClass, ++bus));
  }
}

bool through_switch(Builder& b) {
  if (b.assumptions.nvswitch) return *b.assumptions.nvswitch;
  const std::int32_t sum = highest(b.matrix, link_sum), most = highest(b.matrix, most_nvlinks);
  if (sum == 0) return false;
  constexpr std::int32_t kMostLinks = 18;
  const std::int32_t limit = b.nvlinks_per_gpu > 0 ? b.nvlinks_per_gpu : kMostLinks;
  // Two GPUs of a machine with switches look like a pair with a bridge; bridges have at most twelve links.
  const bool pair = b.matrix.gpu_count() == 2;
  const bool has_switch = sum > limit || (pair && most > 12);
  b.note(
      Kind::kAssumed,
      has_switch
          ? fmt::format(
                "NVLinks taken to end at NVSwitches: cells of one GPU sum up to {}, and it has {} at most",
                sum, limit)
          : fmt::format("NVLinks taken as cables between GPUs: cells of one GPU sum up to {} of {} at most",
                        sum, limit),
      "nvidia-smi nvlink --remotelinkinfo");
  return has_switch;
}

void add_gpus(Builder& b, const std::string& model, std::int32_t capability) {
  const bool switches = through_switch(b);
  for (std::size_t i = 0; i < b.matrix.gpu_count(); ++i) {
    HostGpu gpu;
    gpu.pci = b.pci[i];
    gpu.index = b.matrix.devices[i].index;
    gpu.compute_capability = capability;
    gpu.model = model;
    if (b.matrix.devices[i].gpu_numa_id) gpu.c2c_bytes_per_s = kC2cBytesPerS;
    const std::int32_t most = most_nvlinks(b.matrix, i);
    if (switches && most > 0) gpu.nvlinks.push_back({kSmiSwitchBusId, most, kNvSwitchClass});
    for (std::size_t peer = 0; !switches && peer < b.matrix.gpu_count(); ++peer) {
      const std::int32_t count = b.matrix.at(i, peer).nvlinks;
      if (count > 0)
        gpu.nvlinks.push_back({b.host.pci[static_cast<std::size_t>(b.pci[peer])].bus_id, count, kGpuClass});
    }
    b.host.gpus.push_back(std::move(gpu));
  }
  const auto coherent = [](const HostGpu& gpu) { return gpu.c2c_bytes_per_s > 0; };
  if (std::any_of(b.host.gpus.begin(), b.host.gpus.end(), coherent)) {
    b.note(Kind::kAssumed,
           "GPUs with a NUMA id of their own hang on a Grace CPU: 450 GB/s each way are taken",
           "nvidia-smi c2c -s");
  }
}

void add_nics(Builder& b) {
  for (std::size_t i = b.matrix.gpu_count(); i < b.matrix.devices.size(); ++i) {
    const SmiDevice& device = b.matrix.devices[i];
    HostNic nic;
    nic.pci = b.pci[i];
    nic.cpu = b.tree.cpu[i];
    nic.name = device.name.empty() ? device.label : device.name;
    nic.index = device.index;
    nic.bytes_per_s = b.assumptions.nic_bytes_per_s;
    b.host.nics.push_back(std::move(nic));
  }
  if (b.host.nics.empty()) {
    b.note(Kind::kMissing,
           "the matrix has no network cards: they have no RDMA driver, or the container hides them",
           "ibstat, or ls /sys/class/infiniband on the host");
  } else if (b.assumptions.nic_bytes_per_s == 0) {
    b.note(Kind::kMissing, "the rate of the network cards is not known",
           "ibstat, or cat /sys/class/infiniband/*/ports/1/rate");
  }
}

}  // namespace

HostImport host_from_smi(const SmiMatrix& matrix, const SmiAssumptions& assumptions) {
  Builder b{.matrix = matrix,
            .assumptions = assumptions,
            .tree = smi_tree(matrix),
            .host = {},
            .notes = {},
            .pci = {}};
  b.host.source = matrix.file;
  b.notes = tree_contradictions(matrix, b.tree);
  std::string model;
  std::int32_t capability = 0;
  settle_generation(b, model, capability);
  b.note(Kind::kAssumed, "bus ids are made up; the matrix has none",
         "nvidia-smi --query-gpu=index,pci.bus_id --format=csv");
  add_cpus(b);
  add_devices(b);
  add_gpus(b, model, capability);
  add_nics(b);
  HostImport import;
  import.hosts.push_back(std::move(b.host));
  import.notes = std::move(b.notes);
  return import;
}

}  // namespace orrery
