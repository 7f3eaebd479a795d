// The graphs that NCCL's search laid out, as its log prints them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_system.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;

bool same_kind(const LogGraphs& graphs, nccl::GraphKind kind) {
  return std::ranges::find(graphs.graphs, kind, &nccl::Graph::kind) != graphs.graphs.end();
}

// The log has no graph ids: ring, tree, CollNet chain, CollNet direct, NVLS follow from the pattern and
// order.
nccl::GraphKind kind_of(nccl::Pattern pattern, const LogGraphs& before) {
  switch (pattern) {
    case nccl::Pattern::kRing: return nccl::GraphKind::kRing;
    case nccl::Pattern::kNvls: return nccl::GraphKind::kNvls;
    case nccl::Pattern::kCollNetDirect: return nccl::GraphKind::kCollNetDirect;
    default: break;
  }
  return same_kind(before, nccl::GraphKind::kTree) ? nccl::GraphKind::kCollNetChain : nccl::GraphKind::kTree;
}

bool take_path_class(Cursor& cursor, std::string_view stops, nccl::PathClass& path) {
  const auto parsed = nccl::parse_path_class(cursor.until(stops));
  if (parsed) path = *parsed;
  return parsed.has_value();
}

template <class Target>
bool take(Cursor& cursor, std::string_view name, Target& target) {
  if (!cursor.skip(name)) return false;
  const auto value = cursor.number();
  if (value) target = static_cast<Target>(*value);
  return value.has_value();
}

bool take_int(Cursor& cursor, std::string_view name, std::int32_t& target) {
  if (!cursor.skip(name)) return false;
  const auto value = cursor.integer();
  if (value) target = *value;
  return value.has_value();
}

// GPUs of one host by number: in the order of their ranks, as the system's dump gives them.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(const std::vector<LogSystem>& systems) {
    if (systems.empty()) return;
    std::map<std::int32_t, std::vector<std::pair<std::int64_t, std::uint64_t>>> by_system;
    for (const LogSystemNode& node : systems.front().nodes) {
      if (node.id.kind != "GPU" || node.reference) continue;
      const auto rank = log_text::whole_integer(node.detail);
      by_system[node.id.system].push_back({rank.value_or(0), node.id.id});
    }
    for (auto& [system, gpus] : by_system) {
      std::ranges::stable_sort(gpus, {}, &std::pair<std::int64_t, std::uint64_t>::first);
      for (std::size_t i = 0; i < gpus.size(); ++i) {
        const std::int64_t number = (std::int64_t{system} << 56) | static_cast<std::int64_t>(i);
        by_bus_[{"GPU", system, gpus[i].second}] = number;
        by_rank_[gpus[i].first] = number;
      }
    }
  }

  // Up to 2.17 a graph names GPUs by rank, later by bus id.
  std::int64_t gpu(const LogNodeId& id, bool& assumed) const {
    if (const auto found = by_bus_.find(id); found != by_bus_.end()) return found->second;
    const auto plain = static_cast<std::int64_t>(id.id & 0x7fffffff);
    if (const auto found = by_rank_.find(plain); found != by_rank_.end() && id.id < 0x80)
      return found->second;
    assumed = true;
    return (std::int64_t{id.system & 0x7f} << 56) | plain;
  }

 private:
  std::map<LogNodeId, std::int64_t> by_bus_;
  std::map<std::int64_t, std::int64_t> by_rank_;
};

std::int64_t net_number(const LogNodeId& id) {
  return (std::int64_t{id.system & 0x7f} << 56) | static_cast<std::int64_t>(id.id & 0x7fffffff);
}

}  // namespace

bool read_pattern_line(std::string_view text, std::int32_t line, LogGraphs& graphs,
                       std::vector<ImportNote>& notes) {
  Cursor cursor(text);
  std::int32_t pattern = 0, channels = 0, same_channels = 0;
  nccl::Graph graph;
  if (!take_int(cursor, "Pattern ", pattern)) return false;
  const bool whole =
      pattern >= 1 && pattern <= 6 && take_int(cursor, ", crossNic ", graph.cross_nic) &&
      take_int(cursor, ", nChannels ", channels) &&
      (take(cursor, ", bw ", graph.node_gb_per_s) || take(cursor, ", speed ", graph.node_gb_per_s)) &&
      take(cursor, "/", graph.network_gb_per_s) && cursor.skip(", type ") &&
      take_path_class(cursor, "/", graph.node_path) && cursor.skip("/") &&
      take_path_class(cursor, ", ", graph.network_path) && take_int(cursor, ", sameChannels ", same_channels);
  if (!whole || channels < 0 || channels > 64) {
    notes.push_back(
        {ImportNote::Kind::kSuspect, line, "a graph's line is torn: left out with its channels", {}});
    return true;
  }
  graph.pattern = static_cast<nccl::Pattern>(pattern);
  graph.kind = kind_of(graph.pattern, graphs);
  graph.same_channels = same_channels != 0;
  // Room for the channels that must follow: how many came is compared in number_devices.
  graph.channels.resize(static_cast<std::size_t>(channels));
  graphs.graphs.push_back(std::move(graph));
  graphs.channels.emplace_back();
  graphs.lines.push_back(line);
  return true;
}

bool read_graph_channel(std::string_view text, std::int32_t line, LogGraphs& graphs,
                        std::vector<ImportNote>& notes) {
  Cursor cursor(text);
  cursor.blanks();
  const auto channel = cursor.integer();
  if (!channel || !cursor.skip(" : ") || graphs.graphs.empty()) return false;
  std::vector<LogNodeId> nodes;
  for (cursor.blanks(); !cursor.empty(); cursor.blanks()) {
    LogNodeId id;
    if (!parse_node_id(cursor.word(), id) || (id.kind != "GPU" && id.kind != "NET")) {
      if (nodes.empty()) return false;
      notes.push_back({ImportNote::Kind::kSuspect,
                       line,
                       fmt::format("channel {} of a graph is cut off: left out", *channel),
                       {}});
      return true;
    }
    nodes.push_back(std::move(id));
  }
  std::vector<std::vector<LogNodeId>>& channels = graphs.channels.back();
  if (*channel != static_cast<std::int32_t>(channels.size())) {
    notes.push_back(
        {ImportNote::Kind::kMissing,
         line,
         fmt::format("channel {} of a graph stands where {} was expected", *channel, channels.size()),
         {}});
  }
  channels.push_back(std::move(nodes));
  return true;
}

void number_devices(LogGraphs& graphs, const std::vector<LogSystem>& systems,
                    std::vector<ImportNote>& notes) {
  const DeviceNumbers numbers(systems);
  for (std::size_t g = 0; g < graphs.graphs.size(); ++g) {
    nccl::Graph& graph = graphs.graphs[g];
    const std::vector<std::vector<LogNodeId>>& printed = graphs.channels[g];
    const std::size_t stated = graph.channels.size();
    graph.channels.clear();
    bool assumed = false;
    for (const std::vector<LogNodeId>& nodes : printed) {
      nccl::GraphChannel channel;
      for (const LogNodeId& id : nodes) {
        if (id.kind == "GPU") {
          channel.gpus.push_back(numbers.gpu(id, assumed));
        } else if (channel.gpus.empty()) {
          channel.entry_nic = net_number(id);
        } else {
          channel.exit_nic = net_number(id);
        }
      }
      graph.channels.push_back(std::move(channel));
    }
    const std::int32_t line = graphs.lines[g];
    if (stated != printed.size()) {
      notes.push_back(
          {ImportNote::Kind::kMissing, line,
           fmt::format("a graph has {} channels, and {} of them stand in the log", stated, printed.size()),
           "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints them; NCCL_GRAPH_DUMP_FILE=graph.xml writes "
           "them"});
    }
    if (assumed) {
      notes.push_back({ImportNote::Kind::kAssumed,
                       line,
                       "the log doesn't say which device a graph's GPUs are: their printed ids were taken",
                       {}});
    }
  }
}

}  // namespace orrery::nccl_log
