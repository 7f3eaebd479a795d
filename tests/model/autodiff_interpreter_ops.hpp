#pragma once
// One op of a Graph on doubles: parts of run_phase.

#include <cstddef>
#include <functional>
#include <vector>

#include "tests/model/autodiff_interpreter.hpp"

namespace orrery::test {

using Vector = std::vector<double>;
using Shape = std::vector<DimId>;

class Interpreter {
 public:
  Interpreter(const Graph& graph, const Sizes& sizes, const Op& op, Values& values)
      : graph_(graph), sizes_(sizes), op_(op), values_(values) {}

  void run();

 private:
  Vector& in(std::size_t i) { return values_[op_.inputs[i].index()]; }
  Vector& out(std::size_t i) { return values_[op_.outputs[i].index()]; }
  const Shape& in_shape(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::size_t size(DimId dim) const { return static_cast<std::size_t>(sizes_[dim.index()]); }
  std::size_t last(std::size_t input) const { return size(in_shape(input).back()); }

  // For every value of `loop`'s dimensions, the offsets into tensors of the given shapes (a dimension that
  // a shape lacks doesn't move it).
  void each(const Shape& loop, const std::vector<Shape>& shapes,
            const std::function<void(const std::vector<std::size_t>&)>& body) const;
  // result += Σ a · b over the dimensions of both.
  void product(std::size_t a_id, std::size_t b_id, std::size_t result_id);
  void add_bias(std::size_t bias_id, std::size_t y_id, bool reverse);
  void clear_outputs();

  void embedding();
  void positions();
  void norm();
  void norm_grad();
  void matmul();
  void rope(double direction);
  void attention(bool backward);
  void activation();
  void clamped_gate(std::size_t i);
  void head_concat();
  void row_gate();
  void route();
  Vector scores_of(const double* logits, std::size_t experts) const;
  void pick(const Vector& scores, std::size_t token);
  void dispatch();
  void combine();
  void cross_entropy(bool backward);

  const Graph& graph_;
  const Sizes& sizes_;
  const Op& op_;
  Values& values_;
};

}  // namespace orrery::test
