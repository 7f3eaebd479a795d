#include "model/graph.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding: return "embedding";
    case OpKind::kAddPositions: return "add-positions";
    case OpKind::kNorm: return "norm";
    case OpKind::kMatmul: return "matmul";
    case OpKind::kRope: return "rope";
    case OpKind::kHeadConcat: return "head-concat";
    case OpKind::kAttention: return "attention";
    case OpKind::kUnary: return "unary";
    case OpKind::kGated: return "gated";
    case OpKind::kRowGate: return "row-gate";
    case OpKind::kScale: return "scale";
    case OpKind::kAdd: return "add";
    case OpKind::kDropout: return "dropout";
    case OpKind::kCrossEntropy: return "cross-entropy";
    case OpKind::kRoute: return "route";
    case OpKind::kDispatch: return "dispatch";
    case OpKind::kCombine: return "combine";
    case OpKind::kEmbeddingGrad: return "embedding-grad";
    case OpKind::kAddPositionsGrad: return "add-positions-grad";
    case OpKind::kNormGrad: return "norm-grad";
    case OpKind::kMatmulGradInput: return "matmul-grad-input";
    case OpKind::kMatmulGradWeight: return "matmul-grad-weight";
    case OpKind::kRopeGrad: return "rope-grad";
    case OpKind::kHeadConcatGrad: return "head-concat-grad";
    case OpKind::kAttentionGrad: return "attention-grad";
    case OpKind::kUnaryGrad: return "unary-grad";
    case OpKind::kGatedGrad: return "gated-grad";
    case OpKind::kRowGateGrad: return "row-gate-grad";
    case OpKind::kDropoutGrad: return "dropout-grad";
    case OpKind::kCrossEntropyGrad: return "cross-entropy-grad";
    case OpKind::kRouteGrad: return "route-grad";
    case OpKind::kDispatchGrad: return "dispatch-grad";
    case OpKind::kCombineGrad: return "combine-grad";
    case OpKind::kAdamW: return "adamw";
    case OpKind::kElementwise: return "elementwise";
    case OpKind::kReduce: return "reduce";
    case OpKind::kSoftmax: return "softmax";
    case OpKind::kReshape: return "reshape";
    case OpKind::kTranspose: return "transpose";
    case OpKind::kExpand: return "expand";
    case OpKind::kSlice: return "slice";
    case OpKind::kConcat: return "concat";
    case OpKind::kGather: return "gather";
    case OpKind::kScatter: return "scatter";
    case OpKind::kFill: return "fill";
    case OpKind::kBatchMatmul: return "batch-matmul";
    case OpKind::kMaskedAttention: return "masked-attention";
    case OpKind::kConvolution: return "convolution";
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

namespace {

// The size of the graph's one dimension of a role; 0: it has none.
std::int64_t size_of(const Graph& graph, DimRole role) {
  for (const Dim& dim : graph.dims) {
    if (dim.role == role) return dim.size;
  }
  return 0;
}

std::int64_t slots(const Graph& graph, std::int64_t tokens, double slot_factor) {
  const std::int64_t experts = size_of(graph, DimRole::kExperts);
  if (experts == 0) return 0;
  const double share = static_cast<double>(tokens) * static_cast<double>(size_of(graph, DimRole::kTopK)) /
                       static_cast<double>(experts);
  // At most as many as tokens, so that the cast is safe whatever the factor.
  const double wanted = std::min(std::ceil(share * slot_factor), static_cast<double>(tokens));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
}

}  // namespace

Sizes bind(const Graph& graph, std::int64_t batch, std::int64_t sequence, double slot_factor) {
  assert(batch > 0 && sequence > 0 && slot_factor > 0);
  Sizes sizes;
  sizes.reserve(graph.dims.size());
  for (const Dim& dim : graph.dims) {
    const bool late = dim.size == 0;
    sizes.push_back(late && dim.role == DimRole::kBatch      ? batch
                    : late && dim.role == DimRole::kSequence ? sequence
                    : late && dim.role == DimRole::kSlots    ? slots(graph, batch * sequence, slot_factor)
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

double active_share(const Graph& graph, TensorId parameter) {
  const std::vector<DimId>& shape = graph[parameter].shape;
  if (shape.size() < 2 || graph[shape[0]].role != DimRole::kExperts) return 1;
  return static_cast<double>(size_of(graph, DimRole::kTopK)) / static_cast<double>(graph[shape[0]].size);
}

std::int64_t active_parameter_count(const Graph& graph) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.kind != TensorKind::kParameter) continue;
    const bool of_experts = active_share(graph, TensorId(i)) < 1;
    // The picks instead of the experts, so that the count is whole.
    std::int64_t count = of_experts ? size_of(graph, DimRole::kTopK) : 1;
    for (std::size_t d = of_experts ? 1 : 0; d < tensor.shape.size(); ++d)
      count *= graph[tensor.shape[d]].size;
    total += count;
  }
  return total;
}

}  // namespace orrery
