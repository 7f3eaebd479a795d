#pragma once
// Which elements of a rank's persistent buffers are its own to update, and which of them it counts where each
// element of the model has to count once.

#include <cstdint>
#include <vector>

#include "executor/host/shard.hpp"
#include "model/program.hpp"

namespace orrery::host {

class Tables;

// Elements of a buffer, counted in it.
struct Elements {
  std::int64_t begin = 0, end = 0;
  bool operator==(const Elements&) const = default;
  std::int64_t size() const { return end - begin; }
};

// The type that a tensor's buffer is in: the tensor's own, or that which sums or a loss are kept in, as its
// bytes say.
DType dtype_of(const Graph& graph, const Program& program, const Buffer& buffer);

// The part of a concatenation that the rank at `position` of `ranks` owns: equal parts, rounded up.
Elements own_part(std::int64_t elements, std::int64_t ranks, std::int64_t position);

// A gradient that a reduce-scatter in place divides (ZeRO 1) is whole in memory, but only a part is a sum.
struct DividedGradient {
  BufferId buffer;
  Elements own;                  // Empty: other ranks' alone.
  std::int64_t collective = -1;  // The instruction that divides it; −1: nobody does, all of it is the rank's.
  std::int64_t at = 0;           // Where `own` begins in the rank's part of that collective's concatenation.
};
// By buffer of the role; others than gradients stay as they are declared here.
std::vector<DividedGradient> divided_gradients(const Program& program, RankId rank,
                                               const std::vector<std::int64_t>& elements);

// What the optimiser does with neighbouring elements: those of a gradient, of its parameter and of a state
// buffer (m and v; with a compute type below fp32 the master weights before them), which holds `capacity` of
// each. The state of a divided bucket lies in its state buffers one after the other, whosever parameter they
// are named after.
struct UpdateSegment {
  BufferId gradient, weights, state;
  std::int64_t at = 0;  // In the gradient.
  std::int64_t state_at = 0, count = 0, capacity = 0;
};
std::vector<UpdateSegment> update_segments(Tables& tables, RankId rank, const Instruction& update);

}  // namespace orrery::host
