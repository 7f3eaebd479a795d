#pragma once
// What a rank sees of an op: for each dimension the indices that are here, as the op's tensors agree on them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/host/shard.hpp"

namespace orrery::host {

class LocalView {
 public:
  LocalView(const Graph& graph, const Program& program) : graph_(graph), program_(program) {}

  void clear();
  // Learns from a tensor of the op; `keys`: its sequence is that of attention's keys. Comes back with what is
  // wrong where another tensor has divided a dimension otherwise, else empty.
  std::string note(const Op& op, TensorId tensor, const Shard& shard, bool keys);
  // Of a dimension that no tensor has told of: all.
  std::vector<std::int64_t> indices(DimId dim) const;
  OpView view() const;

 private:
  const Graph& graph_;
  const Program& program_;
  std::map<DimId, std::vector<std::int64_t>> local_;
  std::vector<std::int64_t> keys_;
};

// Attention and its gradient, whose second and third operands are the keys' (`note`).
bool attends(const Op& op);

// Where a product's contracted dimension is divided its result is a partial sum, and the first rank brings
// the bias. `weights`: where the matrix lies; `at`: where the rank stands, by axis.
bool adds_bias(const Graph& graph, const Program& program, const Op& op, PlacementId weights,
               const std::vector<Coordinate>& at);

}  // namespace orrery::host
