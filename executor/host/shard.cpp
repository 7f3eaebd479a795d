#include "executor/host/shard.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::host {
namespace {

// Calls `visit(element, index by dimension)` for the elements in order.
template <class Visit>
void each_element(const Shard& shard, Visit visit) {
  std::vector<std::size_t> at(shard.indices.size(), 0);
  for (std::size_t element = 0; element < shard.size(); ++element) {
    visit(element, at);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < shard.indices[d].size()) break;
      at[d] = 0;
    }
  }
}

using Indices = std::vector<std::int64_t>;

// Equal pieces, rounded up: the last ones may have less.
Indices part(const Indices& all, std::size_t pieces, std::size_t piece) {
  const std::size_t length = (all.size() + pieces - 1) / pieces;
  const std::size_t begin = std::min(piece * length, all.size());
  const std::size_t end = std::min(begin + length, all.size());
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

Indices divide(const Indices& all, std::size_t degree, std::size_t position, bool zigzag) {
  if (!zigzag) return part(all, degree, position);
  Indices mine = part(all, 2 * degree, position);
  const Indices mirrored = part(all, 2 * degree, 2 * degree - 1 - position);
  mine.insert(mine.end(), mirrored.begin(), mirrored.end());
  return mine;
}

}  // namespace

std::size_t Shard::size() const {
  return std::accumulate(indices.begin(), indices.end(), std::size_t{1},
                         [](std::size_t product, const Indices& dim) { return product * dim.size(); });
}

Shard shard_of(const Graph& graph, const Program& program, TensorId tensor, PlacementId placement,
               const std::vector<Coordinate>& at) {
  Shard shard;
  for (const DimId dim : graph[tensor].shape) {
    Indices& indices = shard.indices.emplace_back(static_cast<std::size_t>(program.sizes[dim.index()]));
    std::iota(indices.begin(), indices.end(), 0);
    if (!placement.valid()) continue;
    for (const Split& split : program.placements[placement.index()].splits) {
      if (split.dim != dim) continue;
      const Coordinate& here = at[split.axis.index()];
      const auto& group = program.axes[split.axis.index()].groups[static_cast<std::size_t>(here.group)];
      const auto ranks = static_cast<std::int32_t>(group.size());
      const std::int32_t part = ((here.position - split.shift) % ranks + ranks) % ranks;
      indices = divide(indices, group.size(), static_cast<std::size_t>(part), split.zigzag);
    }
  }
  return shard;
}

Shard piece_of(const Graph& graph, TensorId tensor, const Shard& shard, const Piece& piece,
               std::int32_t segments) {
  Shard result = shard;
  if (piece.of == 1) return result;
  const auto& shape = graph[tensor].shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (graph[shape[d]].role != DimRole::kSequence) continue;
    result.indices[d].clear();
    for (std::int32_t s = 0; s < segments; ++s) {
      const Indices run =
          part(shard.indices[d], static_cast<std::size_t>(segments), static_cast<std::size_t>(s));
      const Indices mine =
          part(run, static_cast<std::size_t>(piece.of), static_cast<std::size_t>(piece.index));
      result.indices[d].insert(result.indices[d].end(), mine.begin(), mine.end());
    }
  }
  return result;
}

std::vector<std::size_t> positions_in_whole(const Shard& shard,
                                            const std::vector<std::int64_t>& whole_sizes) {
  std::vector<std::size_t> found(shard.size());
  each_element(shard, [&](std::size_t element, const std::vector<std::size_t>& at) {
    std::size_t position = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      position = position * static_cast<std::size_t>(whole_sizes[d]) +
                 static_cast<std::size_t>(shard.indices[d][at[d]]);
    }
    found[element] = position;
  });
  return found;
}

std::vector<std::int64_t> positions_in(const Shard& to, const Shard& from) {
  // By dimension: local index in `from` of each local entry of `to`.
  std::vector<Indices> where;
  for (std::size_t d = 0; d < to.indices.size(); ++d) {
    Indices& dim = where.emplace_back();
    for (const std::int64_t index : to.indices[d]) {
      const auto found = std::find(from.indices[d].begin(), from.indices[d].end(), index);
      dim.push_back(found == from.indices[d].end() ? -1 : found - from.indices[d].begin());
    }
  }
  std::vector<std::int64_t> positions(to.size());
  each_element(to, [&](std::size_t element, const std::vector<std::size_t>& at) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < at.size() && position >= 0; ++d) {
      const std::int64_t index = where[d][at[d]];
      position = index < 0 ? -1 : position * static_cast<std::int64_t>(from.indices[d].size()) + index;
    }
    positions[element] = position;
  });
  return positions;
}

}  // namespace orrery::host
