#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "topology/import/nccl_log_rings.hpp"

namespace orrery::nccl_log {
namespace {

// Each rank's next; nothing when two of them say different things.
class Successors {
 public:
  bool add(std::int32_t from, std::int32_t to) {
    const auto [next, is_new] = next_.try_emplace(from, to);
    if (!is_new) return next->second == to;
    return previous_.try_emplace(to, from).second;
  }
  // From rank 0 around; nothing unless that is every rank once.
  std::optional<std::vector<std::int32_t>> ring(std::int32_t rank_count) const {
    if (static_cast<std::size_t>(rank_count) != next_.size()) return std::nullopt;
    std::vector<std::int32_t> ranks;
    std::int32_t at = 0;
    do {
      ranks.push_back(at);
      const auto next = next_.find(at);
      if (next == next_.end() || ranks.size() > next_.size()) return std::nullopt;
      at = next->second;
    } while (at != 0);
    if (!is_permutation(ranks, rank_count)) return std::nullopt;
    return ranks;
  }

 private:
  std::map<std::int32_t, std::int32_t> next_, previous_;
};

bool add_all(const std::vector<ChannelEdge>& edges, std::int32_t channel, Successors& successors) {
  return std::ranges::all_of(edges, [&](const ChannelEdge& edge) {
    return edge.channel != channel || successors.add(edge.from, edge.to);
  });
}

// What is printed of it, but for its last number: where a line was cut, that may have lost digits.
bool add_beginning(const std::vector<std::int32_t>& ranks, Successors& successors) {
  for (std::size_t i = 0; i + 2 < ranks.size(); ++i) {
    if (!successors.add(ranks[i], ranks[i + 1])) return false;
  }
  return true;
}

bool contradicted(const LogRing& ring, const RingEvidence& evidence) {
  std::map<std::int32_t, std::int32_t> next;
  for (std::size_t i = 0; i < ring.ranks.size(); ++i)
    next[ring.ranks[i]] = ring.ranks[(i + 1) % ring.ranks.size()];
  return std::ranges::any_of(evidence.said, [&](const ChannelEdge& edge) {
    return edge.channel == ring.channel && (!next.contains(edge.from) || next[edge.from] != edge.to);
  });
}

bool starts_with_zero(const LogRing& ring) { return !ring.ranks.empty() && ring.ranks.front() == 0; }

}  // namespace

bool is_permutation(const std::vector<std::int32_t>& ranks, std::int32_t rank_count) {
  if (rank_count <= 0 || ranks.size() != static_cast<std::size_t>(rank_count)) return false;
  std::vector<bool> seen(ranks.size());
  for (const std::int32_t rank : ranks) {
    if (rank < 0 || rank >= rank_count || seen[static_cast<std::size_t>(rank)]) return false;
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return true;
}

void settle_ring(LogRing& ring, const RingEvidence& evidence, std::vector<ImportNote>& notes) {
  if (ring.complete && is_permutation(ring.ranks, evidence.rank_count)) {
    if (starts_with_zero(ring) && !contradicted(ring, evidence)) return;
    ring.complete = false;
    notes.push_back(
        {ImportNote::Kind::kSuspect,
         ring.line,
         fmt::format("the ring of channel {} doesn't begin with rank 0, or isn't the one that the ranks say: "
                     "kept as incomplete",
                     ring.channel),
         {}});
    return;
  }
  ring.complete = false;
  Successors successors;
  const bool agree =
      add_beginning(ring.ranks, successors) && add_all(evidence.said, ring.channel, successors);
  auto whole = agree ? successors.ring(evidence.rank_count) : std::nullopt;
  std::string_view from = "the ranks' Ring lines";
  if (!whole && agree && add_all(evidence.connected, ring.channel, successors)) {
    whole = successors.ring(evidence.rank_count);
    from = "the connections";
  }
  if (whole) {
    notes.push_back({ImportNote::Kind::kRepaired,
                     ring.line,
                     fmt::format("the ring of channel {} is cut off behind {} of {} ranks: completed from {}",
                                 ring.channel, ring.ranks.size(), evidence.rank_count, from),
                     {}});
    ring.ranks = std::move(*whole);
    ring.complete = true;
    return;
  }
  const std::string of = evidence.rank_count > 0 ? fmt::format(" of {}", evidence.rank_count) : std::string();
  notes.push_back(
      {ImportNote::Kind::kMissing, ring.line,
       fmt::format("the ring of channel {} is cut off or torn behind {}{} ranks, and the rest of the log "
                   "doesn't complete it",
                   ring.channel, ring.ranks.size(), of),
       "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH of all ranks prints each rank's neighbours; NCCL 2.23 "
       "and later print whole rings"});
}

}  // namespace orrery::nccl_log
