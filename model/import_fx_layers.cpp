// Operators of PyTorch that become kinds of our own: linear layers, attention, norms, embeddings,
// activations, the cross entropy, and their gradients. Argument orders are those of PyTorch's
// native_functions.yaml.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/import_fx_convert.hpp"

namespace orrery {
namespace {

using Convert = FxConverter;

const std::vector<std::int64_t> kHeadsLast = {0, 2, 1, 3};  // [b,a,s,d] ⇄ [b,s,a,d]
const std::vector<std::int64_t> kLastTwo = {0, 2, 1};       // [b,a,s] ⇄ [b,s,a]

// x · w, where w may be the view of a transposed weight, whose own layout then counts.
void product(Convert& c, const FxNode& node, TensorId x, TensorId w, std::optional<TensorId> bias, bool nt) {
  OpAttributes attributes;
  if (const TensorId source = c.builder.untransposed(w); source.valid() && !nt) {
    w = source;
    nt = true;
  }
  attributes.word = nt ? "nt" : "nn";
  attributes.bias = bias.has_value();
  std::vector<TensorId> inputs = {x, w};
  if (bias) inputs.push_back(*bias);
  const TensorId y = c.result(node);
  const bool weight =
      c.builder.sizes(w).size() == 2 && !c.builder.sizes(x).empty() && !c.builder.sizes(y).empty();
  c.add(node, weight ? OpKind::kMatmul : OpKind::kBatchMatmul, std::move(inputs), {y}, attributes);
}

void linear(Convert& c, const FxNode& node) {
  const TensorId w = c.tensor(node, 1, "weight");
  if (c.builder.sizes(w).size() != 2) c.wrong(node, "linear: the weight isn't a matrix");
  product(c, node, c.tensor(node, 0, "input"), w, c.optional_tensor(node, 2, "bias"), true);
}

// addmm(bias, a, b). A bias with rows of its own is added by itself.
void addmm(Convert& c, const FxNode& node) {
  const TensorId bias = c.tensor(node, 0);
  if (c.builder.sizes(bias).size() == 1)
    return product(c, node, c.tensor(node, 1), c.tensor(node, 2), bias, false);
  for (const std::size_t i : {1, 2}) {
    if (c.builder.sizes(c.tensor(node, i)).size() != 2)
      c.wrong(node, "addmm: an operand that isn't a matrix");
  }
  FxNode inner = node;
  inner.name = node.name + ".product";
  const TensorId y = c.result(node);
  if (c.builder.sizes(y).size() != 2) c.wrong(node, "addmm: its result isn't a matrix");
  const TensorId made = c.builder.add_result(inner.name, c.builder[y].dtype, c.builder.sizes(y));
  OpAttributes attributes;
  attributes.word = "nn";
  c.add(inner, OpKind::kMatmul, {c.tensor(node, 1), c.tensor(node, 2)}, {made}, attributes);
  c.add(node, OpKind::kAdd, {made, bias}, {y});
}

void matmul(Convert& c, const FxNode& node) {
  const TensorId a = c.tensor(node, 0);
  const TensorId b = c.tensor(node, 1);
  if (c.builder.sizes(a).size() < 2 || c.builder.sizes(b).size() < 2) {
    c.wrong(node, fmt::format("{}: an operand with less than two dimensions; add one with unsqueeze()",
                              node.target));
  }
  product(c, node, a, b, std::nullopt, false);
}

void baddbmm(Convert& c, const FxNode& node) {
  OpAttributes attributes;
  attributes.word = "nn";
  c.add(node, OpKind::kBatchMatmul, {c.tensor(node, 1), c.tensor(node, 2), c.tensor(node, 0)},
        {c.result(node)}, attributes);
}

void unary(Convert& c, const FxNode& node, Activation activation) {
  OpAttributes attributes;
  attributes.activation = activation;
  c.add(node, OpKind::kUnary, {c.tensor(node, 0, "input")}, {c.result(node)}, attributes);
}

void unary_gradient(Convert& c, const FxNode& node, Activation activation) {  // (dy, x)
  OpAttributes attributes;
  attributes.activation = activation;
  c.add(node, OpKind::kUnaryGrad, {c.tensor(node, 1), c.tensor(node, 0)}, {c.result(node)}, attributes);
}

// layer_norm(x, shape, weight, bias, eps), native_layer_norm, rms_norm(x, shape, weight, eps) and their fused
// kin.
void norm(Convert& c, const FxNode& node, NormKind kind) {
  const bool layer = kind == NormKind::kLayer;
  OpAttributes attributes;
  attributes.norm = kind;
  attributes.epsilon = c.number(node, layer ? 4 : 3, "eps", 1e-5);
  std::vector<TensorId> inputs = {c.tensor(node, 0, "input")};
  const auto weight = c.optional_tensor(node, 2, "weight");
  const auto bias = layer ? c.optional_tensor(node, 3, "bias") : std::nullopt;
  if (weight) inputs.push_back(*weight);
  if (weight && bias) inputs.push_back(*bias);
  attributes.weight = weight.has_value();
  attributes.bias = weight && bias;
  c.add(node, OpKind::kNorm, std::move(inputs), {c.result(node)}, attributes);
  // Mean and 1/σ, made along the way.
  for (std::size_t i = 1; i < 3; ++i) {
    if (!c.says(node, i)) continue;
    OpAttributes statistic;
    statistic.view = true;
    statistic.word = i == 1 ? "mean" : "rstd";
    const TensorId made = c.result(node, i);
    std::int64_t axis = 0;
    for (const std::int64_t size : c.builder.sizes(made)) {
      if (size == 1) statistic.axes.push_back(axis);
      ++axis;
    }
    c.add(node, OpKind::kReduce, {c.tensor(node, 0, "input")}, {made}, statistic, fmt::format(".{}", i));
  }
}

// native_layer_norm_backward(dy, x, shape, mean, rstd, weight, bias, mask) → dx, dweight, dbias
void norm_gradient(Convert& c, const FxNode& node) {
  OpAttributes attributes;
  attributes.norm = NormKind::kLayer;
  std::vector<TensorId> inputs = {c.tensor(node, 1)};
  const auto weight = c.optional_tensor(node, 5);
  if (weight) inputs.push_back(*weight);
  inputs.push_back(c.tensor(node, 0));
  attributes.weight = weight.has_value();
  attributes.bias = c.says(node, 2);
  c.add(node, OpKind::kNormGrad, std::move(inputs), c.results(node), attributes);
}

// A view [b,s,a,d] of what PyTorch keeps as [b,a,s,d].
TensorId heads_last(Convert& c, const FxNode& node, TensorId x, std::string_view suffix) {
  const auto& axes = c.builder.sizes(x).size() == 3 ? kLastTwo : kHeadsLast;
  return c.builder.add_transpose(node.name + std::string(suffix), x, axes, node.module, true);
}

// Our attention has no mask, whole sequences and heads that share evenly. `like_q` and `like_kv` are what has
// to be shaped like q and like k.
bool is_plain_attention(Convert& c, TensorId q, TensorId k, TensorId v, const std::vector<TensorId>& like_q,
                        const std::vector<TensorId>& like_kv) {
  const ImportSizes& qs = c.builder.sizes(q);
  const ImportSizes& ks = c.builder.sizes(k);
  const ImportSizes& vs = c.builder.sizes(v);
  const auto like = [&](const std::vector<TensorId>& tensors, const ImportSizes& sizes) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](TensorId one) { return c.builder.sizes(one) == sizes; });
  };
  if (!like(like_q, qs) || !like(like_kv, ks)) return false;
  return qs.size() == 4 && ks.size() == 4 && vs.size() == 4 && qs[0] == ks[0] && qs[2] == ks[2] &&
         qs[3] == ks[3] && vs[0] == ks[0] && vs[1] == ks[1] && vs[2] == ks[2] && vs[3] == ks[3] &&
         qs[1] % ks[1] == 0;
}

void attention(Convert& c, const FxNode& node, std::size_t mask_at, std::size_t dropout_at,
               std::size_t causal_at) {
  const TensorId q = c.tensor(node, 0, "query");
  const TensorId k = c.tensor(node, 1, "key");
  const TensorId v = c.tensor(node, 2, "value");
  const auto mask = mask_at > 0 ? c.optional_tensor(node, mask_at, "attn_mask") : std::nullopt;
  OpAttributes attributes;
  attributes.causal = c.integer(node, causal_at, "is_causal", 0) != 0;
  attributes.rate = c.number(node, dropout_at, "dropout_p", 0.0);
  std::vector<TensorId> outputs = {c.result(node)};
  const ImportSizes sizes = c.builder.sizes(outputs[0]);  // A copy: adding tensors moves them.
  const ImportSizes rows = c.says(node, 1) ? c.sizes(node, 1) : ImportSizes{};
  const bool keeps_lse = !rows.empty();
  const bool lse_fits =
      !keeps_lse || rows == ImportSizes(sizes.begin(), sizes.end() - (sizes.empty() ? 0 : 1));
  if (mask || attributes.rate > 0 || !lse_fits || !is_plain_attention(c, q, k, v, {outputs[0]}, {})) {
    std::vector<TensorId> inputs = {q, k, v};
    if (mask) inputs.push_back(*mask);
    if (keeps_lse) outputs.push_back(c.result(node, 1));
    c.add(node, OpKind::kMaskedAttention, std::move(inputs), std::move(outputs), attributes);
    return;
  }
  const ImportSizes turned = {sizes[0], sizes[2], sizes[1], sizes[3]};
  const TensorId o = c.builder.add_result(node.name + ".o", c.builder[outputs[0]].dtype, turned);
  const TensorId lse = c.builder.add_result(node.name + ".lse", DType::kFp32, {sizes[0], sizes[2], sizes[1]});
  const std::vector<TensorId> inputs = {heads_last(c, node, q, ".q"), heads_last(c, node, k, ".k"),
                                        heads_last(c, node, v, ".v")};
  c.add(node, OpKind::kAttention, inputs, {o, lse}, attributes, ".attention");
  OpAttributes back;
  back.axes = kHeadsLast;
  back.view = true;
  c.add(node, OpKind::kTranspose, {o}, {outputs[0]}, back);
  if (!keeps_lse) return;
  back.axes = kLastTwo;
  c.add(node, OpKind::kTranspose, {lse}, {c.result(node, 1)}, back, ".1");
}

// *_backward(do, q, k, v, …, o, lse, …) → dq, dk, dv. `first_state` is where o stands.
void attention_gradient(Convert& c, const FxNode& node, std::size_t first_state, bool bias_before) {
  const std::size_t q_at = 1;
  const TensorId q = c.tensor(node, q_at);
  const TensorId k = c.tensor(node, q_at + 1);
  const TensorId v = c.tensor(node, q_at + 2);
  const TensorId dout = c.tensor(node, 0);
  const TensorId o = c.tensor(node, first_state);
  const TensorId lse = c.tensor(node, first_state + 1);
  const auto bias = bias_before ? c.optional_tensor(node, 4) : std::nullopt;
  OpAttributes attributes;
  attributes.causal = false;
  for (const FxValue& value : node.arguments) {  // The one flag of these operators that is set is is_causal.
    if (value.kind == FxValue::Kind::kBool && value.integer != 0) attributes.causal = true;
  }
  const ImportSizes sizes = c.builder.sizes(q);
  const ImportSizes rows = sizes.size() == 4 ? ImportSizes{sizes[0], sizes[1], sizes[2]} : ImportSizes{};
  std::vector<TensorId> outputs = c.results(node);
  if (bias || c.builder.sizes(lse) != rows || outputs.size() != 3 ||
      !is_plain_attention(c, q, k, v, {o, dout, outputs[0]}, {outputs[1], outputs[2]})) {
    attributes.word = "backward";
    std::vector<TensorId> inputs = {q, k, v, o, lse, dout};
    if (bias) inputs.push_back(*bias);
    return c.add(node, OpKind::kMaskedAttention, std::move(inputs), std::move(outputs), attributes);
  }
  const std::vector<TensorId> inputs = {heads_last(c, node, q, ".q"),     heads_last(c, node, k, ".k"),
                                        heads_last(c, node, v, ".v"),     heads_last(c, node, o, ".o"),
                                        heads_last(c, node, lse, ".lse"), heads_last(c, node, dout, ".do")};
  std::vector<TensorId> turned;
  for (std::size_t i = 0; i < 3; ++i) {
    turned.push_back(c.builder.add_result(fmt::format("{}.d{}", node.name, i), c.builder[outputs[i]].dtype,
                                          c.builder.sizes(inputs[i])));
  }
  c.add(node, OpKind::kAttentionGrad, inputs, turned, attributes, ".attention");
  OpAttributes back;
  back.axes = kHeadsLast;
  back.view = true;
  for (std::size_t i = 0; i < 3; ++i) {
    c.add(node, OpKind::kTranspose, {turned[i]}, {outputs[i]}, back, i == 0 ? "" : fmt::format(".{}", i));
  }
}

// embedding(table, ids); torch.nn.functional.embedding(ids, table).
void embedding(Convert& c, const FxNode& node) {
  TensorId table = c.tensor(node, 0);
  TensorId ids = c.tensor(node, 1);
  const DType first = c.builder[table].dtype;
  if (first == DType::kInt64 || first == DType::kInt32) std::swap(table, ids);
  c.add(node, OpKind::kEmbedding, {ids, table}, {c.result(node)});
}

// cross_entropy(logits, labels) over rows; labels that are probabilities stay a reduction.
void cross_entropy(Convert& c, const FxNode& node) {
  const TensorId logits = c.tensor(node, 0, "input");
  const TensorId labels = c.tensor(node, 1, "target");
  const TensorId lse = c.builder.add_result(node.name + ".lse", DType::kFp32, c.builder.sizes(labels));
  c.add(node, OpKind::kCrossEntropy, {logits, labels}, {c.result(node), lse});
}

// (dy, log-probabilities, labels, …) → what the labels' rows get of dy.
void nll_gradient(Convert& c, const FxNode& node) {
  OpAttributes attributes;
  attributes.word = "nll-loss-backward";
  c.add(node, OpKind::kScatter, {c.tensor(node, 1), c.tensor(node, 0), c.tensor(node, 2)}, {c.result(node)},
        attributes);
}

struct AttentionForm {
  std::size_t mask_at, dropout_at, causal_at;
};

// Positions of attn_mask (0: it has none), dropout_p and is_causal.
const std::map<std::string_view, AttentionForm>& attention_forms() {
  static const std::map<std::string_view, AttentionForm> kForms = {
      {"scaled_dot_product_attention", {3, 4, 5}},
      {"_scaled_dot_product_flash_attention", {0, 3, 4}},
      {"_scaled_dot_product_flash_attention_for_cpu", {0, 3, 4}},
      {"_scaled_dot_product_efficient_attention", {3, 5, 6}},
      {"_scaled_dot_product_cudnn_attention", {3, 5, 6}},
      {"_scaled_dot_product_fused_attention_overrideable", {3, 4, 5}}};
  return kForms;
}

// Position of o among the arguments, and whether a bias stands between v and o.
const std::map<std::string_view, std::pair<std::size_t, bool>>& attention_gradients() {
  static const std::map<std::string_view, std::pair<std::size_t, bool>> kForms = {
      {"_scaled_dot_product_flash_attention_backward", {4, false}},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", {4, false}},
      {"_scaled_dot_product_efficient_attention_backward", {5, true}},
      {"_scaled_dot_product_cudnn_attention_backward", {4, false}},
      {"_scaled_dot_product_fused_attention_overrideable_backward", {6, true}}};
  return kForms;
}

using Rule = void (*)(Convert&, const FxNode&);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> kRules = {
      {"linear", linear},
      {"addmm", addmm},
      {"mm", matmul},
      {"bmm", matmul},
      {"matmul", matmul},
      {"baddbmm", baddbmm},
      {"embedding", embedding},
      {"cross_entropy", cross_entropy},
      {"cross_entropy_loss", cross_entropy},
      {"native_layer_norm_backward", norm_gradient},
      {"nll_loss_backward", nll_gradient},
      {"relu", [](Convert& c, const FxNode& node) { unary(c, node, Activation::kRelu); }},
      {"silu", [](Convert& c, const FxNode& node) { unary(c, node, Activation::kSilu); }},
      {"gelu", [](Convert& c, const FxNode& node) { unary(c, node, Activation::kGelu); }},
      {"silu_backward", [](Convert& c, const FxNode& node) { unary_gradient(c, node, Activation::kSilu); }},
      {"gelu_backward", [](Convert& c, const FxNode& node) { unary_gradient(c, node, Activation::kGelu); }},
      {"threshold_backward",
       [](Convert& c, const FxNode& node) { unary_gradient(c, node, Activation::kRelu); }},
      {"layer_norm", [](Convert& c, const FxNode& node) { norm(c, node, NormKind::kLayer); }},
      {"native_layer_norm", [](Convert& c, const FxNode& node) { norm(c, node, NormKind::kLayer); }},
      {"rms_norm", [](Convert& c, const FxNode& node) { norm(c, node, NormKind::kRms); }},
      {"_fused_rms_norm", [](Convert& c, const FxNode& node) { norm(c, node, NormKind::kRms); }},
      {"embedding_dense_backward", [](Convert& c, const FxNode& node) {  // (dy, ids, …) → dtable
         c.add(node, OpKind::kEmbeddingGrad, {c.tensor(node, 1), c.tensor(node, 0)}, {c.result(node)});
       }}};
  return kRules;
}

}  // namespace

bool apply_fx_layer(FxConverter& convert, const FxNode& node, std::string_view name) {
  if (const auto rule = rules().find(name); rule != rules().end()) {
    rule->second(convert, node);
    return true;
  }
  if (const auto form = attention_forms().find(name); form != attention_forms().end()) {
    attention(convert, node, form->second.mask_at, form->second.dropout_at, form->second.causal_at);
    return true;
  }
  if (const auto form = attention_gradients().find(name); form != attention_gradients().end()) {
    attention_gradient(convert, node, form->second.first, form->second.second);
    return true;
  }
  return false;
}

}  // namespace orrery
