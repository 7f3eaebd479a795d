#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "topology/import/host_checks.hpp"
#include "topology/import/nccl_topology_leaves.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/note_tally.hpp"
#include "topology/import/pci_address.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

// NCCL's reader: attributes per element, children per element, characters per value (graph/xml.h).
constexpr std::size_t kMaxAttributes = 16, kMaxChildren = 640, kMaxCharacters = 255;

struct Reader {
  std::string_view file;
  const NcclTopologyOptions& options;
  NoteTally notes = {};
  std::vector<Host> hosts = {};
  std::vector<std::vector<std::int32_t>> pci_lines = {};  // By host and PCI device.

  void note(Kind kind, const XmlElement& element, std::string_view where, std::string_view what,
            std::string_view remedy = {}) {
    notes.add(kind, element.line, where, what, remedy);
  }

  std::string word(const XmlElement& element, std::string_view name) const {
    const std::string* value = element.find(name);
    return value != nullptr ? *value : "";
  }
  double real(const XmlElement& element, std::string_view name, double fallback);
  std::int64_t whole(const XmlElement& element, std::string_view name, std::int64_t fallback,
                     std::int64_t smallest, std::int64_t largest);
  std::int32_t number(const XmlElement& element, std::string_view name, std::int32_t fallback,
                      std::int32_t smallest = -1) {
    return static_cast<std::int32_t>(
        whole(element, name, fallback, smallest, std::numeric_limits<std::int32_t>::max()));
  }
  std::uint32_t code(const XmlElement& element, std::string_view name);
  void unread(const XmlElement& element, std::string_view name);

  void check_version(const XmlElement& root);
  void check_limits(const XmlFile& xml);
  void read_cpu(const XmlElement& element);
  void note_gaps(const XmlElement& element, const std::string& where,
                 std::initializer_list<std::string_view> together);
  void read_pci(const XmlElement& element, std::size_t host, std::int32_t cpu, std::int32_t parent);
  void read_gpu(const XmlElement& element, Host& host, std::int32_t pci);
  void read_nic(const XmlElement& element, Host& host, std::int32_t pci, std::int32_t cpu);
  void read_net(const XmlElement& element, Host& host, std::int32_t pci, std::int32_t cpu);
  double read_speed(const XmlElement& element);
};

void Reader::unread(const XmlElement& element, std::string_view name) {
  note(Kind::kSuspect, element, fmt::format("{}=\"{}\"", name, word(element, name).substr(0, 40)),
       fmt::format("no value that <{}> can have here; it counts as not given", element.name));
}

double Reader::real(const XmlElement& element, std::string_view name, double fallback) {
  const std::string text = word(element, name);
  if (text.empty()) return fallback;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0 && value < 1e12) return value;
  unread(element, name);
  return fallback;
}

std::int64_t Reader::whole(const XmlElement& element, std::string_view name, std::int64_t fallback,
                           std::int64_t smallest, std::int64_t largest) {
  const std::string text = word(element, name);
  if (text.empty()) return fallback;
  const std::optional<std::int64_t> value = parse_xml_integer(text);
  if (value && *value >= smallest && *value <= largest) return *value;
  unread(element, name);
  return fallback;
}

// A hexadecimal code, with or without "0x".
std::uint32_t Reader::code(const XmlElement& element, std::string_view name) {
  const std::string text = word(element, name);
  if (text.empty()) return 0;
  const char* const begin = text.data() + (text.starts_with("0x") ? 2 : 0);
  const char* const end = text.data() + text.size();
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value, 16);
  if (error == std::errc() && stop == end) return value;
  unread(element, name);
  return 0;
}

void Reader::check_version(const XmlElement& root) {
  if (root.name == "graphs")
    fail(ErrorKind::kInput, "{}: line {}: a graph file (NCCL_GRAPH_FILE), not a topology", file, root.line);
  if (root.name == "topology")
    fail(ErrorKind::kInput, "{}: line {}: hwloc's XML, not NCCL's; read it as hwloc", file, root.line);
  if (root.name != "system")
    fail(ErrorKind::kInput, "{}: line {}: the root is <{}>; an NCCL topology begins with <system>", file,
         root.line, root.name);
  const std::string version = word(root, "version");
  if (version.empty()) {
    note(Kind::kSuspect, root, "<system>", "without version, which NCCL refuses to read",
         "write <system version=\"1\">");
  } else if (version == "2" && !options.map_rccl) {
    fail(ErrorKind::kInput,
         "{}: line {}: version 2 is RCCL's (AMD GPUs, xGMI links); NCCL reads version 1. Ask for RCCL files "
         "to be mapped to read it all the same",
         file, root.line);
  } else if (version == "2") {
    note(Kind::kAssumed, root, "",
         "RCCL's file: xGMI links are taken as NVLinks, compute units are left out; NCCL's rates and search "
         "are not RCCL's");
  } else if (version != "1") {
    fail(ErrorKind::kInput, "{}: line {}: version \"{}\" of NCCL's topology files is not known; 1 is", file,
         root.line, version);
  }
}

void Reader::check_limits(const XmlFile& xml) {
  if (xml.has_prolog)
    notes.add(Kind::kSuspect, 1, "", "begins with <?xml …?>, which NCCL doesn't read",
              "delete the first line before you give the file to NCCL");
  if (xml.entity_line != 0)
    notes.add(Kind::kSuspect, xml.entity_line, "",
              "entities (&…;) are decoded here; NCCL takes them as they stand", "write plain characters");
  std::size_t count = 0;
  std::vector<const XmlElement*> todo{&xml.root};
  while (!todo.empty()) {
    const XmlElement& element = *todo.back();
    todo.pop_back();
    ++count;
    const auto too_much = [&](std::string_view what, std::size_t limit) {
      note(Kind::kSuspect, element, fmt::format("<{}>", element.name),
           fmt::format("more than the {} {} that NCCL reads", limit, what));
    };
    if (element.attributes.size() > kMaxAttributes) too_much("attributes", kMaxAttributes);
    if (element.children.size() > kMaxChildren) too_much("children", kMaxChildren);
    if (std::ranges::any_of(element.attributes,
                            [](const XmlAttribute& each) { return each.value.size() > kMaxCharacters; }))
      too_much("characters of a value", kMaxCharacters);
    for (auto child = element.children.rbegin(); child != element.children.rend(); ++child)
      todo.push_back(&*child);
  }
  if (count > static_cast<std::size_t>(kNcclMaxElements))
    notes.add(Kind::kSuspect, xml.root.line, "",
              fmt::format("{} elements; NCCL reads no file of more than {}", count, kNcclMaxElements),
              "write it again pruned: NVLinks to switches joined, empty branches left out");
}

void Reader::read_cpu(const XmlElement& element) {
  const std::string hash = word(element, "host_hash");
  std::size_t index = 0;
  while (index < hosts.size() && hosts[index].name != hash) ++index;
  if (index == hosts.size()) {
    hosts.emplace_back();
    hosts.back().name = hash;
    hosts.back().source = std::string(file);
    pci_lines.emplace_back();
  }
  Host& host = hosts[index];
  HostCpu cpu;
  cpu.numa = number(element, "numaid", -1);
  cpu.affinity = word(element, "affinity");
  cpu.architecture = word(element, "arch");
  cpu.vendor = word(element, "vendor");
  cpu.family = number(element, "familyid", 0);
  cpu.model = number(element, "modelid", 0);
  const std::string name = fmt::format("cpu {}", cpu.numa);
  note_gaps(element, name, {"vendor", "familyid", "modelid"});
  if (cpu.vendor == "AuthenticAMD" && cpu.family > 15 && cpu.family < 31) {
    // NCCL sums base family 15 and 16 times the rest: 23 (Zen, Zen 2) is 15 + 16 · 8 there.
    note(Kind::kRepaired, element, name, "familyid is AMD's own number; taken as NCCL writes it");
    cpu.family = 15 + 16 * (cpu.family - 15);
  }
  if (cpu.architecture.empty() || (cpu.architecture == "x86_64" && cpu.vendor.empty()))
    note(Kind::kMissing, element, name,
         "arch or vendor is missing, so that the rate between sockets is not known", "lscpu");
  const auto number_of_cpu = static_cast<std::int32_t>(host.cpus.size());
  host.cpus.push_back(std::move(cpu));
  for (const XmlElement& child : element.children) {
    if (child.name == "pci")
      read_pci(child, index, number_of_cpu, -1);
    else if (child.name == "nic")
      read_nic(child, host, -1, number_of_cpu);
    else
      note(Kind::kAssumed, child, fmt::format("<{}>", child.name), "not known under <cpu>; passed over");
  }
}

double Reader::read_speed(const XmlElement& element) {
  const std::string text = word(element, "link_speed");
  if (text.empty()) return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, text.data() + text.size());
  if (error == std::errc() && value > 0 && value < 1e6 && unit.starts_with(" GT/s")) return value;
  note(Kind::kSuspect, element, fmt::format("link_speed=\"{}\"", text.substr(0, 40)),
       "no \"16.0 GT/s PCIe\"; NCCL counts 8 GT/s");
  return 0;
}

// NCCL writes these together; a file that has some of them has lost the others.
void Reader::note_gaps(const XmlElement& element, const std::string& where,
                       std::initializer_list<std::string_view> together) {
  std::string gaps;
  std::size_t there = 0;
  for (const std::string_view name : together) {
    if (element.find(name) != nullptr)
      ++there;
    else
      gaps += (gaps.empty() ? "" : ", ") + std::string(name);
  }
  if (there == 0 || gaps.empty()) return;
  note(Kind::kAssumed, element, where, "lacks what NCCL's dumps have beside the rest: " + gaps);
}

void Reader::read_pci(const XmlElement& element, std::size_t host_index, std::int32_t cpu,
                      std::int32_t parent) {
  Host& host = hosts[host_index];
  PciDevice device;
  device.bus_id = normal_bus_id(word(element, "busid"));
  device.cpu = cpu;
  device.parent = parent;
  device.device_class = code(element, "class");
  device.vendor = code(element, "vendor");
  device.device = code(element, "device");
  device.subsystem_vendor = code(element, "subsystem_vendor");
  device.subsystem_device = code(element, "subsystem_device");
  device.gigatransfers_per_s = read_speed(element);
  device.lanes = number(element, "link_width", 0, 0);
  if (device.bus_id.empty())
    fail(ErrorKind::kInput, "{}: line {}: <pci> without busid=\"0000:00:00.0\"", file, element.line);
  note_gaps(element, device.bus_id, {"vendor", "device", "subsystem_vendor", "subsystem_device"});
  if (device.gigatransfers_per_s == 0 && word(element, "link_speed").empty())
    note(Kind::kAssumed, element, device.bus_id, "link_speed is not given; NCCL counts 8 GT/s");
  if (device.lanes == 0)
    note(Kind::kAssumed, element, device.bus_id, "link_width is 0 or not given; NCCL counts 16 lanes");
  const auto index = static_cast<std::int32_t>(host.pci.size());
  host.pci.push_back(std::move(device));
  pci_lines[host_index].push_back(element.line);
  for (const XmlElement& child : element.children) {
    if (child.name == "pci")
      read_pci(child, host_index, cpu, index);
    else if (child.name == "gpu")
      read_gpu(child, host, index);
    else if (child.name == "nic")
      read_nic(child, host, index, cpu);
    else if (child.name == "pcilink")
      host.pci[static_cast<std::size_t>(index)].peer = normal_bus_id(word(child, "target"));
    else
      note(Kind::kAssumed, child, fmt::format("<{}>", child.name), "not known under <pci>; passed over");
  }
}

void Reader::read_gpu(const XmlElement& element, Host& host, std::int32_t pci) {
  HostGpu gpu;
  gpu.pci = pci;
  gpu.index = number(element, "dev", -1);
  gpu.rank = number(element, "rank", -1);
  gpu.gpu_direct_rdma = number(element, "gdr", 1, 0) != 0;
  gpu.part = number(element, "mlopart", -1);
  note_gaps(element, fmt::format("gpu dev {}", gpu.index), {"dev", "sm", "gdr"});
  // RCCL writes compute units there, and the architecture beside it: "gfx942" or 906.
  const std::string gcn = word(element, "gcn");
  if (gcn.empty())
    gpu.compute_capability = number(element, "sm", 0, 0);
  else
    gpu.model = gcn.starts_with("gfx") ? gcn : "gfx" + gcn;
  for (const XmlElement& child : element.children) {
    if (child.name == "nvlink" || child.name == "xgmi") {
      note_gaps(child, fmt::format("{} of gpu dev {}", child.name, gpu.index), {"target", "count", "tclass"});
      gpu.nvlinks.push_back(
          {normal_bus_id(word(child, "target")), number(child, "count", 1, 0), code(child, "tclass")});
    } else if (child.name == "c2c") {  // MB/s per link.
      gpu.c2c_bytes_per_s += real(child, "bw", 0) * number(child, "count", 1, 0) * 1e6;
    } else {
      note(Kind::kAssumed, child, fmt::format("<{}>", child.name), "not known under <gpu>; passed over");
    }
  }
  // A communicator's ranks are written for all of its GPUs.
  if (!host.gpus.empty() && (host.gpus.front().rank < 0) != (gpu.rank < 0))
    note(Kind::kAssumed, element, fmt::format("gpu dev {}", gpu.index),
         "has or lacks a rank where the first GPU doesn't");
  host.gpus.push_back(std::move(gpu));
}

void Reader::read_nic(const XmlElement& element, Host& host, std::int32_t pci, std::int32_t cpu) {
  for (const XmlElement& child : element.children) {
    if (child.name == "net")
      read_net(child, host, pci, cpu);
    else
      note(Kind::kAssumed, child, fmt::format("<{}>", child.name), "not known under <nic>; passed over");
  }
  if (!element.children.empty()) return;
  if (pci < 0) {
    note(Kind::kAssumed, element, "<nic>", "under a CPU without any <net>; passed over");
    return;
  }
  // Only that it is a card: find_leaves numbers it.
  HostNic nic;
  nic.pci = pci;
  nic.cpu = cpu;
  nic.index = -1;
  host.nics.push_back(std::move(nic));
}

void Reader::read_net(const XmlElement& element, Host& host, std::int32_t pci, std::int32_t cpu) {
  HostNic nic;
  nic.pci = pci;
  nic.cpu = cpu;
  nic.name = word(element, "name");
  nic.index = number(element, "dev", -1);
  note_gaps(element, fmt::format("net dev {}", nic.index),
            {"name", "speed", "port", "guid", "maxconn", "gdr"});
  nic.port = number(element, "port", 1);
  nic.bytes_per_s = real(element, "speed", 0) * (1e6 / 8);  // From Mb/s.
  nic.latency_s = real(element, "latency", 0) / 1e6;        // From microseconds.
  nic.guid = word(element, "guid");
  nic.gpu_direct_rdma = number(element, "gdr", 1, 0) != 0;
  nic.in_network_reduction = number(element, "coll", 0, 0) != 0;
  nic.max_connections = number(element, "maxconn", 0, 0);
  nic.rail = number(element, "rail", -1);
  nic.plane = number(element, "plane", -1);
  nic.host_network = number(element, "net", 1, 0) != 0;
  nic.gpu_initiated = number(element, "gin", 0, 0) != 0;
  nic.one_sided = number(element, "rma", 0, 0) != 0;
  nic.keep = number(element, "keep", 0, 0) != 0;
  host.nics.push_back(std::move(nic));
}

}  // namespace

HostImport read_nccl_topology(std::string_view text, std::string_view file,
                              const NcclTopologyOptions& options) {
  const XmlFile xml = read_xml(text, file);
  Reader reader{file, options};
  reader.check_version(xml.root);
  reader.check_limits(xml);
  for (const XmlElement& child : xml.root.children) {
    if (child.name == "cpu")
      reader.read_cpu(child);
    else
      reader.note(Kind::kAssumed, child, fmt::format("<{}>", child.name),
                  "not known under <system>; passed over");
  }
  if (reader.hosts.empty())
    fail(ErrorKind::kInput, "{}: line {}: <system> holds no <cpu>, so no machine; was the dump cut?", file,
         xml.root.line);
  HostImport import;
  std::vector<ImportNote> checks;
  for (std::size_t h = 0; h < reader.hosts.size(); ++h) {
    Host& host = reader.hosts[h];
    if (host.pci.empty() && host.nics.empty())
      fail(ErrorKind::kInput, "{}: no <pci> in the <cpu> elements: nothing says where GPUs are", file);
    find_leaves(host, options.gpu_bus_ids, reader.pci_lines[h], reader.notes);
    for (ImportNote& note : check_host(host, reader.pci_lines[h])) checks.push_back(std::move(note));
  }
  import.hosts = std::move(reader.hosts);
  import.notes = reader.notes.notes();
  import.notes.insert(import.notes.end(), checks.begin(), checks.end());
  return import;
}

}  // namespace orrery
