// The views of one communicator together: facts compared, ranks, rings and trees collected.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_rings.hpp"

namespace orrery::nccl_log {
namespace {

constexpr std::string_view kGraphCommand = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints it";

// The rank that a machine's tree writes behind a GPU.
std::optional<std::int32_t> rank_of_node(const LogSystemNode& node) {
  if (node.id.kind != "GPU" || node.reference) return std::nullopt;
  const auto rank = log_text::whole_integer(node.detail);
  if (!rank || *rank < 0 || *rank >= 1 << 20) return std::nullopt;
  return static_cast<std::int32_t>(*rank);
}

std::int32_t highest_rank(const std::vector<View>& views) {
  std::int32_t highest = -1;
  for (const View& view : views) {
    highest = std::max(highest, view.rank);
    for (const LogRing& ring : view.rings) {
      for (const std::int32_t rank : ring.ranks) highest = std::max(highest, rank);
    }
    for (const LogTree& tree : view.trees)
      highest = std::max({highest, tree.rank, tree.up, std::ranges::max(tree.down)});
    for (const RingLink& link : view.ring_links)
      highest = std::max({highest, link.previous, link.rank, link.next});
    for (const LogConnection& connection : view.connections)
      highest = std::max({highest, connection.from, connection.to});
    for (const auto& head : view.nvls_heads) {
      for (const std::int32_t rank : head) highest = std::max(highest, rank);
    }
    for (const LogSystem& system : view.systems) {
      for (const LogSystemNode& node : system.nodes)
        highest = std::max(highest, rank_of_node(node).value_or(-1));
    }
  }
  return highest;
}

// The ring's LL threshold is 8 · ranks unless somebody set it (NCCL's init.cc, since 2.5).
std::int32_t ranks_by_thresholds(const std::vector<View>& views) {
  for (const View& view : views) {
    if (view.thread_thresholds.size() >= 6 && view.thread_thresholds[3] % 8 == 0)
      return view.thread_thresholds[3] / 8;
  }
  return 0;
}

void find_rank_count(const std::vector<View>& views, LogComm& comm, std::vector<ImportNote>& notes) {
  const std::int32_t highest = highest_rank(views);
  for (const View& view : views) comm.rank_count = std::max(comm.rank_count, view.rank_count);
  comm.rank_count_is_stated = comm.rank_count > 0;
  if (comm.rank_count_is_stated) {
    if (highest < comm.rank_count) return;
    notes.push_back(
        {ImportNote::Kind::kSuspect,
         comm.line,
         fmt::format("a line speaks of rank {} in a communicator of {} ranks", highest, comm.rank_count),
         {}});
    return;
  }
  if (highest < 0) return;
  const std::int32_t by_thresholds = ranks_by_thresholds(views);
  comm.rank_count = by_thresholds > highest ? by_thresholds : highest + 1;
  notes.push_back(
      {ImportNote::Kind::kAssumed, comm.line,
       fmt::format("the log doesn't say how many ranks the communicator has: {} by {}", comm.rank_count,
                   by_thresholds > highest ? "its thread thresholds" : "the highest rank it names"),
       "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT prints 'nranks'"});
}

// Up to 2.17 connections name devices by bus id, later by NVML's number.
bool devices_are_bus_ids(const LogComm& comm) {
  return std::ranges::any_of(comm.connections, [](const LogConnection& connection) {
    const auto number = log_text::whole_integer(connection.from_device);
    return !number || *number >= 64 || connection.from_device.size() > 2;
  });
}

LogRank& rank_of(std::map<std::int32_t, LogRank>& ranks, std::int32_t rank) {
  LogRank& found = ranks[rank];
  found.rank = rank;
  return found;
}

void add_device(const std::string& device, bool bus_ids, LogRank& rank) {
  if (bus_ids) {
    if (rank.bus_id.empty()) rank.bus_id = device;
  } else if (rank.nvml_device < 0) {
    rank.nvml_device = static_cast<std::int32_t>(log_text::whole_integer(device).value_or(-1));
  }
}

std::string hex(std::uint64_t id) { return fmt::format("{:x}", id); }

void add_ranks_of_system(const LogSystem& system, const LogComm& comm,
                         std::map<std::int32_t, LogRank>& ranks) {
  std::set<std::int32_t> systems;
  for (const LogSystemNode& node : system.nodes) systems.insert(node.id.system);
  for (const LogSystemNode& node : system.nodes) {
    const auto number = rank_of_node(node);
    if (!number || *number >= comm.rank_count) continue;
    LogRank& rank = rank_of(ranks, *number);
    if (rank.bus_id.empty()) rank.bus_id = hex(node.id.id);
    if (rank.host.empty() && systems.size() == 1) rank.host = system.host;
  }
}

void number_nodes(LogComm& comm) {
  std::map<std::string, std::int32_t> nodes;
  for (LogRank& rank : comm.ranks) {
    if (rank.host.empty()) continue;
    // Of ranks that the log lacks the hosts aren't known, so numbers mean something only where all are there.
    rank.node = nodes.try_emplace(rank.host, static_cast<std::int32_t>(nodes.size())).first->second;
    if (comm.node_count == 1) rank.node = 0;
  }
  const bool all = static_cast<std::int32_t>(comm.ranks.size()) == comm.rank_count;
  if (all || comm.node_count == 1) return;
  for (LogRank& rank : comm.ranks) rank.node = -1;
}

void collect_ranks(const std::vector<View>& views, LogComm& comm) {
  std::map<std::int32_t, LogRank> ranks;
  for (const View& view : views) {
    if (view.rank < 0) continue;
    LogRank& rank = rank_of(ranks, view.rank);
    if (view.has_prefix) {
      rank.host = view.host;
      rank.pid = view.pid;
      rank.cuda_device = view.device;
    }
    if (view.cuda_device >= 0) rank.cuda_device = view.cuda_device;
    if (view.nvml_device >= 0) rank.nvml_device = view.nvml_device;
    if (view.local_rank >= 0) rank.local_rank = view.local_rank;
    if (!view.bus_id.empty()) rank.bus_id = view.bus_id;
  }
  const bool bus_ids = devices_are_bus_ids(comm);
  for (const LogConnection& connection : comm.connections) {
    add_device(connection.from_device, bus_ids, rank_of(ranks, connection.from));
    add_device(connection.to_device, bus_ids, rank_of(ranks, connection.to));
  }
  for (const LogSystem& system : comm.systems) add_ranks_of_system(system, comm, ranks);
  for (auto& [number, rank] : ranks) comm.ranks.push_back(std::move(rank));
  number_nodes(comm);
}

void collect_rings(const std::vector<View>& views, LogComm& comm, std::vector<ImportNote>& notes) {
  RingEvidence evidence;
  evidence.rank_count = comm.rank_count;
  for (const View& view : views) {
    comm.ring_count = std::max(comm.ring_count, view.ring_count);
    for (const RingLink& link : view.ring_links) {
      evidence.said.push_back({link.channel, link.rank, link.next});
      evidence.said.push_back({link.channel, link.previous, link.rank});
      comm.ring_links.push_back({link.channel, link.rank, link.next});
    }
    for (std::size_t i = 0; i < view.ring_connections; ++i) {
      const LogConnection& connection = view.connections[i];
      if (connection.index == 0)
        evidence.connected.push_back({connection.channel, connection.from, connection.to});
    }
    for (const LogRing& ring : view.rings) {
      const auto same = std::ranges::find(comm.rings, ring.channel, &LogRing::channel);
      if (same == comm.rings.end()) {
        comm.rings.push_back(ring);
      } else if (same->ranks != ring.ranks) {
        same->complete = false;
        notes.push_back(
            {ImportNote::Kind::kSuspect,
             ring.line,
             fmt::format("channel {} has another ring in line {}: two communicators may have been mixed up",
                         ring.channel, same->line),
             {}});
      }
    }
  }
  std::ranges::sort(comm.ring_links);
  std::ranges::stable_sort(comm.rings, {}, &LogRing::channel);
  for (LogRing& ring : comm.rings) settle_ring(ring, evidence, notes);
}

void note_missing_rings(const LogComm& comm, std::vector<ImportNote>& notes) {
  const std::int32_t expected =
      std::max(comm.ring_count, comm.channel_counts ? comm.channel_counts->collective : 0);
  const auto there = static_cast<std::int32_t>(comm.rings.size());
  if (there >= expected) return;
  notes.push_back(
      {ImportNote::Kind::kMissing, comm.line,
       fmt::format("{} of {} channels have their ring in the log: rank 0 prints them", there, expected),
       std::string(kGraphCommand)});
}

// A parent names its children and they name it; where both lines are there they must agree.
void check_trees(const LogComm& comm, std::vector<ImportNote>& notes) {
  std::map<std::pair<std::int32_t, std::int32_t>, const LogTree*> trees;
  for (const LogTree& tree : comm.trees) trees[{tree.channel, tree.rank}] = &tree;
  for (const LogTree& tree : comm.trees) {
    const auto parent = tree.up < 0 ? trees.end() : trees.find({tree.channel, tree.up});
    if (parent == trees.end() ||
        std::ranges::find(parent->second->down, tree.rank) != parent->second->down.end())
      continue;
    notes.push_back({ImportNote::Kind::kSuspect,
                     comm.line,
                     fmt::format("tree of channel {}: rank {} hangs off rank {}, which doesn't say so",
                                 tree.channel, tree.rank, tree.up),
                     {}});
  }
}

template <class Value>
void take_agreed(const Value& value, Value& kept, const Value& unknown, std::int32_t line,
                 std::string_view what, std::vector<ImportNote>& notes) {
  if (value == unknown || value == kept) return;
  if (kept == unknown) {
    kept = value;
    return;
  }
  notes.push_back(
      {ImportNote::Kind::kSuspect, line, fmt::format("the ranks don't agree about {}", what), {}});
}

void add_system(LogSystem system, LogComm& comm, std::vector<ImportNote>& notes) {
  for (const LogSystem& old : comm.systems) {
    if (old.host != system.host) continue;
    const bool same =
        std::ranges::equal(old.nodes, system.nodes, [](const auto& a, const auto& b) { return a.same(b); });
    if (!same) {
      notes.push_back({ImportNote::Kind::kSuspect,
                       system.line,
                       fmt::format("{} shows its machine differently in line {}: that one is kept",
                                   system.host, old.line),
                       {}});
    }
    return;
  }
  comm.systems.push_back(std::move(system));
}

void add_tuning(LogTuningTable table, LogComm& comm) {
  const bool known = std::ranges::any_of(comm.tuning, [&](const LogTuningTable& old) {
    return old.cells == table.cells && old.threads == table.threads;
  });
  if (!known) comm.tuning.push_back(std::move(table));
}

void note_broken_links(const LogComm& comm, std::vector<ImportNote>& notes) {
  for (const LogSystem& system : comm.systems) {
    for (const LogSystemNode& node : system.nodes) {
      if (node.link != "NVL" || node.gb_per_s > 0) continue;
      const LogNodeId& gpu = system.nodes[static_cast<std::size_t>(std::max(node.parent, 0))].id;
      notes.push_back(
          {ImportNote::Kind::kSuspect, node.line,
           fmt::format("GPU/{}-{:x} has no working NVLink (NVL[{:.1f}])", gpu.system, gpu.id, node.gb_per_s),
           "nvidia-smi nvlink -s on that host; run without the GPU, or reset it"});
    }
  }
}

void note_choices(const LogComm& comm, std::vector<ImportNote>& notes) {
  if (comm.tuning.size() > 1) {
    notes.push_back({ImportNote::Kind::kSuspect, comm.tuning[1].line,
                     "the ranks' tuning tables differ: they may choose different algorithms and hang",
                     "NCCL_NET_OVERHEAD the same on all hosts"});
  }
}

}  // namespace

LogComm join_views(std::vector<View> views, std::vector<ImportNote>& notes) {
  LogComm comm;
  comm.line = views.front().line;
  for (const View& view : views) {
    if (comm.id.empty()) comm.id = view.comm_id;
  }
  for (const View& view : views) {
    if (comm.id.empty()) comm.id = view.pointer;
  }
  find_rank_count(views, comm, notes);
  for (View& view : views) {
    take_agreed(view.node_count, comm.node_count, 0, view.line, "the number of nodes", notes);
    take_agreed(view.mnnvl, comm.mnnvl, -1, view.line, "MNNVL", notes);
    take_agreed(view.channel_counts, comm.channel_counts, {}, view.line, "the numbers of channels", notes);
    take_agreed(view.thread_thresholds, comm.thread_thresholds, {}, view.line, "thread thresholds", notes);
    take_agreed(view.nvls_heads, comm.nvls_heads, {}, view.line, "NVLS heads", notes);
    comm.trees.insert(comm.trees.end(), view.trees.begin(), view.trees.end());
    comm.connections.insert(comm.connections.end(), view.connections.begin(), view.connections.end());
    comm.choices.insert(comm.choices.end(), view.choices.begin(), view.choices.end());
    comm.timings.insert(comm.timings.end(), view.timings.begin(), view.timings.end());
    if (view.last_operation && view.rank >= 0) {
      comm.last_operations.push_back(*view.last_operation);
      comm.last_operations.back().rank = view.rank;
    }
    comm.ended += view.ended;
    for (LogSystem& system : view.systems) add_system(std::move(system), comm, notes);
    for (LogTuningTable& table : view.tuning) add_tuning(std::move(table), comm);
  }
  std::ranges::stable_sort(comm.last_operations, {}, &LogOperation::rank);
  std::ranges::stable_sort(comm.connections, {}, &LogConnection::line);
  std::ranges::stable_sort(comm.trees, [](const LogTree& a, const LogTree& b) {
    return std::pair(a.channel, a.rank) < std::pair(b.channel, b.rank);
  });
  for (View& view : views) {
    if (view.graphs.graphs.empty()) continue;
    view.graphs.rank = view.rank;
    number_devices(view.graphs, comm.systems, notes);
    comm.graphs.push_back(std::move(view.graphs));
  }
  collect_ranks(views, comm);
  collect_rings(views, comm, notes);
  note_missing_rings(comm, notes);
  check_trees(comm, notes);
  note_broken_links(comm, notes);
  note_choices(comm, notes);
  return comm;
}

}  // namespace orrery::nccl_log
