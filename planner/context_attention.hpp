#pragma once
// How the pairs of a query and a key are shared out when the sequence is divided in zigzag order: of 2n equal
// pieces, position i has pieces i and 2n − 1 − i, so that under a causal mask every position sees as many
// keys (Brandon et al. 2023, Striped Attention, for the imbalance; the zigzag order is that of Megatron-LM
// and of Grattafiori et al. 2024, §3.3.2).

#include <cstdint>

#include "model/graph.hpp"

namespace orrery {

// Pairs that the position with the most of them works on, of one sequence and head, counted as
// attention_pairs(…) counts them. `sequence`: over all positions.
double context_pairs(const OpAttributes& attributes, std::int64_t sequence, std::int32_t degree);

// The same of one step of a ring: the queries of position p meet the keys of position p − step (cyclic).
double ring_step_pairs(const OpAttributes& attributes, std::int64_t sequence, std::int32_t degree,
                       std::int32_t step);

}  // namespace orrery
