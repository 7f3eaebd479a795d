#pragma once
// What every op of a transformer graph means, in double precision: plain loops for models of a few hundred
// weights, on one rank's part of the tensors. Written down independently of autodiff and of lowering, so
// that gradients can be compared with differences of the loss, and divided programs with whole graphs.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"

namespace orrery::host {

// A tensor, or a rank's part of one: row-major. Ids, labels and picks are whole numbers.
using Values = std::vector<double>;

// What a rank sees of an op.
struct OpView {
  Sizes sizes;  // Local, by dimension of the graph.
  // Position in the sequence of each local token; empty: 0, 1, … Attention may see more keys than queries:
  // then these are the queries', and the keys have their own.
  std::vector<std::int64_t> positions, key_positions;
  // Attention: these are the first of several blocks of keys. The sinks count, and get their gradient, there.
  bool first_keys = true;
  std::int64_t vocab_begin = 0;  // The first local entry of the vocabulary.
  std::int64_t vocab = 0;  // Entries of the whole vocabulary; what lies beyond is padding. 0: all count.
  std::int64_t loss_tokens = 0;  // Tokens that the loss is a mean over; 0: the local ones.
};

// Writes the outputs from the inputs (both in the op's order); adds into gradients of parameters. Outputs
// have their size already. REQUIRES: a forward or backward op of a transformer, not of imported graphs.
void run_op(const Graph& graph, const Op& op, const OpView& view, const std::vector<Values*>& inputs,
            const std::vector<Values*>& outputs);

}  // namespace orrery::host
