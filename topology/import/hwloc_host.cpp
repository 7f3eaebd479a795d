#include "topology/import/hwloc_host.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <hwloc/distances.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "topology/import/host_checks.hpp"
#include "topology/import/host_numbers.hpp"
#include "topology/import/hwloc_trial.hpp"
#include "topology/import/note_tally.hpp"
#include "topology/import/pci_address.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

constexpr std::uint32_t kNvidia = 0x10de;

std::string info(hwloc_obj_t object, const char* name) {
  const char* value = object != nullptr ? hwloc_obj_get_info_by_name(object, name) : nullptr;
  return value != nullptr ? value : "";
}

std::int32_t number(const std::string& text) {
  std::int32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// In groups of 32 bits, most significant first.
std::string mask(hwloc_const_cpuset_t set) {
  const int last = set != nullptr ? hwloc_bitmap_last(set) : -1;
  std::string text;
  for (int group = last / 32; last >= 0 && group >= 0; --group) {
    std::uint32_t bits = 0;
    for (int bit = 0; bit < 32; ++bit)
      if (hwloc_bitmap_isset(set, static_cast<unsigned>(32 * group + bit)) != 0)
        bits |= std::uint32_t{1} << bit;
    text += fmt::format("{}{:08x}", text.empty() ? "" : ",", bits);
  }
  return text;
}

bool is_pci_bridge(hwloc_obj_t object) {
  return object != nullptr && object->type == HWLOC_OBJ_BRIDGE &&
         object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

// hwloc has the rate of all lanes together. The widest link of a PCIe generation that has it is taken; NCCL
// counts the others alike.
void set_link(PciDevice& device, float gigabytes_per_s) {
  constexpr struct {
    double gigatransfers, lane;  // GB/s as hwloc computes them: 8b/10b, then 128b/130b, then none.
  } kGenerations[] = {{2.5, 0.25}, {5, 0.5}, {8, 0.985}, {16, 1.969}, {32, 3.938}, {64, 7.877}};
  for (const std::int32_t lanes : {16, 8, 4, 2, 1})
    for (const auto& generation : kGenerations)
      if (std::abs(gigabytes_per_s / (generation.lane * lanes) - 1) < 0.02) {
        device.gigatransfers_per_s = generation.gigatransfers;
        device.lanes = lanes;
        return;
      }
}

struct Converter {
  hwloc_topology_t topology;
  Host host = {};
  NoteTally notes = {};
  std::map<hwloc_obj_t, std::int32_t> indices = {};  // Of PCI devices in the Host.
  bool by_verbs = false;  // Some card has an InfiniBand device; then NCCL uses those only.

  void add_cpus();
  std::int32_t cpu_of(hwloc_obj_t object);
  std::int32_t add_pci(hwloc_obj_t object);
  void add_device(hwloc_obj_t object);
  void add_nic(hwloc_obj_t device, hwloc_obj_t port);
  void add_nvlinks();
  std::int32_t gpu_of(hwloc_obj_t os_device) const;
};

void Converter::add_cpus() {
  const std::string written = info(hwloc_get_root_obj(topology), "Architecture");
  const std::string architecture = written == "aarch64"           ? "arm64"
                                   : written.starts_with("ppc64") ? "ppc64"
                                                                  : written;
  const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int n = 0; n < nodes; ++n) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(n));
    hwloc_obj_t package = nullptr;
    for (hwloc_obj_t at = node->parent; at != nullptr && package == nullptr; at = at->parent)
      if (at->type == HWLOC_OBJ_PACKAGE) package = at;
    HostCpu cpu;
    cpu.numa = static_cast<std::int32_t>(node->os_index);
    cpu.affinity = mask(node->cpuset);
    cpu.architecture = architecture;
    cpu.vendor = info(package, "CPUVendor");
    cpu.family = number(info(package, "CPUFamilyNumber"));
    if (cpu.family > 15) cpu.family = 15 + 16 * (cpu.family - 15);  // As NCCL sums it.
    cpu.model = number(info(package, "CPUModelNumber"));
    host.cpus.push_back(std::move(cpu));
  }
}

// The NUMA node that a PCI tree is near to; one of number −1 where that isn't one.
std::int32_t Converter::cpu_of(hwloc_obj_t object) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, object);
  const bool one = near != nullptr && near->nodeset != nullptr && hwloc_bitmap_weight(near->nodeset) == 1;
  const std::int32_t wanted = one                     ? hwloc_bitmap_first(near->nodeset)
                              : host.cpus.size() == 1 ? host.cpus[0].numa
                                                      : -1;
  auto found = std::ranges::find(host.cpus, wanted, &HostCpu::numa);
  if (found == host.cpus.end()) {
    HostCpu unknown;
    if (!host.cpus.empty()) unknown = host.cpus[0];
    unknown.numa = -1;
    unknown.affinity.clear();
    found = host.cpus.insert(found, std::move(unknown));
  }
  return static_cast<std::int32_t>(found - host.cpus.begin());
}

// A device's bridge is the lower port of a switch, or a root port; the bridge above it is the switch's upper
// port, whose link all below it share, or there is none.
std::int32_t Converter::add_pci(hwloc_obj_t object) {
  if (const auto known = indices.find(object); known != indices.end()) return known->second;
  std::int32_t parent = -1;
  if (is_pci_bridge(object->parent) && is_pci_bridge(object->parent->parent))
    parent = add_pci(object->parent->parent);
  const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci =
      object->type == HWLOC_OBJ_BRIDGE ? object->attr->bridge.upstream.pci : object->attr->pcidev;
  PciDevice device;
  device.bus_id = to_string(PciAddress{pci.domain, pci.bus, pci.dev, pci.func});
  device.cpu = parent >= 0 ? host.pci[static_cast<std::size_t>(parent)].cpu : cpu_of(object);
  device.parent = parent;
  device.device_class = std::uint32_t{pci.class_id} << 8;
  device.vendor = pci.vendor_id;
  device.device = pci.device_id;
  device.subsystem_vendor = pci.subvendor_id;
  device.subsystem_device = pci.subdevice_id;
  set_link(device, pci.linkspeed);
  if (device.gigatransfers_per_s == 0)
    notes.add(Kind::kAssumed, 0, device.bus_id, "its link speed is not known; NCCL counts 8 GT/s, 16 lanes");
  const auto index = static_cast<std::int32_t>(host.pci.size());
  host.pci.push_back(std::move(device));
  indices[object] = index;
  return index;
}

void Converter::add_nic(hwloc_obj_t device, hwloc_obj_t port) {
  HostNic nic;
  nic.pci = add_pci(device);
  nic.cpu = host.pci[static_cast<std::size_t>(nic.pci)].cpu;
  nic.index = -1;
  nic.name = port->name != nullptr ? port->name : "";
  std::string guid = info(port, "SysImageGUID");
  std::erase(guid, ':');
  if (!guid.empty()) nic.guid = "0x" + guid;
  host.nics.push_back(std::move(nic));
}

// GPUs and network cards; the rest isn't used by training.
void Converter::add_device(hwloc_obj_t object) {
  const std::uint32_t base = object->attr->pcidev.class_id >> 8;
  hwloc_obj_t gpu = nullptr;
  std::int32_t index = -1;
  for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE) continue;
    const std::string name = child->name != nullptr ? child->name : "";
    if (child->attr->osdev.type == (by_verbs ? HWLOC_OBJ_OSDEV_OPENFABRICS : HWLOC_OBJ_OSDEV_NETWORK))
      add_nic(object, child);
    if (name.starts_with("nvml")) {
      gpu = child;
      index = number(name.substr(4));
    } else if (name.starts_with("cuda") && gpu == nullptr) {
      gpu = child;
    }
  }
  const bool accelerator = object->attr->pcidev.class_id == 0x0302 || base == 0x12;
  const bool display = base == 0x03 && object->attr->pcidev.vendor_id == kNvidia;
  if (gpu == nullptr && !accelerator && !display) return;
  HostGpu added;
  added.pci = add_pci(object);
  added.index = index;
  added.model = info(gpu, "GPUModel");
  host.gpus.push_back(std::move(added));
}

std::int32_t Converter::gpu_of(hwloc_obj_t os_device) const {
  const auto pci = indices.find(os_device->parent);
  if (os_device->type != HWLOC_OBJ_OS_DEVICE || pci == indices.end()) return -1;
  const auto gpu = std::ranges::find(host.gpus, pci->second, &HostGpu::pci);
  return gpu == host.gpus.end() ? -1 : static_cast<std::int32_t>(gpu - host.gpus.begin());
}

// A matrix of MB/s between NVML's devices, switches among them.
void Converter::add_nvlinks() {
  constexpr double kPerLink = 25000;  // As hwloc counts each link of NVLink 2 and later.
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &matrix, 0) != 0 || count == 0) return;
  for (unsigned from = 0; from < matrix->nbobjs; ++from) {
    const std::int32_t gpu = gpu_of(matrix->objs[from]);
    if (gpu < 0) continue;
    for (unsigned to = 0; to < matrix->nbobjs; ++to) {
      const double rate = static_cast<double>(matrix->values[from * matrix->nbobjs + to]);
      const std::int32_t peer = gpu_of(matrix->objs[to]);
      if (to == from || !(rate >= kPerLink) || rate > 1e9) continue;
      HostNvLink link{"fffffff:ff:ff.0", static_cast<std::int32_t>(std::lround(rate / kPerLink)),
                      kNvSwitchClass};
      if (peer >= 0) {
        link.target =
            host.pci[static_cast<std::size_t>(host.gpus[static_cast<std::size_t>(peer)].pci)].bus_id;
        link.target_class = 0x030200;
      }
      host.gpus[static_cast<std::size_t>(gpu)].nvlinks.push_back(std::move(link));
      notes.add(Kind::kAssumed, 0, "", "NVLinks are counted from their bandwidths, 25 GB/s each");
    }
  }
  hwloc_distances_release(topology, matrix);
}

// What such files have for all devices of a kind or for none.
void note_gaps(hwloc_topology_t topology, const Host& host, bool by_verbs, NoteTally& notes) {
  const bool models = std::ranges::any_of(host.gpus, [](const HostGpu& gpu) { return !gpu.model.empty(); });
  for (const HostGpu& gpu : host.gpus)
    if (models && gpu.model.empty())
      notes.add(Kind::kAssumed, 0, host.pci[static_cast<std::size_t>(gpu.pci)].bus_id,
                "its model isn't said, that of others is");
  for (const HostNic& nic : host.nics)
    if (by_verbs && nic.guid.empty()) notes.add(Kind::kAssumed, 0, nic.name, "its GUID isn't said");
  for (const HostCpu& cpu : host.cpus)
    if (cpu.vendor.empty() + (cpu.family == 0) + (cpu.model == 0) == 1)
      notes.add(Kind::kAssumed, 0, fmt::format("NUMA node {}", cpu.numa),
                "its processor's maker, family or model isn't said, the rest is");
  const int packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
  if (packages > hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE))
    notes.add(Kind::kSuspect, 0, "", "there are more processors than NUMA nodes; a line of one may be lost");
}

HostImport convert(hwloc_topology_t topology, std::string_view source) {
  Converter converter{topology};
  converter.add_cpus();
  for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(topology, os)) != nullptr;)
    if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) converter.by_verbs = true;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;)
    converter.add_device(device);
  Host& host = converter.host;
  host.source = std::string(source);
  host.name = info(hwloc_get_root_obj(topology), "HostName");
  converter.add_nvlinks();
  note_gaps(topology, host, converter.by_verbs, converter.notes);
  if (number_gpus(host))
    converter.notes.add(Kind::kAssumed, 0, "", "GPUs are numbered by their bus ids, as the driver does");
  number_nics(host);
  return {{std::move(host)}, converter.notes.notes()};
}

Topology open_topology() {
  // Without libhwloc's plug-ins an answer doesn't depend on which are installed, and what they leak stays
  // out; they would add nothing that is read here.
  ::setenv("HWLOC_PLUGINS_PATH", "", 0);
  hwloc_topology_t opened = nullptr;
  if (hwloc_topology_init(&opened) != 0) fail(ErrorKind::kRuntime, "libhwloc doesn't start: out of memory");
  Topology topology(opened, &hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return topology;
}

// libhwloc 2.9 dereferences the sets of processors and NUMA nodes without looking whether the file has them.
void check_sets(const XmlElement& element, std::string_view file) {
  const std::string* type = element.find("type");
  if (element.name == "object" && type == nullptr)
    fail(ErrorKind::kInput, "{}: line {}: <object> without type", file, element.line);
  if (element.name == "object" && *type != "Bridge" && *type != "PCIDev" && *type != "OSDev" &&
      *type != "Misc")
    for (const char* set : {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"})
      if (element.find(set) == nullptr || element.find(set)->empty())
        fail(ErrorKind::kInput, "{}: line {}: {} without {}; was the file edited?", file, element.line, *type,
             set);
  for (const XmlElement& child : element.children) check_sets(child, file);
}

HostImport import_xml(std::string_view text, std::string_view file) {
  const Topology topology = open_topology();
  const std::string buffer(text);
  if (hwloc_topology_set_xmlbuffer(topology.get(), buffer.c_str(), static_cast<int>(buffer.size()) + 1) !=
          0 ||
      hwloc_topology_load(topology.get()) != 0)
    fail(
        ErrorKind::kInput,
        "{}: libhwloc {} can't load this topology; write it with `lstopo machine.xml` of version 1.11 to 2.x",
        file, HWLOC_VERSION);
  return convert(topology.get(), file);
}

// A machine of 200,000 objects loads in a second.
constexpr int kTrialSeconds = 20;

}  // namespace

HostImport read_hwloc_xml(std::string_view text, std::string_view file) {
  // libhwloc says only that it failed.
  const XmlElement root = read_xml(text, file).root;
  if (root.name == "system" || root.name == "graphs")
    fail(ErrorKind::kInput, "{}: line {}: NCCL's XML, not hwloc's", file, root.line);
  if (root.name != "topology")
    fail(ErrorKind::kInput, "{}: line {}: the root is <{}>; hwloc's XML begins with <topology>", file,
         root.line, root.name);
  check_sets(root, file);
  const auto import_it = [&] { return import_xml(text, file); };
  if (const auto fault = fault_of_trial(import_it, kTrialSeconds))
    fail(ErrorKind::kInput,
         "{}: libhwloc {} {} when it loads this topology; was the file edited? Write it "
         "with `lstopo machine.xml`",
         file, HWLOC_VERSION, *fault);
  HostImport import = import_it();
  Host& host = import.hosts[0];
  if (host.gpus.empty())
    import.notes.push_back({Kind::kMissing, 0, "no GPU is in this topology",
                            "write it with I/O devices: lstopo --whole-io machine.xml"});
  else
    import.notes.push_back({Kind::kMissing, 0, "hwloc doesn't say the capability of GPUs",
                            "nvidia-smi --query-gpu=index,name,compute_cap --format=csv"});
  if (!host.nics.empty())
    import.notes.push_back({Kind::kMissing, 0, "hwloc doesn't say the rates of network ports",
                            "cat /sys/class/infiniband/*/ports/*/rate"});
  for (ImportNote& note : check_host(host)) import.notes.push_back(std::move(note));
  return import;
}

HostImport read_hwloc_live() {
  const Topology topology = open_topology();
  // What they know, detect_host asks for itself; some of them start a driver.
  for (const char* component : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"})
    hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  if (hwloc_topology_load(topology.get()) != 0)
    fail(ErrorKind::kRuntime, "libhwloc can't read this machine; is /sys mounted?");
  return convert(topology.get(), "this machine");
}

}  // namespace orrery
