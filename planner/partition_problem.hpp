#pragma once
// What a placement of single ops starts from: the ops that have to stay together, what they cost, and how
// many bytes pass between them.

#include <cstdint>
#include <map>
#include <vector>

#include "base/sim_time.hpp"
#include "model/graph.hpp"
#include "planner/launch.hpp"
#include "planner/plan.hpp"
#include "planner/sharding.hpp"
#include "planner/stage_template.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// A weighted, undirected graph: what a partitioner cuts.
struct PieceGraph {
  std::vector<double> cost_s;      // By vertex, of one micro-batch.
  std::vector<std::int32_t> size;  // By vertex: ops of the Graph.
  // By vertex: bytes to and from each neighbour. A tensor with several readers is shared out among them.
  std::vector<std::map<std::int32_t, std::int64_t>> traffic;

  std::int32_t vertices() const { return static_cast<std::int32_t>(size.size()); }
  std::int32_t total_size() const;
  double total_cost_s() const;
};

// The graph of the parts of `graph`, `part_of` by vertex.
PieceGraph quotient(const PieceGraph& graph, const std::vector<std::int32_t>& part_of, std::int32_t parts);

class PartitionProblem {
 public:
  // `plan` says how long sequences, how large micro-batches and how many there are, the types and the kernel
  // set; its degrees don't count. THROWS Error(kInfeasible) for what placed ops can't do: full recompute, a
  // batch that isn't divided by the micro-batch. REQUIRES: verify(graph) is empty; all arguments outlive the
  // problem.
  PartitionProblem(const Graph& graph, const PlanShorthand& plan, const Cluster& cluster,
                   const Profile& profile);

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const GraphIndex& index() const { return index_; }
  const Sharding& sharding() const { return sharding_; }
  const Router& router() const { return router_; }
  std::int32_t devices() const { return router_.cluster().gpu_count(); }
  std::int32_t microbatches() const { return static_cast<std::int32_t>(plan_.replicas.front().microbatches); }

  // Launches of one micro-batch in an order in which they could run, forward and backward.
  const std::vector<Launch>& launches() const { return launches_; }
  Kernel kernel(const Launch& launch) const;
  SimTime time(const Launch& launch) const;
  std::int64_t bytes(TensorId tensor) const { return sharding_.stored_bytes(tensor); }
  // An activation, or its gradient: what is sent where its reader is on another device.
  bool travels(TensorId tensor) const;

  // Vertices are groups of ops: a forward op with its backward and with the optimiser ops of its parameters,
  // so that every weight is on one device; forward ops that use one parameter (a tied table) are one group.
  // Numbered by their first op.
  const PieceGraph& groups() const { return groups_; }
  std::int32_t group_of(OpId op) const { return group_of_[op.index()]; }
  std::int32_t block_of(std::int32_t group) const { return block_of_[static_cast<std::size_t>(group)]; }

 private:
  void make_launches();
  void make_groups();
  void weigh_groups();

  const Graph& graph_;
  const Profile& profile_;
  Plan plan_;
  GraphIndex index_;
  Sharding sharding_;
  Router router_;
  std::vector<Launch> launches_;
  PieceGraph groups_;
  std::vector<std::int32_t> group_of_;  // By op.
  std::vector<std::int32_t> block_of_;  // By group: of its first op.
};

}  // namespace orrery
