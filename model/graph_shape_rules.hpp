#pragma once
// What the shape rules of all op kinds share: an op with the first fault that was found in it. Parts of
// shape_fault.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

using Shape = std::vector<DimId>;

class ShapeRules {
 public:
  ShapeRules(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}

 protected:
  const Shape& in(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::string text(const Shape& shape) const;  // "[batch, sequence, hidden]"
  // False, with a fault, where the op has another number of tensors.
  bool arity(std::size_t inputs, std::size_t outputs);
  // A fault unless the shapes are one, or there is a fault already.
  void same(std::string_view what, const Shape& got, const Shape& expected);

  const Graph& graph_;
  const Op& op_;
  std::string fault_;
};

// The rules of kRoute, kDispatch, kCombine and their gradients.
std::string expert_shape_fault(const Graph& graph, const Op& op);

}  // namespace orrery
