// The optimiser's part of the training graph.

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/transformer.hpp"

namespace orrery {
namespace {

TensorId add_state(Graph& graph, TensorId parameter, std::string_view suffix) {
  Tensor state = graph[parameter];
  state.name += suffix;
  state.kind = TensorKind::kOptimizerState;
  state.dtype = DType::kFp32;
  state.gradient_of = parameter;
  graph.tensors.push_back(std::move(state));
  return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
}

std::vector<TensorId> parameter_gradients(const Graph& graph) {
  std::vector<TensorId> gradient(graph.tensors.size());
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.kind == TensorKind::kParameterGradient) {
      gradient[tensor.gradient_of.index()] = TensorId(static_cast<std::int64_t>(i));
    }
  }
  return gradient;
}

}  // namespace

Graph add_optimizer(const Graph& graph) {
  const std::vector<TensorId> gradient = parameter_gradients(graph);
  const auto parameters = static_cast<std::size_t>(
      std::count_if(graph.tensors.begin(), graph.tensors.end(),
                    [](const Tensor& tensor) { return tensor.kind == TensorKind::kParameter; }));
  Graph result;
  result.name = graph.name;
  result.layers = graph.layers;
  result.dims = graph.dims;
  result.tensors.reserve(graph.tensors.size() + 3 * parameters);
  result.ops.reserve(graph.ops.size() + parameters);
  result.tensors.insert(result.tensors.end(), graph.tensors.begin(), graph.tensors.end());
  result.ops.insert(result.ops.end(), graph.ops.begin(), graph.ops.end());

  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.kind != TensorKind::kParameter) continue;
    if (!gradient[i].valid()) {
      fail(ErrorKind::kInput, "graph {}: parameter {} has no gradient; add_optimizer follows add_backward",
           graph.name, tensor.name);
    }
    const TensorId parameter(static_cast<std::int64_t>(i));
    const TensorId master = add_state(result, parameter, ".master");
    const TensorId m = add_state(result, parameter, ".m");
    const TensorId v = add_state(result, parameter, ".v");
    Op op;
    op.name = tensor.name + ".adamw";
    op.kind = OpKind::kAdamW;
    op.phase = Phase::kOptimizer;
    op.block = tensor.block;
    op.inputs = {parameter, gradient[i], master, m, v};
    result.ops.push_back(std::move(op));
  }
  return result;
}

Graph build_training_graph(const TransformerConfig& config, DType compute) {
  return add_optimizer(add_backward(build_forward(config, compute)));
}

}  // namespace orrery
