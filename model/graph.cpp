#include "model/graph.hpp"

#include <cassert>

namespace orrery {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding: return "embedding";
    case OpKind::kAddPositions: return "add-positions";
    case OpKind::kNorm: return "norm";
    case OpKind::kMatmul: return "matmul";
    case OpKind::kRope: return "rope";
    case OpKind::kAttention: return "attention";
    case OpKind::kUnary: return "unary";
    case OpKind::kGated: return "gated";
    case OpKind::kAdd: return "add";
    case OpKind::kDropout: return "dropout";
    case OpKind::kCrossEntropy: return "cross-entropy";
    case OpKind::kEmbeddingGrad: return "embedding-grad";
    case OpKind::kAddPositionsGrad: return "add-positions-grad";
    case OpKind::kNormGrad: return "norm-grad";
    case OpKind::kMatmulGradInput: return "matmul-grad-input";
    case OpKind::kMatmulGradWeight: return "matmul-grad-weight";
    case OpKind::kRopeGrad: return "rope-grad";
    case OpKind::kAttentionGrad: return "attention-grad";
    case OpKind::kUnaryGrad: return "unary-grad";
    case OpKind::kGatedGrad: return "gated-grad";
    case OpKind::kDropoutGrad: return "dropout-grad";
    case OpKind::kCrossEntropyGrad: return "cross-entropy-grad";
    case OpKind::kAdamW: return "adamw";
  }
  return "?";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kOptimizer: return "optimizer";
  }
  return "?";
}

Sizes bind(const Graph& graph, std::int64_t batch, std::int64_t sequence) {
  assert(batch > 0 && sequence > 0);
  Sizes sizes;
  sizes.reserve(graph.dims.size());
  for (const Dim& dim : graph.dims) {
    const bool late = dim.size == 0;
    sizes.push_back(late && dim.role == DimRole::kBatch      ? batch
                    : late && dim.role == DimRole::kSequence ? sequence
                                                             : dim.size);
  }
  return sizes;
}

std::int64_t element_count(const Graph& graph, TensorId tensor, const Sizes& sizes) {
  std::int64_t count = 1;
  for (const DimId dim : graph[tensor].shape) count *= sizes[dim.index()];
  return count;
}

std::int64_t size_bytes(const Graph& graph, TensorId tensor, const Sizes& sizes) {
  return element_count(graph, tensor, sizes) * size_bytes(graph[tensor].dtype);
}

std::int64_t parameter_count(const Graph& graph, std::int32_t block) {
  std::int64_t total = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameter || (block >= 0 && tensor.block != block)) continue;
    std::int64_t count = 1;
    for (const DimId dim : tensor.shape) count *= graph[dim].size;
    total += count;
  }
  return total;
}

}  // namespace orrery
