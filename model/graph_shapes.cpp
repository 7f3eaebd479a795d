#include "model/graph_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/graph_shape_rules.hpp"
#include "model/import_ops.hpp"

namespace orrery {
namespace {

std::size_t times(const Shape& shape, DimId dim) {
  return static_cast<std::size_t>(std::count(shape.begin(), shape.end(), dim));
}

// All kinds but experts' and imported ones.
class Rules : private ShapeRules {
 public:
  using ShapeRules::ShapeRules;

  std::string run();

 private:
  void table(std::string_view what, const Shape& shape, const Shape& rows_of);
  void all_like(const Shape& expected);
  void product(std::size_t pair, const Shape& a, const Shape& b, const Shape& result);
  void bias(TensorId bias, const Shape& result, const Shape& weight);

  void forward();
  void backward();
  void matmul();
  void matmul_grad_input();
  void matmul_grad_weight();
  void rotation();
  void norm();
  void norm_grad();
  void normed(const Shape& x, const Shape& weight);
  void head_concat(const Shape& x, const Shape& y, const Shape& z);
  void attention(std::size_t statistics);
  void attention_grad();
  void scores();
};

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

// A dimension is contracted (both operands), a row (first operand and result), a column (second and result)
// or counts products (all three); one that stands in a single tensor belongs to no matrix product.
void Rules::product(std::size_t pair, const Shape& a, const Shape& b, const Shape& result) {
  if (!fault_.empty()) return;
  for (const Shape* shape : {&a, &b, &result}) {
    for (const DimId dim : *shape) {
      const std::size_t total = times(a, dim) + times(b, dim) + times(result, dim);
      const bool once = times(a, dim) <= 1 && times(b, dim) <= 1 && times(result, dim) <= 1;
      if (once && total >= 2) continue;
      fault_ = fmt::format("pair {}: dimension {} doesn't stand once in two or all three of {}, {} and {}",
                           pair, graph_[dim].name, text(a), text(b), text(result));
      return;
    }
  }
}

// A bias has the dimensions of the result that the weight has.
void Rules::bias(TensorId bias, const Shape& result, const Shape& weight) {
  Shape made;
  std::copy_if(result.begin(), result.end(), std::back_inserter(made),
               [&](DimId dim) { return times(weight, dim) > 0; });
  same(graph_[bias].name, graph_[bias].shape, made);
}

void Rules::matmul() {
  const std::size_t n = op_.outputs.size();
  const bool biased = op_.attributes.bias;
  if (n == 0 || !arity(1 + n * (biased ? 2 : 1), n)) {
    if (n == 0) fault_ = "has no outputs; a matmul makes at least one";
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    product(i, in(0), in(1 + i), out(i));
    if (biased) bias(op_.inputs[1 + n + i], out(i), in(1 + i));
  }
}

void Rules::matmul_grad_input() {
  const std::size_t n = std::max<std::size_t>(1, op_.inputs.size() / 2);
  if (!arity(2 * n, 1)) return;
  for (std::size_t i = 0; i < n; ++i) product(i, in(i), in(n + i), out(0));
}

void Rules::matmul_grad_weight() {
  const bool biased = op_.attributes.bias;
  const std::size_t n = std::max<std::size_t>(1, op_.outputs.size() / (biased ? 2 : 1));
  if (!arity(1 + n, n * (biased ? 2 : 1))) return;
  for (std::size_t i = 0; i < n; ++i) {
    product(i, in(0), in(1 + i), out(i));
    if (biased) bias(op_.outputs[n + i], in(1 + i), out(i));
  }
}

// What is normalised together are the last dimensions of x, those of the weight.
void Rules::normed(const Shape& x, const Shape& weight) {
  const bool fits =
      !weight.empty() && weight.size() <= x.size() && std::equal(weight.rbegin(), weight.rend(), x.rbegin());
  if (fault_.empty() && !fits) {
    fault_ =
        fmt::format("the weight has shape {}; expected the last dimensions of {}", text(weight), text(x));
  }
}

void Rules::norm() {
  const OpAttributes& attributes = op_.attributes;
  if (attributes.bias && !attributes.weight) {
    fault_ = "has a bias and no weight";
    return;
  }
  if (!arity(1 + (attributes.weight ? 1 : 0) + (attributes.bias ? 1 : 0), 1)) return;
  same("the output", out(0), in(0));
  if (attributes.weight) normed(in(0), in(1));
  if (attributes.bias) same(graph_[op_.inputs[2]].name, in(2), in(1));
}

void Rules::norm_grad() {
  const OpAttributes& attributes = op_.attributes;
  const std::size_t weight = attributes.weight ? 1 : 0;
  if (!arity(2 + weight, 1 + weight + (attributes.bias ? 1 : 0))) return;
  same("dy", in(1 + weight), in(0));
  same("dx", out(0), in(0));
  if (weight == 1) normed(in(0), in(1));
  for (std::size_t i = 1; i < op_.outputs.size(); ++i) same(graph_[op_.outputs[i]].name, out(i), in(1));
}

// x[b,s,a,c] and y[b,s,a,e], or y[b,s,1,e] for all heads, make z[b,s,a,c+e].
void Rules::head_concat(const Shape& x, const Shape& y, const Shape& z) {
  if (x.size() != 4 || y.size() != 4 || z.size() != 4) {
    fault_ = fmt::format("{} and {} into {}: all have to be [batch, sequence, heads, head_dim]", text(x),
                         text(y), text(z));
    return;
  }
  same("the output", z, {x[0], x[1], x[2], z[3]});
  same("the second part", y, {x[0], x[1], graph_[y[2]].size == 1 ? y[2] : x[2], y[3]});
  if (fault_.empty() && graph_[x[3]].size + graph_[y[3]].size != graph_[z[3]].size) {
    fault_ =
        fmt::format("{} and {} don't add up to {}", graph_[x[3]].size, graph_[y[3]].size, graph_[z[3]].size);
  }
}

// q[b,s,a,d], k[b,s,g,d], v[b,s,g,e] (, sink[a]), and the `statistics` tensors that follow.
void Rules::attention(std::size_t statistics) {
  const std::size_t count = op_.inputs.size();
  if (count != 3 + statistics && count != 4 + statistics) {
    fault_ = fmt::format("has {} inputs; {} takes {}, or one more with a sink", count, to_string(op_.kind),
                         3 + statistics);
    return;
  }
  const Shape& q = in(0);
  const Shape& k = in(1);
  const Shape& v = in(2);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) {
    fault_ = fmt::format("q {}, k {} and v {} have to be [batch, sequence, heads, head_dim]", text(q),
                         text(k), text(v));
    return;
  }
  same("k", k, {q[0], q[1], k[2], q[3]});
  same("v", v, {q[0], q[1], k[2], v[3]});
  if (count == 4 + statistics) same("the sink", in(3), {q[2]});
  if (fault_.empty() && graph_[k[2]].size > 0 && graph_[q[2]].size % graph_[k[2]].size != 0) {
    fault_ = fmt::format("{} query heads don't divide by {} kv heads", graph_[q[2]].size, graph_[k[2]].size);
  }
  scores();
}

void Rules::scores() {
  const OpAttributes& attributes = op_.attributes;
  if (!fault_.empty()) return;
  if (attributes.window < 0 || attributes.chunk < 0 || attributes.softcap < 0 || attributes.score_scale < 0) {
    fault_ = "has a negative window, chunk, softcap or score_scale";
  } else if ((attributes.window > 0 || attributes.chunk > 0) && !attributes.causal) {
    fault_ = "has a window or chunks and isn't causal";
  } else if (attributes.window > 0 && attributes.chunk > 0) {
    fault_ = "has both a window and chunks";
  }
}

void Rules::attention_grad() {
  attention(3);
  if (!fault_.empty()) return;
  const std::size_t operands = op_.inputs.size() - 3;
  if (!arity(operands + 3, operands)) return;
  const Shape& q = in(0);
  same("o", in(operands), {q[0], q[1], q[2], in(2)[3]});
  same("lse", in(operands + 1), {q[0], q[1], q[2]});
  same("do", in(operands + 2), in(operands));
  for (std::size_t i = 0; i < operands; ++i) same(graph_[op_.outputs[i]].name, out(i), in(i));
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
    case OpKind::kRope: return rotation();
    case OpKind::kHeadConcat:
      if (arity(2, 1)) head_concat(in(0), in(1), out(0));
      return;
    case OpKind::kAttention:
      attention(0);
      if (!fault_.empty() || !arity(op_.inputs.size(), 2)) return;
      same("the output", out(0), {in(0)[0], in(0)[1], in(0)[2], in(2)[3]});
      return same("lse", out(1), without_last(in(0)));
    case OpKind::kUnary:
    case OpKind::kScale:
      if (arity(1, 1)) all_like(in(0));
      return;
    case OpKind::kRowGate:
      if (!arity(2, 1)) return;
      same("the gate", in(0), without_last(in(1)));
      return same("the output", out(0), in(1));
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

// One tensor or several, each by itself.
void Rules::rotation() {
  if (op_.inputs.empty() || !arity(op_.inputs.size(), op_.inputs.size())) return;
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) same("the rotated one", out(i), in(i));
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
    case OpKind::kRopeGrad: return rotation();
    case OpKind::kHeadConcatGrad:
      if (arity(1, 2)) head_concat(out(0), out(1), in(0));
      return;
    case OpKind::kAttentionGrad: return attention_grad();
    case OpKind::kRowGateGrad:
      if (!arity(3, 2)) return;
      same("the gate", in(0), without_last(in(1)));
      same("dy", in(2), in(1));
      same("dgate", out(0), in(0));
      return same("dx", out(1), in(1));
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

std::string ShapeRules::text(const Shape& shape) const {
  std::string result = "[";
  for (const DimId dim : shape) {
    if (result.size() > 1) result += ", ";
    result += graph_[dim].name;
  }
  return result + "]";
}

bool ShapeRules::arity(std::size_t inputs, std::size_t outputs) {
  if (op_.inputs.size() == inputs && op_.outputs.size() == outputs) return true;
  fault_ = fmt::format("has {} inputs and {} outputs; {} takes {} and makes {}", op_.inputs.size(),
                       op_.outputs.size(), to_string(op_.kind), inputs, outputs);
  return false;
}

void ShapeRules::same(std::string_view what, const Shape& got, const Shape& expected) {
  if (fault_.empty() && got != expected) {
    fault_ = fmt::format("{} has shape {}; expected {}", what, text(got), text(expected));
  }
}

std::string shape_fault(const Graph& graph, const Op& op) {
  if (only_imported(op.kind)) return imported_shape_fault(graph, op);
  switch (op.kind) {
    case OpKind::kRoute:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kRouteGrad:
    case OpKind::kDispatchGrad:
    case OpKind::kCombineGrad: return expert_shape_fault(graph, op);
    default: return Rules(graph, op).run();
  }
}

}  // namespace orrery
