#include "planner/regroup.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace orrery {
namespace {

// The ranks of one pipeline position.
using Block = std::vector<RankId>;

class Mending {
 public:
  Mending(const Plan& plan, std::span<const RankId> lost, std::int32_t gpus_per_node)
      : plan_(plan), lost_(lost.begin(), lost.end()), gpus_per_node_(gpus_per_node) {
    find_spares();
    for (const PipelineReplica& replica : plan.replicas) {
      std::vector<Block>& blocks = blocks_.emplace_back();
      for (const auto* const ranks : pipeline_positions(replica)) blocks.push_back(*ranks);
    }
  }

  // Fewest wounds first; who can't be mended is taken apart for the others, most wounds first.
  void mend() {
    std::vector<std::size_t> wounded;
    for (std::size_t r = 0; r < blocks_.size(); ++r)
      if (wounds(r) > 0) wounded.push_back(r);
    std::ranges::stable_sort(wounded, {}, [&](std::size_t r) { return wounds(r); });
    while (!wounded.empty()) {
      const std::size_t patient = wounded.front();
      while (spares_.size() < wounds(patient) && wounded.size() > 1) {
        take_apart(wounded.back());
        wounded.pop_back();
      }
      wounded.erase(wounded.begin());
      if (spares_.size() < wounds(patient)) {
        take_apart(patient);
      } else {
        replace_blocks(patient);
      }
    }
  }

  Regrouped result() {
    Regrouped regrouped;
    regrouped.plan = plan_;
    regrouped.plan.replicas.clear();
    for (std::size_t r = 0; r < blocks_.size(); ++r) {
      if (blocks_[r].empty()) continue;
      PipelineReplica replica = plan_.replicas[r];
      const auto positions = pipeline_positions(plan_.replicas[r]);
      for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        const auto at = std::ranges::find_if(
            positions, [&](const auto* ranks) { return *ranks == plan_.replicas[r].stages[s].ranks; });
        replica.stages[s].ranks = blocks_[r][static_cast<std::size_t>(at - positions.begin())];
      }
      regrouped.plan.replicas.push_back(std::move(replica));
    }
    regrouped.moved.assign(moved_.begin(), moved_.end());
    return regrouped;
  }

 private:
  bool is_lost(RankId rank) const { return lost_.contains(rank); }
  bool is_whole(const Block& block) const {
    return std::ranges::none_of(block, [&](RankId rank) { return is_lost(rank); });
  }
  std::size_t wounds(std::size_t replica) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(blocks_[replica], [&](const Block& block) { return !is_whole(block); }));
  }

  // Full groups of idle ranks: of one node each where they fit into one.
  void find_spares() {
    const std::size_t degree = plan_.replicas.front().stages.front().ranks.size();
    std::vector<RankId> idle;
    for (const RankId rank : plan_.idle)
      if (!is_lost(rank)) idle.push_back(rank);
    std::ranges::sort(idle);
    const bool in_node = degree <= static_cast<std::size_t>(gpus_per_node_);
    Block next;
    for (const RankId rank : idle) {
      const bool other_node =
          !next.empty() && next.back().value / gpus_per_node_ != rank.value / gpus_per_node_;
      if (in_node && other_node) next.clear();
      next.push_back(rank);
      if (next.size() < degree) continue;
      spares_.push_back(std::move(next));
      next.clear();
    }
  }

  void take_apart(std::size_t replica) {
    for (Block& block : blocks_[replica])
      if (is_whole(block)) spares_.push_back(std::move(block));
    blocks_[replica].clear();
  }

  void replace_blocks(std::size_t replica) {
    for (Block& block : blocks_[replica]) {
      if (is_whole(block)) continue;
      block = spares_.front();
      spares_.erase(spares_.begin());
      moved_.insert(block.begin(), block.end());
    }
  }

  const Plan& plan_;
  const std::set<RankId> lost_;
  const std::int32_t gpus_per_node_;
  std::vector<Block> spares_;
  std::vector<std::vector<Block>> blocks_;  // By replica, then pipeline position; none: dropped.
  std::set<RankId> moved_;
};

// Ranks that no replica has.
void set_idle(Plan& plan, std::int32_t world) {
  std::vector<bool> busy(static_cast<std::size_t>(world));
  for (const PipelineReplica& replica : plan.replicas)
    for (const Stage& stage : replica.stages)
      for (const RankId rank : stage.ranks) busy[rank.index()] = true;
  plan.idle.clear();
  for (std::int32_t rank = 0; rank < world; ++rank)
    if (!busy[static_cast<std::size_t>(rank)]) plan.idle.emplace_back(rank);
}

void share_microbatches(Plan& plan, std::int64_t total) {
  const std::int64_t replicas = std::ssize(plan.replicas);
  for (std::int64_t r = 0; r < replicas; ++r)
    plan.replicas[static_cast<std::size_t>(r)].microbatches =
        total / replicas + (r < total % replicas ? 1 : 0);
}

// State that ZeRO divides over all replicas is lost with any of them; divided in groups, another group has
// it; undivided, any other replica.
bool is_covered(const Plan& plan, std::span<const RankId> lost) {
  const std::set<RankId> gone(lost.begin(), lost.end());
  std::vector<std::vector<const Block*>> by_replica;
  for (const PipelineReplica& replica : plan.replicas) by_replica.push_back(pipeline_positions(replica));
  const bool in_groups = plan.zero_group > 0 && plan.context_parallel == 1;
  const std::size_t shards = plan.zero_stage == 0 ? 1
                             : in_groups          ? static_cast<std::size_t>(plan.zero_group)
                                                  : by_replica.size();
  for (std::size_t position = 0; position < by_replica.front().size(); ++position)
    for (std::size_t i = 0; i < by_replica.front()[position]->size(); ++i)
      for (std::size_t shard = 0; shard < shards; ++shard) {
        bool held = false;
        for (std::size_t r = shard; r < by_replica.size() && !held; r += shards)
          held = position < by_replica[r].size() && !gone.contains((*by_replica[r][position])[i]);
        if (!held) return false;
      }
  return true;
}

}  // namespace

Regrouped regroup(const Plan& plan, const Graph& graph, std::span<const RankId> lost,
                  std::int32_t gpus_per_node, bool keep_batch) {
  Mending mending(plan, lost, gpus_per_node);
  mending.mend();
  Regrouped found = mending.result();
  found.covered = is_covered(plan, lost);
  const std::int32_t world = plan.world_size();
  std::int64_t total = 0;
  for (const PipelineReplica& replica : plan.replicas) total += replica.microbatches;
  std::string reason = "every pipeline replica has lost a rank, and no idle ranks can take its place";
  for (; !found.plan.replicas.empty(); found.plan.replicas.pop_back()) {
    if (keep_batch) share_microbatches(found.plan, total);
    set_idle(found.plan, world);
    const std::vector<std::string> faults = check(found.plan, graph);
    if (!faults.empty()) {
      reason = faults.front();
      continue;
    }
    found.dropped = static_cast<std::int32_t>(plan.replicas.size() - found.plan.replicas.size());
    return found;
  }
  fail(ErrorKind::kInfeasible, "re-group: {}", reason);
}

}  // namespace orrery
