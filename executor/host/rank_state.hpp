#pragma once
// One rank while it runs a step: where it stands on each axis, and what its buffers hold.

#include <cstdint>
#include <limits>
#include <vector>

#include "executor/host/shard.hpp"
#include "model/program.hpp"

namespace orrery::host {

// Not a value: never written, or left over by a collective that gave this part to others.
inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

class RankState {
 public:
  RankState(const Graph& graph, const Program& program, RankId rank, std::vector<Coordinate> at);

  const Role& role() const { return *role_; }
  RankId rank() const { return rank_; }
  const std::vector<Coordinate>& at() const { return at_; }

  // Whether the buffer holds a tensor of the graph; the others count for time and memory alone.
  bool has_tensor(BufferId buffer) const { return role_->buffers[buffer.index()].tensor.valid(); }
  const Shard& shard(BufferId buffer) const { return shards_[buffer.index()]; }
  Values load(BufferId buffer) const;
  void store(BufferId buffer, const Values& values);
  // A part of it; the rest stays as it is.
  void store(BufferId buffer, const Shard& part, const Values& values);
  // Whether anything was stored in it.
  bool written(BufferId buffer) const { return written_[buffer.index()]; }

  // The instruction's operands that hold tensors, in order.
  std::vector<Operand> operands(const Instruction& instruction) const;

 private:
  const Role* role_;
  RankId rank_;
  std::vector<Coordinate> at_;
  std::vector<Shard> shards_;  // By buffer.
  std::vector<Values> own_;    // By buffer: of those that no memory plan has placed.
  std::vector<bool> written_;  // By buffer.
  std::vector<double> arena_;  // By byte of the rank's memory: the element that begins there.
};

}  // namespace orrery::host
