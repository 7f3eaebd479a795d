#pragma once
// One op on one rank's part of its tensors; the loops behind run_kernel.

#include <cassert>
#include <span>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/kernels/loops.hpp"

namespace orrery::host {

class KernelOp {
 public:
  KernelOp(const Graph& graph, const Op& op, const OpView& view, std::span<const TensorView> inputs,
           std::span<const TensorView> outputs, Workspace& workspace);

  void run();
  // Rounds the outputs to where they belong.
  void finish();

 private:
  using Shape = std::vector<DimId>;
  // A tensor's elements as floats, with its dimensions.
  struct Operand {
    float* values;
    const Shape& shape;
  };

  // An operand as floats: where it lies, or a copy that finish() brings back. Of an output nothing is known
  // but of a parameter's gradient, which goes on.
  const float* in(std::size_t i) { return inputs_[i]; }
  float* out(std::size_t i) { return outputs_[i]; }
  // Ids, labels, picks, places.
  const std::int64_t* ids(std::size_t input);
  bool has_data(std::size_t input) const { return input_views_[input].data != nullptr; }
  std::size_t count(std::size_t input) const {
    return static_cast<std::size_t>(input_views_[input].elements);
  }
  std::size_t out_count(std::size_t output) const {
    return static_cast<std::size_t>(output_views_[output].elements);
  }
  bool adds_into(std::size_t output) const {
    return graph_[op_.outputs[output]].kind == TensorKind::kParameterGradient;
  }
  const float* read(const TensorView& view, bool gradient);
  // Zeros, unless it goes on.
  float* cleared(std::size_t output);

  const Shape& in_shape(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::size_t size(DimId dim) const { return static_cast<std::size_t>(view_.sizes[dim.index()]); }
  std::size_t last(std::size_t input) const { return size(in_shape(input).back()); }
  std::int64_t position(std::size_t token) const {
    return view_.positions.empty() ? static_cast<std::int64_t>(token) : view_.positions[token];
  }
  std::int64_t key_position(std::size_t key) const {
    return view_.key_positions.empty() ? position(key) : view_.key_positions[key];
  }
  // How many of the local entries of the vocabulary are no padding; those are the first.
  std::size_t real_entries(std::size_t local) const;

  // kernels_rows.cpp
  void embedding();
  void positions();
  void norm();
  void norm_grad();
  void rope(float direction);
  void head_concat();
  // kernels_elementwise.cpp
  void elementwise();
  void dropout();
  void row_gate();
  // kernels_matmul.cpp
  void matmul();
  void product(const Operand& first, const Operand& second, const Operand& result, bool accumulate);
  void add_bias(const float* bias, const Shape& bias_shape, std::size_t output);
  void bias_gradient(std::size_t input, std::size_t output);
  // kernels_attention.cpp
  struct Heads;
  Heads heads();
  void attention();
  void attention_grad();
  // kernels_loss.cpp
  void cross_entropy();
  void cross_entropy_grad();
  // kernels_experts.cpp
  void scores_of(const float* logits, std::size_t experts, float* scores) const;
  void route();
  void route_grad();
  void dispatch();
  void dispatch_grad();
  void combine();
  void combine_grad();

  const Graph& graph_;
  const Op& op_;
  const OpView& view_;
  const std::span<const TensorView> input_views_, output_views_;
  Workspace& workspace_;
  Scratch scratch_;
  const Loops& loop_;
  const float** inputs_ = nullptr;
  float** outputs_ = nullptr;
};

// A view's elements as floats, and floats back to a view.
bool is_whole(DType type);
void read_floats(const TensorView& view, bool gradient, float* to);
void write_floats(const float* from, bool gradient, const TensorView& view);

}  // namespace orrery::host
