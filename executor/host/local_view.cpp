#include "executor/host/local_view.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::host {

void LocalView::clear() {
  local_.clear();
  keys_.clear();
}

std::string LocalView::note(const Op& op, TensorId tensor, const Shard& shard, bool keys) {
  const auto& shape = graph_[tensor].shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (keys && graph_[shape[d]].role == DimRole::kSequence) {
      keys_ = shard.indices[d];
      continue;
    }
    const auto [known, inserted] = local_.try_emplace(shape[d], shard.indices[d]);
    if (!inserted && known->second != shard.indices[d]) {
      return op.name + " sees dimension " + graph_[shape[d]].name + " divided in two ways (" +
             graph_[tensor].name + ")";
    }
  }
  return "";
}

std::vector<std::int64_t> LocalView::indices(DimId dim) const {
  const auto known = local_.find(dim);
  if (known != local_.end()) return known->second;
  std::vector<std::int64_t> all(static_cast<std::size_t>(program_.sizes[dim.index()]));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

OpView LocalView::view() const {
  OpView view;
  view.sizes = program_.sizes;
  for (const auto& [dim, indices] : local_) {
    view.sizes[dim.index()] = static_cast<std::int64_t>(indices.size());
    if (graph_[dim].role == DimRole::kSequence) view.positions = indices;
    if (graph_[dim].role == DimRole::kVocab) {
      view.vocab_begin = indices.front();
      view.vocab = graph_[dim].size;
    }
  }
  view.key_positions = keys_;
  view.loss_tokens = 1;
  for (std::size_t d = 0; d < graph_.dims.size(); ++d) {
    const DimRole role = graph_.dims[d].role;
    if (role == DimRole::kBatch || role == DimRole::kSequence) view.loss_tokens *= program_.sizes[d];
  }
  return view;
}

bool attends(const Op& op) { return op.kind == OpKind::kAttention || op.kind == OpKind::kAttentionGrad; }

bool adds_bias(const Graph& graph, const Program& program, const Op& op, PlacementId weights,
               const std::vector<Coordinate>& at) {
  if (!weights.valid()) return true;
  const auto& result = graph[op.outputs[0]].shape;
  for (const Split& split : program.placements[weights.index()].splits) {
    const bool contracted = std::find(result.begin(), result.end(), split.dim) == result.end();
    if (contracted && at[split.axis.index()].position != 0) return false;
  }
  return true;
}

}  // namespace orrery::host
