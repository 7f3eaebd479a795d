// Which views are of one communicator. Newer logs give it an id; else ranks, counts and hosts decide.
#include <fmt/format.h>

#include <algorithm>

#include "topology/import/nccl_log_rings.hpp"

namespace orrery::nccl_log {
namespace {

template <class Value>
bool differ(const Value& a, const Value& b, const Value& unknown) {
  return a != unknown && b != unknown && a != b;
}

bool same_process(const View& a, const View& b) { return a.host == b.host && a.pid == b.pid; }

// As many ranks as a view's rings go round, where all of them do; else what it states, or 0.
std::int32_t size_of(const View& view) {
  if (view.rank_count > 0 || view.rings.empty()) return view.rank_count;
  const auto size = static_cast<std::int32_t>(view.rings.front().ranks.size());
  const bool all = std::ranges::all_of(
      view.rings, [&](const LogRing& ring) { return ring.complete && is_permutation(ring.ranks, size); });
  return all ? size : 0;
}

// Two views can't be of one communicator when they contradict each other, or both speak for one rank.
bool contradict(const View& a, const View& b) {
  if (differ(a.comm_id, b.comm_id, {}) || differ(size_of(a), size_of(b), 0)) return true;
  if (differ(a.ring_count, b.ring_count, 0)) return true;
  if (a.channel_counts && b.channel_counts && *a.channel_counts != *b.channel_counts) return true;
  if (differ(a.thread_thresholds, b.thread_thresholds, {})) return true;
  if (size_of(a) > 0 && b.rank >= size_of(a)) return true;
  if (size_of(b) > 0 && a.rank >= size_of(b)) return true;
  if (!a.has_prefix || !b.has_prefix) return false;
  if (same_process(a, b) && a.tid == b.tid && a.device == b.device) return true;
  if (same_process(a, b) && differ(a.pointer, b.pointer, {}) && a.device == b.device) return true;
  if (a.rank >= 0 && a.rank == b.rank) {
    return !same_process(a, b) || !(a.rings.empty() || b.rings.empty()) ||
           !(a.trees.empty() || b.trees.empty());
  }
  return (a.rank < 0 || b.rank < 0) && a.host == b.host && a.device == b.device;
}

struct Candidate {
  std::size_t group = 0;
  int score = 0;
};

int score(const View& view, const std::vector<View>& group) {
  int best = 0;
  for (const View& member : group) {
    const int same_id = !view.comm_id.empty() && view.comm_id == member.comm_id ? 4 : 0;
    best = std::max(best, same_id + (view.host == member.host ? 2 : 0));
  }
  return best;
}

}  // namespace

std::vector<std::vector<View>> group_views(std::vector<View> views, std::vector<ImportNote>& notes) {
  std::vector<std::vector<View>> groups;
  bool said = false;
  for (View& view : views) {
    std::vector<Candidate> candidates;
    for (std::size_t g = groups.size(); g-- > 0;) {
      const bool fits =
          std::ranges::none_of(groups[g], [&](const View& member) { return contradict(view, member); });
      if (fits) candidates.push_back({g, score(view, groups[g])});
    }
    if (candidates.empty()) {
      groups.emplace_back().push_back(std::move(view));
      continue;
    }
    // The latest of the best.
    const Candidate best = *std::ranges::max_element(candidates, {}, &Candidate::score);
    const auto equals = std::ranges::count(candidates, best.score, &Candidate::score);
    if (equals > 1 && !said) {
      said = true;
      notes.push_back(
          {ImportNote::Kind::kAssumed, view.line,
           "from here on it isn't sure which of several communicators a rank's lines belong to: told apart "
           "by host and order",
           "NCCL 2.18 and later print a commId with NCCL_DEBUG_SUBSYS=INIT; or give the log of one job "
           "step"});
    }
    groups[best.group].push_back(std::move(view));
  }
  return groups;
}

}  // namespace orrery::nccl_log
