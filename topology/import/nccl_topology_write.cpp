#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxCharacters = 255;  // Of a value that NCCL reads (graph/xml.h).

struct Writer {
  const Host& host;
  std::vector<std::vector<std::int32_t>> below;  // By PCI device.

  static XmlElement element(std::string_view name) { return {std::string(name), 0, {}, {}}; }
  void set(XmlElement& element, std::string_view name, std::string value) const {
    if (value.size() > kMaxCharacters)
      fail(ErrorKind::kInput, "host {}: {} of <{}> has {} characters; NCCL reads {}", host.name, name,
           element.name, value.size(), kMaxCharacters);
    element.attributes.push_back({std::string(name), std::move(value)});
  }
  template <class Number>
  void set_number(XmlElement& element, std::string_view name, Number value) const {
    set(element, name, fmt::format("{}", value));
  }
  void set_code(XmlElement& element, std::string_view name, std::uint32_t value, int digits) const {
    set(element, name, fmt::format("0x{:0{}x}", value, digits));
  }

  XmlElement cpu(std::size_t index) const;
  XmlElement pci(std::int32_t index) const;
  XmlElement gpu(const HostGpu& gpu) const;
  XmlElement net(const HostNic& nic) const;
  void add_nics(XmlElement& parent, std::int32_t pci, std::int32_t cpu) const;
};

XmlElement Writer::net(const HostNic& nic) const {
  XmlElement net = element("net");
  set(net, "name", nic.name);
  set_number(net, "dev", nic.index);
  if (nic.bytes_per_s > 0) set_number(net, "speed", std::llround(nic.bytes_per_s * 8 / 1e6));
  set_number(net, "port", nic.port);
  // Digits that reading by the same factor gives back.
  set(net, "latency", fmt::format("{:.15g}", nic.latency_s * 1e6));
  if (!nic.guid.empty()) set(net, "guid", nic.guid);
  if (nic.max_connections > 0) set_number(net, "maxconn", nic.max_connections);
  set_number(net, "gdr", static_cast<int>(nic.gpu_direct_rdma));
  if (nic.in_network_reduction) set(net, "coll", "1");
  if (!nic.host_network) set(net, "net", "0");
  if (nic.gpu_initiated) set(net, "gin", "1");
  if (nic.one_sided) set(net, "rma", "1");
  if (nic.rail >= 0) set_number(net, "rail", nic.rail);
  if (nic.plane >= 0) set_number(net, "plane", nic.plane);
  if (nic.keep) set(net, "keep", "1");
  return net;
}

// Under a PCI device, or straight under a CPU. A card of which nothing is known has no ports: NCCL finds
// them.
void Writer::add_nics(XmlElement& parent, std::int32_t pci, std::int32_t cpu) const {
  XmlElement card = element("nic");
  bool any = false;
  for (const HostNic& nic : host.nics) {
    if (nic.pci != pci || (pci < 0 && nic.cpu != cpu)) continue;
    any = true;
    if (!nic.name.empty() || nic.bytes_per_s > 0) card.children.push_back(net(nic));
  }
  if (any) parent.children.push_back(std::move(card));
}

XmlElement Writer::gpu(const HostGpu& gpu) const {
  XmlElement written = element("gpu");
  set_number(written, "dev", gpu.index);
  if (gpu.compute_capability > 0) set_number(written, "sm", gpu.compute_capability);
  if (gpu.rank >= 0) set_number(written, "rank", gpu.rank);
  if (gpu.part >= 0) set_number(written, "mlopart", gpu.part);
  set_number(written, "gdr", static_cast<int>(gpu.gpu_direct_rdma));
  for (const HostNvLink& link : gpu.nvlinks) {
    XmlElement nvlink = element("nvlink");
    set(nvlink, "target", link.target);
    set_number(nvlink, "count", link.count);
    set_code(nvlink, "tclass", link.target_class, 6);
    written.children.push_back(std::move(nvlink));
  }
  if (gpu.c2c_bytes_per_s > 0) {
    XmlElement c2c = element("c2c");  // All links as one; NCCL multiplies.
    set_number(c2c, "bw", std::llround(gpu.c2c_bytes_per_s / 1e6));
    set(c2c, "count", "1");
    written.children.push_back(std::move(c2c));
  }
  return written;
}

// What isn't known stays out, so that NCCL looks for it on the machine.
XmlElement Writer::pci(std::int32_t index) const {
  const PciDevice& device = host.pci[static_cast<std::size_t>(index)];
  XmlElement written = element("pci");
  set(written, "busid", device.bus_id);
  if (device.device_class != 0) set_code(written, "class", device.device_class, 6);
  if ((device.vendor | device.device | device.subsystem_vendor | device.subsystem_device) != 0) {
    set_code(written, "vendor", device.vendor, 4);
    set_code(written, "device", device.device, 4);
    set_code(written, "subsystem_vendor", device.subsystem_vendor, 4);
    set_code(written, "subsystem_device", device.subsystem_device, 4);
  }
  if (device.gigatransfers_per_s > 0) {
    const bool tenths = std::floor(device.gigatransfers_per_s * 10) == device.gigatransfers_per_s * 10;
    set(written, "link_speed",
        tenths ? fmt::format("{:.1f} GT/s PCIe", device.gigatransfers_per_s)
               : fmt::format("{} GT/s PCIe", device.gigatransfers_per_s));
  }
  if (device.lanes > 0) set_number(written, "link_width", device.lanes);
  for (const HostGpu& each : host.gpus)
    if (each.pci == index) written.children.push_back(gpu(each));
  add_nics(written, index, device.cpu);
  if (!device.peer.empty()) {
    XmlElement link = element("pcilink");
    set(link, "target", device.peer);
    written.children.push_back(std::move(link));
  }
  for (const std::int32_t child : below[static_cast<std::size_t>(index)])
    written.children.push_back(pci(child));
  return written;
}

XmlElement Writer::cpu(std::size_t index) const {
  const HostCpu& from = host.cpus[index];
  XmlElement written = element("cpu");
  // A machine's plain name is no hash; NCCL would read it as 0.
  if (host.name.starts_with("0x")) set(written, "host_hash", host.name);
  set_number(written, "numaid", from.numa);
  if (!from.affinity.empty()) set(written, "affinity", from.affinity);
  if (!from.architecture.empty()) set(written, "arch", from.architecture);
  if (!from.vendor.empty()) set(written, "vendor", from.vendor);
  if (from.family != 0) set_number(written, "familyid", from.family);
  if (from.model != 0) set_number(written, "modelid", from.model);
  for (std::size_t i = 0; i < host.pci.size(); ++i)
    if (host.pci[i].parent < 0 && host.pci[i].cpu == static_cast<std::int32_t>(index))
      written.children.push_back(pci(static_cast<std::int32_t>(i)));
  add_nics(written, -1, static_cast<std::int32_t>(index));
  return written;
}

std::size_t count_elements(const XmlElement& element) {
  std::size_t count = 1;
  for (const XmlElement& child : element.children) count += count_elements(child);
  return count;
}

bool has_gpu_or_nic(const XmlElement& element) {
  return element.name == "gpu" || element.name == "nic" ||
         std::ranges::any_of(element.children, has_gpu_or_nic);
}

// Branches without GPU or network card, as NCCL leaves them out. Says how many elements went.
std::size_t drop_empty_branches(XmlElement& element) {
  const std::size_t before = count_elements(element);
  std::erase_if(element.children,
                [](const XmlElement& child) { return child.name == "pci" && !has_gpu_or_nic(child); });
  for (XmlElement& child : element.children) drop_empty_branches(child);
  return before - count_elements(element);
}

// All switches of a machine are one to NCCL.
Host join_switch_links(const Host& host) {
  Host joined = host;
  for (HostGpu& gpu : joined.gpus) {
    std::vector<HostNvLink> links;
    for (const HostNvLink& link : gpu.nvlinks) {
      const auto same = std::ranges::find_if(links, [&](const HostNvLink& other) {
        return link.target_class == kNvSwitchClass && other.target_class == link.target_class;
      });
      if (same == links.end())
        links.push_back(link);
      else
        same->count += link.count;
    }
    gpu.nvlinks = std::move(links);
  }
  return joined;
}

void check_places(const Host& host) {
  for (const HostGpu& gpu : host.gpus)
    if (gpu.pci < 0)
      fail(ErrorKind::kInput,
           "{}: GPU {} has no PCI address, and NCCL's topology files hang GPUs on PCI devices; a description "
           "with addresses is needed (NCCL_TOPO_DUMP_FILE, or hwloc)",
           host.source, gpu.index);
}

XmlElement write_host(const Host& host) {
  check_places(host);
  Writer writer{host, std::vector<std::vector<std::int32_t>>(host.pci.size())};
  for (std::size_t i = 0; i < host.pci.size(); ++i)
    if (host.pci[i].parent >= 0)
      writer.below[static_cast<std::size_t>(host.pci[i].parent)].push_back(static_cast<std::int32_t>(i));
  XmlElement system = Writer::element("system");
  system.attributes = {{"version", "1"}};
  for (std::size_t cpu = 0; cpu < host.cpus.size(); ++cpu) system.children.push_back(writer.cpu(cpu));
  return system;
}

// Within the limit, or an Error.
XmlElement write_within_limit(const Host& host, const NcclTopologyWriteOptions& options,
                              std::vector<ImportNote>& notes) {
  constexpr std::size_t kLimit = kNcclMaxElements;
  XmlElement system = write_host(host);
  const std::size_t whole = count_elements(system);
  if (whole <= kLimit) return system;
  if (!options.prune)
    fail(ErrorKind::kInput,
         "{}: {} elements, and NCCL reads {}; let it be pruned (NVLinks to switches joined, empty branches "
         "left out)",
         host.source, whole, kLimit);
  system = write_host(join_switch_links(host));
  const std::size_t joined = whole - count_elements(system);
  const std::size_t dropped = drop_empty_branches(system);
  notes.push_back(
      {ImportNote::Kind::kAssumed, 0,
       fmt::format("{} elements are more than the {} that NCCL reads: {} NVLink elements joined, {} "
                   "elements of branches without GPU or network card left out",
                   whole, kLimit, joined, dropped),
       ""});
  if (count_elements(system) > kLimit)
    fail(ErrorKind::kInput,
         "{}: {} elements after pruning, and NCCL reads {}; leave out network ports that aren't used",
         host.source, count_elements(system), kLimit);
  return system;
}

}  // namespace

NcclTopologyText write_nccl_topology(std::span<const Host> hosts, const NcclTopologyWriteOptions& options) {
  NcclTopologyText written;
  XmlElement all;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (hosts.size() > 1 && !hosts[h].name.starts_with("0x"))
      fail(ErrorKind::kInput, "host \"{}\": in a file of several hosts each is named by a hash, \"0x…\"",
           hosts[h].name);
    for (std::size_t other = 0; other < h; ++other)
      if (hosts[other].name == hosts[h].name)
        fail(ErrorKind::kInput, "two hosts are called \"{}\"; hosts of one file need names that differ",
             hosts[h].name);
    XmlElement system = write_within_limit(hosts[h], options, written.notes);
    if (h == 0)
      all = std::move(system);
    else
      std::ranges::move(system.children, std::back_inserter(all.children));
  }
  if (hosts.empty()) fail(ErrorKind::kInput, "no host to write");
  written.text = write_xml(all);
  return written;
}

NcclTopologyText write_nccl_topology(const Host& host, const NcclTopologyWriteOptions& options) {
  return write_nccl_topology(std::span(&host, 1), options);
}

}  // namespace orrery
