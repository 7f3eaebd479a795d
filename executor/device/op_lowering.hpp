#pragma once
// One op on its way to launches; lower_op.cpp and its neighbours lower_layers.cpp and lower_products.cpp are
// its parts.

#include <utility>
#include <vector>

#include "executor/device/lower_op.hpp"

namespace orrery::device {

using Shape = std::vector<DimId>;

// How many of the local entries of the vocabulary are no padding; those are the first.
std::int64_t real_entries(const host::OpView& view, std::int64_t local);

class OpLowering {
 public:
  OpLowering(const Graph& graph, const host::RunOp& run, const OpLoweringOptions& options)
      : graph_(graph), op_(graph[run.op]), run_(run), view_(run.view), options_(options) {}

  std::vector<Launch> lower();

 private:
  std::int64_t size(DimId dim) const { return view_.sizes[dim.index()]; }
  const Shape& in_shape(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  Array in(std::size_t i) const { return array(run_.inputs[i]); }
  Array out(std::size_t i) const { return array(run_.outputs[i]); }
  // Where it really lies, and the stride of its rows; 0: dense.
  struct Lying {
    Array array;
    std::int64_t columns = 0, stride = 0;
  };
  Lying lying(const host::TensorView& view) const {
    if (options_.packed != nullptr) {
      const auto found = options_.packed->find(view.data);
      if (found != options_.packed->end()) {
        return {{found->second.data, view.dtype}, found->second.columns, found->second.stride};
      }
    }
    return {array(view)};
  }
  Lying lying_in(std::size_t i) const { return lying(run_.inputs[i]); }
  Lying lying_out(std::size_t i) const { return lying(run_.outputs[i]); }
  Array in_or_none(bool there, std::size_t i) const { return there ? in(i) : Array(); }
  Array out_or_none(bool there, std::size_t i) const { return there ? out(i) : Array(); }
  std::int64_t count(std::size_t input) const { return run_.inputs[input].elements; }
  std::int64_t out_count(std::size_t output) const { return run_.outputs[output].elements; }
  std::int64_t last(std::size_t input) const { return size(in_shape(input).back()); }
  bool adds_into(std::size_t output) const {
    return graph_[op_.outputs[output]].kind == TensorKind::kParameterGradient;
  }
  template <class Kind>
  void emit(Kind launch) {
    launches_.emplace_back(std::move(launch));
  }
  // Null where they ascend from zero.
  const std::int64_t* at(const std::vector<std::int64_t>& positions) const;

  void embedding();
  void positions();
  template <class Kind>
  Kind norm_rows() const;
  void norm();
  void norm_grad();
  void rope();
  void head_concat();
  void matmul();
  void product(const Lying& first, const Shape& first_shape, const Lying& second, const Shape& second_shape,
               const Lying& result, const Shape& result_shape, const Array& bias, bool accumulate);
  bool batched_bias(std::size_t output, const Shape& bias_shape) const;
  void bias_gradient(std::size_t input, std::size_t output);
  AttentionShape attention_shape() const;
  template <class Kind>
  void take_heads(Kind& attention) const {
    const Lying q = lying_in(0), k = lying_in(1), v = lying_in(2);
    attention.q = q.array, attention.k = k.array, attention.v = v.array;
    HeadStrides& strides = attention.shape.strides;
    strides.q = q.stride, strides.k = k.stride, strides.v = v.stride;
  }
  void attention();
  void attention_grad();
  void cross_entropy();
  void cross_entropy_grad();
  void route();
  void experts();
  void element_by_element();
  void gated();

  const Graph& graph_;
  const Op& op_;
  const host::RunOp& run_;
  const host::OpView& view_;
  const OpLoweringOptions& options_;
  std::vector<Launch> launches_;
};

}  // namespace orrery::device
