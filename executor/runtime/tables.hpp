#pragma once
// What binding looks up: where a rank's buffers lie, which part of which tensor they hold, and who meets
// whom.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/runtime/owned.hpp"
#include "executor/runtime/runs.hpp"
#include "executor/runtime/world.hpp"

namespace orrery::host {

class Tables {
 public:
  Tables(const Graph& graph, const World& world);

  const Graph& graph() const { return graph_; }
  const Program& program() const { return program_; }
  const World& world() const { return world_; }
  const Role& role(RankId rank) const { return world_.role(rank); }
  const Coordinate& at(RankId rank, AxisId axis) const { return at_[axis.index()][rank.index()]; }
  const std::vector<Coordinate>& at(RankId rank) { return of(rank).at; }  // By axis.
  const std::vector<RankId>& group(RankId rank, AxisId axis) const;

  // Of a buffer that holds a tensor.
  const Shard& shard(RankId rank, BufferId buffer);
  // Elements of every buffer of the rank's role, of fp32 where it holds no tensor.
  const std::vector<std::int64_t>& elements(RankId rank);
  const std::vector<DividedGradient>& divided(RankId rank);
  TensorView view(RankId rank, BufferId buffer);
  // The gradient's buffer of the parameter that this one holds; invalid: there is none.
  BufferId gradient_of(RankId rank, BufferId parameter) const;
  // Whether no rank before this one has the same elements of the same tensor, of a parameter or a gradient.
  bool counts(RankId rank, BufferId buffer);
  // The instruction's operands that hold tensors, in order.
  std::vector<Operand> operands(RankId rank, const Instruction& instruction) const;
  std::string name(RankId rank, const Instruction& instruction) const;

  // The other side of a message, and a group's sides of a collective in the order of positions.
  std::pair<RankId, std::int32_t> other_side(RankId rank, std::int32_t instruction);
  std::vector<std::pair<RankId, std::int32_t>> sides(RankId rank, std::int32_t instruction);

 private:
  // Kind of work, axis, and for messages the other rank.
  using Meeting = std::tuple<std::size_t, std::int32_t, std::int32_t>;
  struct OfRank {
    std::vector<Coordinate> at;
    std::unordered_map<std::int32_t, Shard> shards;
    std::vector<std::int64_t> elements;
    std::vector<DividedGradient> divided;
    std::map<Meeting, std::vector<std::int32_t>> meetings;  // Their instructions, in order.
  };
  OfRank& of(RankId rank);
  Meeting meeting(RankId rank, const Work& work) const;
  std::int32_t number(RankId rank, std::int32_t instruction);

  const Graph& graph_;
  const World& world_;
  const Program& program_;
  std::vector<std::vector<Coordinate>> at_;
  std::unordered_map<std::int32_t, OfRank> ranks_;
};

}  // namespace orrery::host
