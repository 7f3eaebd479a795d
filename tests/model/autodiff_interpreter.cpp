#include "tests/model/autodiff_interpreter.hpp"

#include "base/random.hpp"
#include "executor/host/reference_op.hpp"

namespace orrery::test {

Values initial_values(const Graph& graph, const Sizes& sizes, std::uint64_t seed) {
  Random random(seed);
  std::int64_t vocab = 0;
  for (std::size_t i = 0; i < graph.dims.size(); ++i) {
    if (graph.dims[i].role == DimRole::kVocab) vocab = sizes[i];
  }
  Values values;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const auto count = element_count(graph, TensorId(static_cast<std::int64_t>(i)), sizes);
    host::Values& tensor = values.emplace_back(static_cast<std::size_t>(count), 0.0);
    const TensorKind kind = graph.tensors[i].kind;
    for (double& x : tensor) {
      if (kind == TensorKind::kInput) x = static_cast<double>(random.between(0, vocab - 1));
      if (kind == TensorKind::kParameter || kind == TensorKind::kBuffer) x = random.uniform() - 0.4;
    }
  }
  return values;
}

void run_phase(const Graph& graph, const Sizes& sizes, Phase phase, Values& values) {
  host::OpView view;
  view.sizes = sizes;
  const auto pointers = [&](const std::vector<TensorId>& tensors) {
    std::vector<host::Values*> found;
    for (const TensorId tensor : tensors) found.push_back(&values[tensor.index()]);
    return found;
  };
  for (const Op& op : graph.ops) {
    if (op.phase == phase) host::run_op(graph, op, view, pointers(op.inputs), pointers(op.outputs));
  }
}

}  // namespace orrery::test
