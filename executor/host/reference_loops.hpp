#pragma once
// One op on one rank's part of its tensors; the loops behind run_op.

#include <functional>
#include <vector>

#include "executor/host/reference_op.hpp"

namespace orrery::host {

using Vector = Values;
using Shape = std::vector<DimId>;

class ReferenceOp {
 public:
  ReferenceOp(const Graph& graph, const Op& op, const OpView& view, const std::vector<Values*>& inputs,
              const std::vector<Values*>& outputs)
      : graph_(graph), op_(op), view_(view), inputs_(inputs), outputs_(outputs) {}

  void run();

 private:
  // An input or output with its dimensions.
  struct Operand {
    Values& values;
    const Shape& shape;
  };
  Vector& in(std::size_t i) { return *inputs_[i]; }
  Vector& out(std::size_t i) { return *outputs_[i]; }
  const Shape& in_shape(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::size_t size(DimId dim) const { return static_cast<std::size_t>(view_.sizes[dim.index()]); }
  std::size_t last(std::size_t input) const { return size(in_shape(input).back()); }
  std::size_t position(std::size_t token) const {
    return view_.positions.empty() ? token : static_cast<std::size_t>(view_.positions[token]);
  }
  std::size_t key_position(std::size_t key) const {
    return view_.key_positions.empty() ? position(key) : static_cast<std::size_t>(view_.key_positions[key]);
  }
  // Whether a local entry of the vocabulary is no padding.
  bool counts(std::size_t entry) const {
    return view_.vocab == 0 || view_.vocab_begin + static_cast<std::int64_t>(entry) < view_.vocab;
  }
  double loss_weight(std::size_t local_tokens) const {
    return 1 / static_cast<double>(view_.loss_tokens > 0 ? static_cast<std::size_t>(view_.loss_tokens)
                                                         : local_tokens);
  }

  // For every value of `loop`'s dimensions, the offsets into tensors of the given shapes (a dimension that
  // a shape lacks doesn't move it).
  void each(const Shape& loop, const std::vector<Shape>& shapes,
            const std::function<void(const std::vector<std::size_t>&)>& body) const;
  // result += Σ a · b over the dimensions of both.
  void product(Operand first, Operand second, Operand result);
  void add_bias(Operand bias, Operand y, bool reverse);
  void clear_outputs();

  void embedding();
  void positions();
  void norm();
  void norm_grad();
  void matmul();
  void rope(double direction);
  void activation();
  void clamped_gate(std::size_t i);
  void cross_entropy(bool backward);
  // reference_attention.cpp
  void attention(bool backward);
  void head_concat();
  void row_gate();
  // reference_experts.cpp
  void route();
  Vector scores_of(const double* logits, std::size_t experts) const;
  void pick(const Vector& scores, std::size_t token);
  void dispatch();
  void combine();

  const Graph& graph_;
  const Op& op_;
  const OpView& view_;
  const std::vector<Values*>& inputs_;
  const std::vector<Values*>& outputs_;
};

}  // namespace orrery::host
