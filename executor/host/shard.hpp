#pragma once
// Which part of a tensor a rank has, as its Placement says: for each dimension the global indices of the
// local entries. What a collective does to tensors follows from these alone.

#include <cstdint>
#include <vector>

#include "executor/host/reference_op.hpp"
#include "model/program.hpp"

namespace orrery::host {

struct Shard {
  std::vector<std::vector<std::int64_t>> indices;  // By dimension of the tensor's shape, outermost first.

  std::size_t size() const;  // Elements.
};

// `at`: where the rank stands, by axis.
Shard shard_of(const Graph& graph, const Program& program, TensorId tensor, PlacementId placement,
               const std::vector<Coordinate>& at);

// The piece of the sequence that an instruction works on; all of it where the tensor has none. `segments`:
// the runs that the shard's sequence is cut into.
Shard piece_of(const Graph& graph, TensorId tensor, const Shard& shard, const Piece& piece,
               std::int32_t segments);

// Position in the whole tensor (row-major, of these global sizes by dimension) of each local element.
std::vector<std::size_t> positions_in_whole(const Shard& shard, const std::vector<std::int64_t>& whole_sizes);

// For each element of `to`, where `from` has it; −1: it doesn't.
std::vector<std::int64_t> positions_in(const Shard& to, const Shard& from);

}  // namespace orrery::host
