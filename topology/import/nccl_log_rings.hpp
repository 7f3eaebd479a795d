#pragma once
// Rings made whole, or shown not to be: from what rank 0 printed, what each rank said of its neighbours, and
// the connections that were made.

#include <cstdint>
#include <vector>

#include "topology/import/nccl_log_view.hpp"

namespace orrery::nccl_log {

// "to follows from" on a channel's ring, by somebody's word.
struct ChannelEdge {
  std::int32_t channel = 0, from = 0, to = 0;
};

struct RingEvidence {
  std::int32_t rank_count = 0;
  std::vector<ChannelEdge> said;       // "Ring cc : prev -> me -> next".
  std::vector<ChannelEdge> connected;  // Connections made for rings; those of trees may be among them.
};

// True where `ranks` are 0 … rank_count − 1, each once.
bool is_permutation(const std::vector<std::int32_t>& ranks, std::int32_t rank_count);
// Sets `complete` where the ring is whole and nobody contradicts it; completes the others where all that is
// known makes exactly one ring. Says what it did and what it couldn't.
void settle_ring(LogRing& ring, const RingEvidence& evidence, std::vector<ImportNote>& notes);

}  // namespace orrery::nccl_log
