#include "topology/import/nccl_graph_xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

struct Reader {
  std::string_view file;
  std::vector<ImportNote> notes = {};
  std::size_t gpus_per_channel = 0;  // Of the first one; 0: none yet.

  const std::string& word(const XmlElement& element, std::string_view name) const {
    const std::string* value = element.find(name);
    if (value == nullptr)
      fail(ErrorKind::kInput, "{}: line {}: <{}> lacks {}", file, element.line, element.name, name);
    return *value;
  }
  std::int64_t whole(const XmlElement& element, std::string_view name, std::int64_t smallest,
                     std::int64_t largest) const;
  double real(const XmlElement& element, std::string_view name) const;
  nccl::PathClass path_class(const XmlElement& element, std::string_view name) const;
  nccl::GraphChannel read_channel(const XmlElement& element) const;
  nccl::Graph read_graph(const XmlElement& element);
  void check_channels(const XmlElement& element, const nccl::Graph& graph);
};

std::int64_t Reader::whole(const XmlElement& element, std::string_view name, std::int64_t smallest,
                           std::int64_t largest) const {
  const std::string& text = word(element, name);
  const std::optional<std::int64_t> value = parse_xml_integer(text);
  if (!value || *value < smallest || *value > largest)
    fail(ErrorKind::kInput, "{}: line {}: {}=\"{}\" of <{}>; a whole number from {} to {} is expected", file,
         element.line, name, text, element.name, smallest, largest);
  return *value;
}

double Reader::real(const XmlElement& element, std::string_view name) const {
  const std::string& text = word(element, name);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value < 1e9))
    fail(ErrorKind::kInput, "{}: line {}: {}=\"{}\" of <{}>; GB/s or microseconds are expected", file,
         element.line, name, text, element.name);
  return value;
}

nccl::PathClass Reader::path_class(const XmlElement& element, std::string_view name) const {
  const std::string& text = word(element, name);
  const std::optional<nccl::PathClass> path = nccl::parse_path_class(text);
  if (!path)
    fail(ErrorKind::kInput, "{}: line {}: {}=\"{}\" is no path class; LOC, NVL, PIX, … SYS are", file,
         element.line, name, text);
  return *path;
}

// [net] gpu … [net].
nccl::GraphChannel Reader::read_channel(const XmlElement& element) const {
  constexpr std::int64_t kMaxDevice = std::numeric_limits<std::int64_t>::max();
  nccl::GraphChannel channel;
  for (const XmlElement& child : element.children) {
    const std::int64_t device = whole(child, "dev", 0, kMaxDevice);
    if (child.name == "gpu")
      channel.gpus.push_back(device);
    else if (child.name == "net")
      (channel.gpus.empty() ? channel.entry_nic : channel.exit_nic) = device;
    else
      fail(ErrorKind::kInput, "{}: line {}: <{}> in a channel; gpu and net are expected", file, child.line,
           child.name);
  }
  if (channel.gpus.empty()) fail(ErrorKind::kInput, "{}: line {}: a channel without GPU", file, element.line);
  return channel;
}

void Reader::check_channels(const XmlElement& element, const nccl::Graph& graph) {
  const std::int64_t said = whole(element, "nchannels", 0, 1 << 20);
  const auto there = static_cast<std::int64_t>(graph.channels.size());
  if (said != there)
    notes.push_back({Kind::kSuspect, element.line,
                     fmt::format("graph {}: nchannels is {}, and {} channels are there; those count",
                                 static_cast<int>(graph.kind), said, there),
                     ""});
  // Rings and trees are over all GPUs of the communicator on this node, so all channels have as many.
  if (graph.kind != nccl::GraphKind::kRing && graph.kind != nccl::GraphKind::kTree) return;
  for (std::size_t c = 0; c < graph.channels.size(); ++c) {
    const std::size_t gpus = graph.channels[c].gpus.size();
    if (gpus_per_channel == 0) gpus_per_channel = gpus;
    if (gpus != gpus_per_channel)
      notes.push_back(
          {Kind::kSuspect, element.line,
           fmt::format("{} {} has {} GPUs, the first channel has {}",
                       graph.kind == nccl::GraphKind::kRing ? "ring" : "tree", c, gpus, gpus_per_channel),
           ""});
  }
}

nccl::Graph Reader::read_graph(const XmlElement& element) {
  nccl::Graph graph;
  graph.kind = static_cast<nccl::GraphKind>(whole(element, "id", 0, 4));
  graph.pattern = static_cast<nccl::Pattern>(whole(element, "pattern", 1, 6));
  graph.cross_nic = static_cast<std::int32_t>(whole(element, "crossnic", 0, 2));
  graph.node_gb_per_s = real(element, "speedintra");
  graph.network_gb_per_s = real(element, "speedinter");
  // Since 2.11.
  if (element.find("latencyinter") != nullptr) graph.network_latency_us = real(element, "latencyinter");
  graph.node_path = path_class(element, "typeintra");
  graph.network_path = path_class(element, "typeinter");
  graph.same_channels = whole(element, "samechannels", 0, 1) != 0;
  for (const XmlElement& child : element.children) {
    if (child.name == "channel")
      graph.channels.push_back(read_channel(child));
    else
      notes.push_back({Kind::kAssumed, child.line, fmt::format("<{}> passed over", child.name), ""});
  }
  check_channels(element, graph);
  return graph;
}

// The text without its damaged end, or an Error that says what is there.
std::string mend(std::string_view text, std::string_view file, const NcclGraphOptions& options,
                 std::vector<ImportNote>& notes) {
  const std::optional<XmlCut> cut = find_cut(text);
  if (!cut || cut->open.front().name != "graphs") return std::string(text);
  XmlFile xml = read_xml(cut->closed, file);
  std::string what = "between two graphs";
  if (cut->open.size() > 1 && !xml.root.children.empty()) {
    XmlElement& graph = xml.root.children.back();
    if (cut->open.size() > 2 && !graph.children.empty()) graph.children.pop_back();
    const std::string* id = graph.find("id");
    const std::string* channels = graph.find("nchannels");
    what = fmt::format("{} of {} channels of graph {} (line {}) are whole", graph.children.size(),
                       channels != nullptr ? *channels : "?", id != nullptr ? *id : "?", graph.line);
  }
  const std::string fault =
      fmt::format("cut off in line {}, before </{}>: {}", cut->line, cut->open.back().name, what);
  if (!options.keep_whole_channels)
    fail(ErrorKind::kInput, "{}: {}; paste it whole, or ask for the whole channels to be kept", file, fault);
  notes.push_back({Kind::kRepaired, cut->line, fault + "; these are kept",
                   "run with NCCL_GRAPH_DUMP_FILE=graph.xml again for all of it"});
  return write_xml(xml.root);
}

std::string device(std::int64_t number) { return number == 0 ? "0" : fmt::format("{:#x}", number); }

XmlElement write_channel(const nccl::GraphChannel& channel) {
  XmlElement written{"channel", 0, {}, {}};
  const auto add = [&](const char* name, std::int64_t number) {
    written.children.push_back({name, 0, {{"dev", device(number)}}, {}});
  };
  if (channel.entry_nic) add("net", *channel.entry_nic);
  for (const std::int64_t gpu : channel.gpus) add("gpu", gpu);
  if (channel.exit_nic) add("net", *channel.exit_nic);
  return written;
}

XmlElement write_graph(const nccl::Graph& graph) {
  XmlElement written{"graph", 0, {}, {}};
  const auto set = [&](const char* name, const auto& value) {
    written.attributes.push_back({name, fmt::format("{}", value)});
  };
  set("id", static_cast<int>(graph.kind));
  set("pattern", static_cast<int>(graph.pattern));
  set("crossnic", graph.cross_nic);
  set("nchannels", graph.channels.size());
  set("speedintra", graph.node_gb_per_s);
  set("speedinter", graph.network_gb_per_s);
  set("latencyinter", graph.network_latency_us);
  set("typeintra", nccl::to_string(graph.node_path));
  set("typeinter", nccl::to_string(graph.network_path));
  set("samechannels", static_cast<int>(graph.same_channels));
  for (const nccl::GraphChannel& channel : graph.channels) written.children.push_back(write_channel(channel));
  return written;
}

}  // namespace

NcclGraphImport read_nccl_graphs(std::string_view text, std::string_view file,
                                 const NcclGraphOptions& options) {
  Reader reader{file};
  const XmlFile xml = read_xml(mend(text, file, options, reader.notes), file);
  if (xml.root.name == "system")
    fail(ErrorKind::kInput, "{}: line {}: a topology (NCCL_TOPO_FILE), not graphs", file, xml.root.line);
  if (xml.root.name != "graphs")
    fail(ErrorKind::kInput, "{}: line {}: the root is <{}>; a graph file begins with <graphs>", file,
         xml.root.line, xml.root.name);
  if (reader.whole(xml.root, "version", 0, 1 << 20) != 1)
    fail(ErrorKind::kInput, "{}: line {}: version \"{}\" of NCCL's graph files is not known; 1 is", file,
         xml.root.line, reader.word(xml.root, "version"));
  if (xml.text_line > 0)
    reader.notes.push_back(
        {Kind::kSuspect, xml.text_line, "text between the tags: part of a tag may be lost", ""});
  NcclGraphImport import;
  for (const XmlElement& child : xml.root.children) {
    if (child.name != "graph")
      fail(ErrorKind::kInput, "{}: line {}: <{}> in <graphs>; graph is expected", file, child.line,
           child.name);
    import.graphs.push_back(reader.read_graph(child));
  }
  import.notes = std::move(reader.notes);
  return import;
}

std::string write_nccl_graphs(std::span<const nccl::Graph> graphs) {
  XmlElement root{"graphs", 0, {{"version", "1"}}, {}};
  for (const nccl::Graph& graph : graphs) root.children.push_back(write_graph(graph));
  return write_xml(root);
}

}  // namespace orrery
