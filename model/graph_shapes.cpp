#include "model/graph_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace orrery {
namespace {

using Shape = std::vector<DimId>;

std::size_t times(const Shape& shape, DimId dim) {
  return static_cast<std::size_t>(std::count(shape.begin(), shape.end(), dim));
}

// Collects the first fault of one op.
class Rules {
 public:
  Rules(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}

  std::string run();

 private:
  const Shape& in(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::string text(const Shape& shape) const;
  bool arity(std::size_t inputs, std::size_t outputs);
  void same(std::string_view what, const Shape& got, const Shape& expected);
  void table(std::string_view what, const Shape& shape, const Shape& rows_of);
  void all_like(const Shape& expected);
  void product(std::size_t pair, const Shape& a, const Shape& b, const Shape& result);

  void forward();
  void backward();
  void matmul();
  void matmul_grad_input();
  void matmul_grad_weight();
  void norm();
  void norm_grad();
  void attention(std::span<const TensorId> qkv);

  const Graph& graph_;
  const Op& op_;
  std::string fault_;
};

std::string Rules::text(const Shape& shape) const {
  std::string result = "[";
  for (const DimId dim : shape) {
    if (result.size() > 1) result += ", ";
    result += graph_[dim].name;
  }
  return result + "]";
}

bool Rules::arity(std::size_t inputs, std::size_t outputs) {
  if (op_.inputs.size() == inputs && op_.outputs.size() == outputs) return true;
  fault_ = fmt::format("has {} inputs and {} outputs; {} takes {} and makes {}", op_.inputs.size(),
                       op_.outputs.size(), to_string(op_.kind), inputs, outputs);
  return false;
}

void Rules::same(std::string_view what, const Shape& got, const Shape& expected) {
  if (fault_.empty() && got != expected) {
    fault_ = fmt::format("{} has shape {}; expected {}", what, text(got), text(expected));
  }
}

// A table of rows as wide as the last dimension of what they become.
void Rules::table(std::string_view what, const Shape& shape, const Shape& rows_of) {
  if (fault_.empty() && (shape.size() != 2 || rows_of.empty() || shape[1] != rows_of.back())) {
    fault_ = fmt::format("{} has shape {}; expected rows like the last dimension of {}", what, text(shape),
                         text(rows_of));
  }
}

void Rules::all_like(const Shape& expected) {
  for (const TensorId input : op_.inputs) same(graph_[input].name, graph_[input].shape, expected);
  for (const TensorId output : op_.outputs) same(graph_[output].name, graph_[output].shape, expected);
}

// A dimension is contracted (both operands), a row (first operand and result) or a column (second and
// result); anything else (one operand only, all three) isn't a matrix product.
void Rules::product(std::size_t pair, const Shape& a, const Shape& b, const Shape& result) {
  if (!fault_.empty()) return;
  for (const Shape* shape : {&a, &b, &result}) {
    for (const DimId dim : *shape) {
      const std::size_t total = times(a, dim) + times(b, dim) + times(result, dim);
      if (times(*shape, dim) == 1 && total == 2) continue;
      fault_ = fmt::format("pair {}: dimension {} doesn't stand once in exactly two of {}, {} and {}", pair,
                           graph_[dim].name, text(a), text(b), text(result));
      return;
    }
  }
}

void Rules::matmul() {
  const std::size_t n = op_.outputs.size();
  const bool bias = op_.attributes.bias;
  if (n == 0 || !arity(1 + n * (bias ? 2 : 1), n)) {
    if (n == 0) fault_ = "has no outputs; a matmul makes at least one";
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    product(i, in(0), in(1 + i), out(i));
    if (!bias) continue;
    Shape made;
    std::copy_if(out(i).begin(), out(i).end(), std::back_inserter(made),
                 [&](DimId dim) { return times(in(0), dim) == 0; });
    same(graph_[op_.inputs[1 + n + i]].name, in(1 + n + i), made);
  }
}

void Rules::matmul_grad_input() {
  const std::size_t n = std::max<std::size_t>(1, op_.inputs.size() / 2);
  if (!arity(2 * n, 1)) return;
  for (std::size_t i = 0; i < n; ++i) product(i, in(i), in(n + i), out(0));
}

void Rules::matmul_grad_weight() {
  const bool bias = op_.attributes.bias;
  const std::size_t n = std::max<std::size_t>(1, op_.outputs.size() / (bias ? 2 : 1));
  if (!arity(1 + n, n * (bias ? 2 : 1))) return;
  for (std::size_t i = 0; i < n; ++i) {
    product(i, in(0), in(1 + i), out(i));
    if (!bias) continue;
    Shape made;
    std::copy_if(in(1 + i).begin(), in(1 + i).end(), std::back_inserter(made),
                 [&](DimId dim) { return times(in(0), dim) == 0; });
    same(graph_[op_.outputs[n + i]].name, out(n + i), made);
  }
}

void Rules::norm() {
  if (!arity(op_.attributes.bias ? 3 : 2, 1)) return;
  same("the output", out(0), in(0));
  const Shape last = in(0).empty() ? Shape{} : Shape{in(0).back()};
  for (std::size_t i = 1; i < op_.inputs.size(); ++i) same(graph_[op_.inputs[i]].name, in(i), last);
}

void Rules::norm_grad() {
  if (!arity(3, op_.attributes.bias ? 3 : 2)) return;
  same("dy", in(2), in(0));
  same("dx", out(0), in(0));
  for (std::size_t i = 1; i < op_.outputs.size(); ++i) same(graph_[op_.outputs[i]].name, out(i), in(1));
}

// q [b, s, a, d] with k and v [b, s, g, d].
void Rules::attention(std::span<const TensorId> qkv) {
  const Shape& q = graph_[qkv[0]].shape;
  const Shape& k = graph_[qkv[1]].shape;
  if (q.size() != 4 || k.size() != 4) {
    fault_ = fmt::format("q {} and k {} have to be [batch, sequence, heads, head_dim]", text(q), text(k));
    return;
  }
  same("k", k, {q[0], q[1], k[2], q[3]});
  same("v", graph_[qkv[2]].shape, k);
  if (fault_.empty() && graph_[k[2]].size > 0 && graph_[q[2]].size % graph_[k[2]].size != 0) {
    fault_ = fmt::format("{} query heads don't divide by {} kv heads", graph_[q[2]].size, graph_[k[2]].size);
  }
}

Shape without_last(const Shape& shape) {
  return shape.empty() ? Shape{} : Shape(shape.begin(), shape.end() - 1);
}

void Rules::forward() {
  switch (op_.kind) {
    case OpKind::kEmbedding:
      if (!arity(2, 1)) return;
      table("the table", in(1), out(0));
      return same("the ids", in(0), without_last(out(0)));
    case OpKind::kAddPositions:
      if (!arity(2, 1)) return;
      table("the table", in(1), out(0));
      return same("the output", out(0), in(0));
    case OpKind::kNorm: return norm();
    case OpKind::kMatmul: return matmul();
    case OpKind::kRope:
      if (!arity(2, 2)) return;
      same("q'", out(0), in(0));
      return same("k'", out(1), in(1));
    case OpKind::kAttention:
      if (!arity(3, 2)) return;
      attention(op_.inputs);
      same("the output", out(0), in(0));
      return same("lse", out(1), without_last(in(0)));
    case OpKind::kUnary:
      if (arity(1, 1)) all_like(in(0));
      return;
    case OpKind::kGated:
    case OpKind::kAdd:
      if (arity(2, 1)) all_like(in(0));
      return;
    case OpKind::kDropout:
      if (arity(1, 2)) all_like(in(0));
      return;
    case OpKind::kCrossEntropy:
      if (!arity(2, 2)) return;
      same("the labels", in(1), without_last(in(0)));
      same("the loss", out(0), {});
      return same("lse", out(1), in(1));
    default: return backward();
  }
}

void Rules::backward() {
  switch (op_.kind) {
    case OpKind::kEmbeddingGrad:
      if (!arity(2, 1)) return;
      table("dtable", out(0), in(1));
      return same("the ids", in(0), without_last(in(1)));
    case OpKind::kAddPositionsGrad:
      if (arity(1, 1)) table("dtable", out(0), in(0));
      return;
    case OpKind::kNormGrad: return norm_grad();
    case OpKind::kMatmulGradInput: return matmul_grad_input();
    case OpKind::kMatmulGradWeight: return matmul_grad_weight();
    case OpKind::kRopeGrad:
      if (!arity(2, 2)) return;
      same("dq", out(0), in(0));
      return same("dk", out(1), in(1));
    case OpKind::kAttentionGrad:
      if (!arity(6, 3)) return;
      attention(op_.inputs);
      same("o", in(3), in(0));
      same("lse", in(4), without_last(in(0)));
      same("do", in(5), in(0));
      for (std::size_t i = 0; i < 3; ++i) same(graph_[op_.outputs[i]].name, out(i), in(i));
      return;
    case OpKind::kUnaryGrad:
    case OpKind::kDropoutGrad:
      if (arity(2, 1)) all_like(in(0));
      return;
    case OpKind::kGatedGrad:
      if (arity(3, 2)) all_like(in(0));
      return;
    case OpKind::kCrossEntropyGrad:
      if (!arity(3, 1)) return;
      same("the labels", in(1), without_last(in(0)));
      same("lse", in(2), in(1));
      return same("dlogits", out(0), in(0));
    case OpKind::kAdamW:
      if (arity(5, 0)) all_like(in(0));
      return;
    default: fault_ = "has no known kind";
  }
}

std::string Rules::run() {
  forward();
  return std::move(fault_);
}

}  // namespace

std::string shape_fault(const Graph& graph, const Op& op) { return Rules(graph, op).run(); }

}  // namespace orrery
