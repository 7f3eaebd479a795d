#include "topology/import/host_dot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/link_rates.hpp"

namespace orrery {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + "\"";
}

std::string rate(double bytes_per_s) { return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9); }

// A device in the drawing is named by what it is, so that a GPU and its PCIe function are one node.
struct Drawing {
  const Host& host;
  std::map<std::int32_t, std::string> names = {};  // By PCI device.
  std::string text = {};

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  void name_devices();
  void draw_cpu(std::size_t cpu);
  void draw_device(std::int32_t pci);
  void draw_links();
  void draw_nvlinks();
};

void Drawing::name_devices() {
  for (std::size_t i = 0; i < host.pci.size(); ++i)
    names[static_cast<std::int32_t>(i)] = fmt::format("pci{}", i);
  for (const HostGpu& gpu : host.gpus)
    if (gpu.pci >= 0) names[gpu.pci] = fmt::format("gpu{}", gpu.index);
}

std::string label(const HostGpu& gpu, const std::string& bus_id) {
  std::string text = fmt::format("GPU {}", gpu.index);
  if (!gpu.model.empty())
    text += "\n" + gpu.model;
  else if (gpu.compute_capability > 0)
    text += fmt::format("\nsm{}", gpu.compute_capability);
  return bus_id.empty() ? text : text + "\n" + bus_id;
}

void Drawing::draw_device(std::int32_t pci) {
  const PciDevice& device = host.pci[static_cast<std::size_t>(pci)];
  std::string text_of = device.bus_id;
  std::string style = "shape=box";
  for (const HostGpu& gpu : host.gpus)
    if (gpu.pci == pci) {
      text_of = label(gpu, device.bus_id);
      style = "shape=box style=filled fillcolor=palegreen";
    }
  for (const HostNic& nic : host.nics)
    if (nic.pci == pci) {
      text_of += fmt::format("\n{} port {}", nic.name.empty() ? "port" : nic.name, nic.port);
      if (nic.bytes_per_s > 0) text_of += fmt::format(", {:g} Gb/s", nic.bytes_per_s * 8 / 1e9);
      style = "shape=box style=filled fillcolor=lightblue";
    }
  line("    {} [label={} {}];", names[pci], quoted(text_of), style);
}

void Drawing::draw_cpu(std::size_t cpu) {
  const HostCpu& shown = host.cpus[cpu];
  line("  subgraph cluster_cpu{} {{", cpu);
  line("    label={};",
       quoted(shown.numa >= 0 ? fmt::format("NUMA node {}", shown.numa) : "NUMA node unknown"));
  const std::string kind = shown.vendor.empty() ? shown.architecture : shown.vendor;
  line("    cpu{} [label={} shape=ellipse];", cpu,
       quoted(kind.empty() ? "CPU" : fmt::format("CPU\n{} {}/{}", kind, shown.family, shown.model)));
  const auto here = static_cast<std::int32_t>(cpu);
  for (std::size_t i = 0; i < host.pci.size(); ++i)
    if (host.pci[i].cpu == here) draw_device(static_cast<std::int32_t>(i));
  for (const HostNic& nic : host.nics)
    if (nic.pci < 0 && nic.cpu == here)
      line("    nic{} [label={} shape=box style=filled fillcolor=lightblue];", nic.index, quoted(nic.name));
  line("  }}");
}

void Drawing::draw_links() {
  for (std::size_t i = 0; i < host.pci.size(); ++i) {
    const PciDevice& device = host.pci[i];
    const std::string above = device.parent >= 0 ? names[device.parent] : fmt::format("cpu{}", device.cpu);
    line("  {} -- {} [label={}];", above, names[static_cast<std::int32_t>(i)],
         quoted(rate(pcie_bytes_per_s(device))));
  }
  for (const HostNic& nic : host.nics)
    if (nic.pci < 0) line("  cpu{} -- nic{};", nic.cpu, nic.index);
  for (std::size_t a = 0; a < host.cpus.size(); ++a)
    for (std::size_t b = a + 1; b < host.cpus.size(); ++b) {
      const double between = cpu_interconnect_bytes_per_s(host.cpus[a]);
      line("  cpu{} -- cpu{} [style=dashed{}];", a, b,
           between > 0 ? " label=" + quoted(rate(between)) : std::string());
    }
  for (const HostGpu& gpu : host.gpus)
    if (gpu.c2c_bytes_per_s > 0 && gpu.pci >= 0)
      line("  cpu{} -- gpu{} [color=orange label={}];", host.pci[static_cast<std::size_t>(gpu.pci)].cpu,
           gpu.index, quoted("C2C " + rate(gpu.c2c_bytes_per_s)));
}

// Both ends list a link between GPUs; it is drawn once.
void Drawing::draw_nvlinks() {
  std::map<std::pair<std::string, std::string>, std::pair<std::int32_t, double>> links;
  bool has_switch = false;
  for (const HostGpu& gpu : host.gpus) {
    const std::string own = fmt::format("gpu{}", gpu.index);
    std::map<std::string, std::int32_t> counts;
    for (const HostNvLink& link : gpu.nvlinks) {
      const auto peer = std::ranges::find_if(host.gpus, [&](const HostGpu& other) {
        return other.pci >= 0 && host.pci[static_cast<std::size_t>(other.pci)].bus_id == link.target;
      });
      const bool to_cpu = link.target_class == kCpuBridgeClass && gpu.pci >= 0;
      counts[peer != host.gpus.end() ? fmt::format("gpu{}", peer->index)
             : to_cpu                ? fmt::format("cpu{}", host.pci[static_cast<std::size_t>(gpu.pci)].cpu)
                                     : "nvswitch"] += link.count;
    }
    for (const auto& [to, count] : counts) {
      has_switch = has_switch || to == "nvswitch";
      auto& drawn = links[std::minmax(own, to)];
      drawn = {std::max(drawn.first, count), nvlink_bytes_per_s(gpu.compute_capability)};
    }
  }
  if (has_switch) line("  nvswitch [label=\"NVSwitch\" shape=box style=filled fillcolor=gold];");
  for (const auto& [ends, link] : links)
    line("  {} -- {} [color=darkgreen penwidth=2 constraint=false label={}];", ends.first, ends.second,
         quoted(link.first > 0 ? fmt::format("{} NVLinks, {}", link.first, rate(link.first * link.second))
                               : std::string("NVLink down")));
}

}  // namespace

std::string write_graphviz(const Host& host) {
  Drawing drawing{host};
  drawing.line("graph {} {{", quoted(host.name.empty() ? host.source : host.name));
  drawing.name_devices();
  for (std::size_t cpu = 0; cpu < host.cpus.size(); ++cpu) drawing.draw_cpu(cpu);
  // GPUs of which only the links between them are known.
  for (const HostGpu& gpu : host.gpus)
    if (gpu.pci < 0)
      drawing.line("  gpu{} [label={} shape=box style=filled fillcolor=palegreen];", gpu.index,
                   quoted(label(gpu, "")));
  drawing.draw_links();
  drawing.draw_nvlinks();
  return drawing.text + "}\n";
}

}  // namespace orrery
