#include "planner/partition_problem.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "simulator/cost.hpp"

namespace orrery {
namespace {

// Everything on one rank: launches of whole tensors.
Plan whole_plan(const PlanShorthand& shorthand, const Graph& graph) {
  Plan plan = shorthand.settings;
  if (plan.recompute != Recompute::kNone) {
    fail(ErrorKind::kInfeasible,
         "plan.recompute: ops that are placed one by one are not recomputed; leave it out");
  }
  const std::int64_t microbatches = shorthand.global_batch / plan.microbatch_size;
  if (microbatches < 1 || shorthand.global_batch % plan.microbatch_size != 0) {
    fail(ErrorKind::kInfeasible, "global_batch: {} isn't a multiple of plan.microbatch, {}",
         shorthand.global_batch, plan.microbatch_size);
  }
  plan.context_parallel = plan.expert_parallel = 1;
  plan.sequence_parallel = false;
  plan.zero_stage = 0;
  plan.replicas = {{{{0, graph.block_count(), {RankId(0)}}}, microbatches}};
  return plan;
}

// Disjoint sets of ops, named by their smallest member.
class OpSets {
 public:
  explicit OpSets(std::size_t ops) : parent_(ops) { std::iota(parent_.begin(), parent_.end(), 0); }

  std::size_t find(std::size_t op) {
    while (parent_[op] != op) op = parent_[op] = parent_[parent_[op]];
    return op;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a), b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace

std::int32_t PieceGraph::total_size() const { return std::accumulate(size.begin(), size.end(), 0); }
double PieceGraph::total_cost_s() const { return std::accumulate(cost_s.begin(), cost_s.end(), 0.0); }

PieceGraph quotient(const PieceGraph& graph, const std::vector<std::int32_t>& part_of, std::int32_t parts) {
  PieceGraph result;
  result.cost_s.resize(static_cast<std::size_t>(parts));
  result.size.resize(static_cast<std::size_t>(parts));
  result.traffic.resize(static_cast<std::size_t>(parts));
  for (std::size_t v = 0; v < graph.size.size(); ++v) {
    const auto part = static_cast<std::size_t>(part_of[v]);
    result.cost_s[part] += graph.cost_s[v];
    result.size[part] += graph.size[v];
    for (const auto& [other, bytes] : graph.traffic[v]) {
      const std::int32_t to = part_of[static_cast<std::size_t>(other)];
      if (to != part_of[v]) result.traffic[part][to] += bytes;
    }
  }
  return result;
}

PartitionProblem::PartitionProblem(const Graph& graph, const PlanShorthand& plan, const Cluster& cluster,
                                   const Profile& profile)
    : graph_(graph),
      profile_(profile),
      plan_(whole_plan(plan, graph)),
      index_(graph),
      sharding_(graph, plan_, {}),
      router_(cluster) {
  make_launches();
  make_groups();
  weigh_groups();
}

// Only ops that stand next to each other become one launch, so that wherever they run nothing between them
// can wait for another device.
void PartitionProblem::make_launches() {
  const KernelSet* const kernels = find_kernel_set(plan_.kernel_set);
  assert(kernels != nullptr);
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    std::vector<OpId> ops;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase == phase) ops.emplace_back(static_cast<std::int64_t>(o));
    }
    for (Launch& launch : cut_launches(graph_, sharding_, ops, *kernels, phase == Phase::kForward)) {
      launches_.push_back(std::move(launch));
    }
  }
}

Kernel PartitionProblem::kernel(const Launch& launch) const {
  return launch_kernel(graph_, index_, plan_, sharding_, launch);
}

SimTime PartitionProblem::time(const Launch& launch) const {
  return kernel_time(kernel(launch), router_.cluster().node.gpu, profile_);
}

bool PartitionProblem::travels(TensorId tensor) const {
  const TensorKind kind = graph_[tensor].kind;
  return kind == TensorKind::kActivation || kind == TensorKind::kGradient;
}

void PartitionProblem::make_groups() {
  const std::size_t ops = graph_.ops.size();
  OpSets sets(ops);
  std::vector<OpId> first_user(graph_.tensors.size());  // By parameter.
  for (std::size_t o = 0; o < ops; ++o) {
    const Op& op = graph_.ops[o];
    if (op.forward_of.valid()) sets.join(o, op.forward_of.index());
    for (const TensorId input : op.inputs) {
      if (graph_[input].kind != TensorKind::kParameter) continue;
      OpId& first = first_user[input.index()];
      if (first.valid()) {
        sets.join(o, first.index());
      } else {
        first = OpId(static_cast<std::int64_t>(o));
      }
    }
  }
  group_of_.assign(ops, -1);
  for (std::size_t o = 0; o < ops; ++o) {
    const std::size_t root = sets.find(o);
    if (root == o) {
      group_of_[o] = static_cast<std::int32_t>(std::ssize(block_of_));
      block_of_.push_back(graph_.ops[o].block);
    } else {
      group_of_[o] = group_of_[root];
    }
  }
}

void PartitionProblem::weigh_groups() {
  groups_.cost_s.resize(block_of_.size());
  groups_.size.resize(block_of_.size());
  groups_.traffic.resize(block_of_.size());
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const OpId op(static_cast<std::int64_t>(o));
    const auto group = static_cast<std::size_t>(group_of(op));
    ++groups_.size[group];
    const bool once = graph_[op].phase == Phase::kOptimizer;  // Once a step, not for every micro-batch.
    groups_.cost_s[group] += time({{op}}).seconds() / (once ? microbatches() : 1);
    for (const TensorId output : graph_[op].outputs) {
      if (!travels(output)) continue;
      std::set<std::int32_t> readers;
      for (const OpId reader : index_.readers[output.index()]) readers.insert(group_of(reader));
      readers.erase(group_of(op));
      // Readers on one device get it once: each has its share, so that a cut through all of them counts it
      // once.
      for (const std::int32_t reader : readers) {
        const std::int64_t share = bytes(output) / std::ssize(readers);
        groups_.traffic[group][reader] += share;
        groups_.traffic[static_cast<std::size_t>(reader)][group_of(op)] += share;
      }
    }
  }
}

}  // namespace orrery
