#pragma once
// A Program of a graph, run instruction by instruction in double precision, against the graph run as it is.

#include <catch2/catch.hpp>

#include <cmath>

#include "base/random.hpp"
#include "executor/host/step.hpp"
#include "planner/place_buffers.hpp"

namespace orrery::test {

using host::Values;

struct Whole {
  std::vector<double> losses;
  std::vector<Values> gradients;
};

// A whole tensor of seeded values, and whole ids of one micro-batch.
inline Values seeded(const Graph& graph, const Sizes& sizes, TensorId tensor, std::uint64_t seed,
                     std::int64_t vocab) {
  Random random(seed * 7919 + static_cast<std::uint64_t>(tensor.value));
  Values values(static_cast<std::size_t>(element_count(graph, tensor, sizes)));
  const bool ids = graph[tensor].kind == TensorKind::kInput;
  for (double& x : values)
    x = ids ? static_cast<double>(random.between(0, vocab - 1)) : random.uniform() - 0.4;
  return values;
}

inline std::int64_t vocabulary(const Graph& graph) {
  for (const Dim& dim : graph.dims) {
    if (dim.role == DimRole::kVocab) return dim.size;
  }
  return 0;
}

inline std::vector<Values> parameters(const Graph& graph, const Sizes& sizes) {
  std::vector<Values> all(graph.tensors.size());
  for (std::size_t t = 0; t < all.size(); ++t) {
    const TensorKind kind = graph.tensors[t].kind;
    if (kind != TensorKind::kParameter && kind != TensorKind::kBuffer) continue;
    all[t] = seeded(graph, sizes, TensorId(static_cast<std::int64_t>(t)), 1, 0);
  }
  return all;
}

inline Values input_of(const Graph& graph, const Sizes& sizes, std::int32_t microbatch, TensorId tensor) {
  return seeded(graph, sizes, tensor, 100 + static_cast<std::uint64_t>(microbatch), vocabulary(graph));
}

// The graph itself, micro-batch after micro-batch.
inline Whole run_whole(const Graph& graph, const Sizes& sizes, std::int64_t microbatches) {
  Whole whole;
  const std::vector<Values> weights = parameters(graph, sizes);
  host::OpView view;
  view.sizes = sizes;
  whole.gradients.resize(graph.tensors.size());
  for (std::int32_t m = 0; m < microbatches; ++m) {
    std::vector<Values> values = weights;
    for (std::size_t t = 0; t < values.size(); ++t) {
      const TensorId id(static_cast<std::int64_t>(t));
      if (graph[id].kind == TensorKind::kInput) values[t] = input_of(graph, sizes, m, id);
      if (values[t].empty()) values[t].assign(static_cast<std::size_t>(element_count(graph, id, sizes)), 0.0);
    }
    const auto pointers = [&](const std::vector<TensorId>& tensors) {
      std::vector<Values*> found;
      for (const TensorId tensor : tensors) found.push_back(&values[tensor.index()]);
      return found;
    };
    for (const Op& op : graph.ops) {
      if (op.phase == Phase::kOptimizer) continue;
      host::run_op(graph, op, view, pointers(op.inputs), pointers(op.outputs));
      if (op.kind == OpKind::kCrossEntropy) whole.losses.push_back(values[op.outputs[0].index()][0]);
    }
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind != TensorKind::kParameterGradient) continue;
      Values& sum = whole.gradients[tensor.gradient_of.index()];
      const Values& part = values[static_cast<std::size_t>(&tensor - graph.tensors.data())];
      sum.resize(part.size(), 0.0);
      for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
  }
  return whole;
}

inline double size_of(const Values& values) {
  double size = 0;
  for (const double x : values) size = std::max(size, std::abs(x));
  return size;
}

// Relative to the largest value, or to `floor`: some gradients (a bias of keys, which softmax ignores) are
// zero.
inline double worst_error(const Values& found, const Values& wanted, double floor) {
  const double size = std::max(size_of(wanted), floor);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    worst = std::max(worst, std::abs(found[i] - wanted[i]) / size);
  return worst;
}

// Whether loss and gradients are those of the whole graph, with all dimensions of these sizes.
inline void check_program(const Graph& graph, const Program& program, const Sizes& sizes,
                          std::int64_t microbatches) {
  const Whole whole = run_whole(graph, sizes, microbatches);
  const std::vector<Values> weights = parameters(graph, sizes);
  const host::StepResult step =
      host::run_step(graph, program, {weights, [&](std::int32_t microbatch, TensorId tensor) {
                                        return input_of(graph, sizes, microbatch, tensor);
                                      }});
  REQUIRE(step.losses.size() == whole.losses.size());
  CHECK(worst_error(step.losses, whole.losses, 0) < 1e-10);
  double largest = 0;
  for (const Values& gradient : whole.gradients) largest = std::max(largest, size_of(gradient));
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind != TensorKind::kParameter) continue;
    INFO(graph.tensors[t].name);
    CHECK(worst_error(step.gradients[t], whole.gradients[t], 1e-6 * largest) < 1e-10);
  }
}

}  // namespace orrery::test
