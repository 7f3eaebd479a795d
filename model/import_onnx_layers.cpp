// ONNX operators that are layers: products, attention, norms, embeddings, activations. Semantics: the ONNX
// operator pages, and ONNX Runtime's page of contributed operators (com.microsoft).

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/import_onnx_convert.hpp"

namespace orrery {
namespace {

using Convert = OnnxConverter;

const std::vector<std::int64_t> kHeadsSecond = {0, 2, 1, 3};  // [b,s,a,d] ⇄ [b,a,s,d]

TensorId reshaped(Convert& c, const OnnxNode& node, std::string_view suffix, TensorId x,
                  const ImportSizes& sizes) {
  const TensorId y = c.inner(node, suffix, c.builder[x].dtype, sizes);
  c.add(node, OpKind::kReshape, {x}, {y}, {}, suffix);
  return y;
}

TensorId turned(Convert& c, const OnnxNode& node, std::string_view suffix, TensorId x) {
  return c.builder.add_transpose(node.name + std::string(suffix), x, kHeadsSecond, node.module, true);
}

TensorId joined(Convert& c, const OnnxNode& node, std::string_view suffix, const std::vector<TensorId>& parts,
                std::int64_t axis) {
  ImportSizes sizes = c.builder.sizes(parts[0]);
  sizes[static_cast<std::size_t>(axis)] = 0;
  for (const TensorId part : parts)
    sizes[static_cast<std::size_t>(axis)] += c.builder.sizes(part)[static_cast<std::size_t>(axis)];
  const TensorId y = c.inner(node, suffix, c.builder[parts[0]].dtype, sizes);
  OpAttributes attributes;
  attributes.axes = {axis};
  c.add(node, OpKind::kConcat, parts, {y}, attributes, suffix);
  return y;
}

void expect_rank(const Convert& c, const OnnxNode& node, std::size_t i, std::size_t rank) {
  const std::size_t has = c.sizes(node, i).size();
  if (has != rank)
    c.wrong(node, fmt::format("{}: input {} has {} dimensions; expected {}", node.op, i, has, rank));
}

// ---- Products.

void matmul(Convert& c, const OnnxNode& node) {
  const ImportSizes a = c.sizes(node, 0);
  const ImportSizes b = c.sizes(node, 1);
  if (a.size() < 2 || b.size() < 2)
    c.wrong(node, "MatMul with an operand of one dimension; add one with Unsqueeze");
  ImportSizes sizes;
  const bool fits =
      broadcast_sizes(ImportSizes(a.begin(), a.end() - 2), ImportSizes(b.begin(), b.end() - 2), sizes) &&
      a.back() == b[b.size() - 2];
  if (!fits) c.wrong(node, fmt::format("MatMul of [{}] and [{}]", fmt::join(a, ", "), fmt::join(b, ", ")));
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b.back());
  OpAttributes attributes;
  attributes.word = "nn";
  c.add_one(node, b.size() == 2 ? OpKind::kMatmul : OpKind::kBatchMatmul,
            {c.tensor(node, 0), c.tensor(node, 1)}, c.dtype(node, 0), sizes, attributes);
}

void gemm(Convert& c, const OnnxNode& node) {
  expect_rank(c, node, 0, 2);
  expect_rank(c, node, 1, 2);
  TensorId a = c.tensor(node, 0);
  if (c.integer(node, "transA", 0) != 0)
    a = c.builder.add_transpose(node.name + ".a", a, {1, 0}, node.module, true);
  const bool nt = c.integer(node, "transB", 0) != 0;
  const ImportSizes& as = c.builder.sizes(a);
  const ImportSizes bs = c.sizes(node, 1);
  if (as[1] != bs[nt ? 1 : 0]) c.wrong(node, "Gemm: the inner sizes differ");
  OpAttributes attributes;
  attributes.word = nt ? "nt" : "nn";
  const ImportSizes sizes = {as[0], bs[nt ? 0 : 1]};
  std::vector<TensorId> inputs = {a, c.tensor(node, 1)};
  const bool added = c.has_input(node, 2);
  attributes.bias = added && c.sizes(node, 2).size() == 1;
  if (attributes.bias) inputs.push_back(c.tensor(node, 2));
  if (!added || attributes.bias)
    return c.add_one(node, OpKind::kMatmul, std::move(inputs), c.dtype(node, 0), sizes, attributes);
  const TensorId product = c.inner(node, ".product", c.dtype(node, 0), sizes);
  c.add(node, OpKind::kMatmul, std::move(inputs), {product}, attributes, ".product");
  OpAttributes sum;
  sum.word = "add";
  c.add_one(node, OpKind::kElementwise, {product, c.tensor(node, 2)}, c.dtype(node, 0), sizes, sum);
}

// ---- Activations, norms, embeddings.

void activation(Convert& c, const OnnxNode& node, Activation kind) {
  TensorId x = c.tensor(node, 0);
  const ImportSizes sizes = c.builder.sizes(x);
  if (c.has_input(node, 1)) {  // FastGelu and BiasGelu add a bias first.
    const TensorId sum = c.inner(node, ".sum", c.dtype(node, 0), sizes);
    OpAttributes add;
    add.word = "add";
    c.add(node, OpKind::kElementwise, {x, c.tensor(node, 1)}, {sum}, add, ".sum");
    x = sum;
  }
  OpAttributes attributes;
  attributes.activation = kind;
  c.add_one(node, OpKind::kUnary, {x}, c.builder[x].dtype, sizes, attributes);
}

void norm_of(Convert& c, const OnnxNode& node, TensorId x, std::size_t weight_at, std::size_t bias_at,
             NormKind kind) {
  OpAttributes attributes;
  attributes.norm = kind;
  attributes.epsilon = c.number(node, "epsilon", 1e-5);
  std::vector<TensorId> inputs = {x, c.tensor(node, weight_at)};
  attributes.bias = kind == NormKind::kLayer && c.has_input(node, bias_at);
  if (attributes.bias) inputs.push_back(c.tensor(node, bias_at));
  c.add_one(node, OpKind::kNorm, std::move(inputs), c.builder[x].dtype, ImportSizes(c.builder.sizes(x)),
            attributes);
  for (const std::size_t i : {1, 2}) {
    if (c.wanted(node, i))
      c.wrong(node, fmt::format("{}: its statistics are read; only the result can be", node.op));
  }
}

void norm(Convert& c, const OnnxNode& node, NormKind kind) {
  norm_of(c, node, c.tensor(node, 0), 1, 2, kind);
}

// x + skip (+ bias), then the norm; output 3 is the sum.
void skip_norm(Convert& c, const OnnxNode& node, NormKind kind) {
  const std::size_t bias_at = kind == NormKind::kLayer ? 4 : 3;
  const ImportSizes sizes = c.sizes(node, 0);
  const DType type = c.dtype(node, 0);
  const bool biased = c.has_input(node, bias_at);
  const TensorId sum =
      c.wanted(node, 3) ? c.output(node, 3, type, sizes) : c.inner(node, ".sum", type, sizes);
  TensorId x = c.tensor(node, 0);
  if (biased) {
    const TensorId with_bias = c.inner(node, ".bias", type, sizes);
    OpAttributes add;
    add.word = "add";
    c.add(node, OpKind::kElementwise, {x, c.tensor(node, bias_at)}, {with_bias}, add, ".bias");
    x = with_bias;
  }
  c.add(node, OpKind::kAdd, {x, c.tensor(node, 1)}, {sum}, {}, ".sum");
  norm_of(c, node, sum, 2, 3, kind);
}

TensorId looked_up(Convert& c, const OnnxNode& node, std::string_view suffix, TensorId ids, TensorId table) {
  ImportSizes sizes = c.builder.sizes(ids);
  if (c.builder.sizes(table).size() != 2)
    c.wrong(node, fmt::format("{}: a table without rows and columns", node.op));
  sizes.push_back(c.builder.sizes(table)[1]);
  const TensorId y = c.inner(node, suffix, c.builder[table].dtype, sizes);
  c.add(node, OpKind::kEmbedding, {ids, table}, {y}, {}, suffix);
  return y;
}

// ids, segments, words, positions, segment table, gamma, beta, mask, position ids → norm, mask index, sum
void embed_layer_norm(Convert& c, const OnnxNode& node) {
  expect_rank(c, node, 0, 2);
  TensorId x = looked_up(c, node, ".words", c.tensor(node, 0), c.tensor(node, 2));
  const ImportSizes sizes = c.builder.sizes(x);
  const DType type = c.builder[x].dtype;
  const auto sum = [&](std::string_view suffix, TensorId part, bool last) {
    const TensorId y =
        last && c.wanted(node, 2) ? c.output(node, 2, type, sizes) : c.inner(node, suffix, type, sizes);
    c.add(node, OpKind::kAdd, {x, part}, {y}, {}, suffix);
    x = y;
  };
  const bool segments = c.has_input(node, 1) && c.has_input(node, 4);
  if (segments) sum(".sum", looked_up(c, node, ".segments", c.tensor(node, 1), c.tensor(node, 4)), false);
  if (c.has_input(node, 8)) {
    sum(".sum_positions", looked_up(c, node, ".positions", c.tensor(node, 8), c.tensor(node, 3)), true);
  } else {
    const TensorId y =
        c.wanted(node, 2) ? c.output(node, 2, type, sizes) : c.inner(node, ".positions", type, sizes);
    c.add(node, OpKind::kAddPositions, {x, c.tensor(node, 3)}, {y}, {}, ".positions");
    x = y;
  }
  OpAttributes attributes;
  attributes.norm = NormKind::kLayer;
  attributes.bias = true;
  attributes.epsilon = c.number(node, "epsilon", 1e-12);
  c.add_one(node, OpKind::kNorm, {x, c.tensor(node, 5), c.tensor(node, 6)}, type, sizes, attributes);
  if (c.wanted(node, 1)) c.wrong(node, "EmbedLayerNormalization: its mask index is read; export without it");
}

// ---- Attention.

struct Heads {
  TensorId q, k, v;            // [b,a,s,d], [b,g,t,d], [b,g,t,d]
  std::vector<TensorId> mask;  // What else decides which keys count.
  bool causal = false;
};

// o[b,s,a·d]
void attend(Convert& c, const OnnxNode& node, const Heads& heads) {
  const ImportSizes q = c.builder.sizes(heads.q);
  const ImportSizes k = c.builder.sizes(heads.k);
  const ImportSizes flat = {q[0], q[2], q[1] * q[3]};
  const DType type = c.builder[heads.q].dtype;
  OpAttributes attributes;
  attributes.causal = heads.causal;
  const ImportSizes apart = {q[0], q[2], q[1], q[3]};
  TensorId o;
  if (heads.mask.empty() && q[2] == k[2]) {
    o = c.inner(node, ".o", type, apart);
    const TensorId lse = c.inner(node, ".lse", DType::kFp32, {q[0], q[2], q[1]});
    c.add(node, OpKind::kAttention,
          {turned(c, node, ".qt", heads.q), turned(c, node, ".kt", heads.k), turned(c, node, ".vt", heads.v)},
          {o, lse}, attributes, ".attention");
  } else {
    std::vector<TensorId> inputs = {heads.q, heads.k, heads.v};
    inputs.insert(inputs.end(), heads.mask.begin(), heads.mask.end());
    const TensorId together = c.inner(node, ".o", type, q);
    c.add(node, OpKind::kMaskedAttention, std::move(inputs), {together}, attributes, ".attention");
    o = turned(c, node, ".ot", together);
  }
  c.add_one(node, OpKind::kReshape, {o}, type, flat);
}

// x[b,s,a·d] → [b,a,s,d]
TensorId split_heads(Convert& c, const OnnxNode& node, std::string_view suffix, TensorId x,
                     std::int64_t heads) {
  const ImportSizes sizes = c.builder.sizes(x);
  if (sizes.size() != 3 || heads < 1 || sizes[2] % heads != 0) {
    c.wrong(node, fmt::format("{}: [{}] doesn't divide by {} heads", node.op, fmt::join(sizes, ", "), heads));
  }
  const std::string apart = std::string(suffix) + "_heads";
  const TensorId y = reshaped(c, node, apart, x, {sizes[0], sizes[1], heads, sizes[2] / heads});
  return turned(c, node, suffix, y);
}

void expect_past(const Convert& c, const OnnxNode& node, TensorId past, TensorId now) {
  const ImportSizes& before = c.builder.sizes(past);
  const ImportSizes& after = c.builder.sizes(now);
  if (before.size() == 4 && before[0] == after[0] && before[1] == after[1] && before[3] == after[3]) return;
  c.wrong(node, fmt::format("{}: the past is [{}] and the new keys are [{}]", node.op,
                            fmt::join(before, ", "), fmt::join(after, ", ")));
}

// k and v with the past before them; `present` are the outputs that hand them on.
void with_past(Convert& c, const OnnxNode& node, Heads& heads, TensorId past_k, TensorId past_v) {
  expect_past(c, node, past_k, heads.k);
  expect_past(c, node, past_v, heads.v);
  heads.k = joined(c, node, ".k_all", {past_k, heads.k}, 2);
  heads.v = joined(c, node, ".v_all", {past_v, heads.v}, 2);
}

// com.microsoft.Attention: x, weight[h,3h], bias[3h], mask, past[2,b,a,p,d] → o, present[2,b,a,t,d]
void attention(Convert& c, const OnnxNode& node) {
  expect_rank(c, node, 0, 3);
  expect_rank(c, node, 1, 2);
  const ImportSizes x = c.sizes(node, 0);
  const ImportSizes w = c.sizes(node, 1);
  const std::int64_t heads = c.integer(node, "num_heads", 0);
  if (!c.integers(node, "qkv_hidden_sizes").empty() || w[1] % 3 != 0 || w[0] != x[2]) {
    c.wrong(node, "Attention: q, k and v of different widths aren't read");
  }
  const DType type = c.dtype(node, 0);
  OpAttributes product;
  product.word = "nn";
  product.bias = c.has_input(node, 2);
  std::vector<TensorId> inputs = {c.tensor(node, 0), c.tensor(node, 1)};
  if (product.bias) inputs.push_back(c.tensor(node, 2));
  const TensorId qkv = c.inner(node, ".qkv", type, {x[0], x[1], w[1]});
  c.add(node, OpKind::kMatmul, std::move(inputs), {qkv}, product, ".qkv");
  OpAttributes part;
  part.axes = {2};
  part.view = true;
  std::vector<TensorId> parts;
  for (const char* suffix : {".q0", ".k0", ".v0"})
    parts.push_back(c.inner(node, suffix, type, {x[0], x[1], w[1] / 3}));
  c.add(node, OpKind::kSlice, {qkv}, parts, part, ".split");
  Heads made{split_heads(c, node, ".q", parts[0], heads),
             split_heads(c, node, ".k", parts[1], heads),
             split_heads(c, node, ".v", parts[2], heads),
             {},
             c.integer(node, "unidirectional", 0) != 0};
  if (c.has_input(node, 3)) made.mask.push_back(c.tensor(node, 3));
  if (c.has_input(node, 4)) {
    ImportSizes past = c.sizes(node, 4);
    if (past.size() != 5 || past[0] != 2)
      c.wrong(node, "Attention: the past isn't [2, batch, heads, length, size]");
    past.erase(past.begin());
    OpAttributes pick;
    pick.axes = {0};
    pick.view = true;
    const TensorId k = c.inner(node, ".past_k", type, past);
    const TensorId v = c.inner(node, ".past_v", type, past);
    c.add(node, OpKind::kSlice, {c.tensor(node, 4)}, {k, v}, pick, ".past");
    with_past(c, node, made, k, v);
  }
  if (c.wanted(node, 1)) {
    ImportSizes one = c.builder.sizes(made.k);
    one.insert(one.begin(), 1);
    const TensorId k = reshaped(c, node, ".present_k", made.k, one);
    const TensorId v = reshaped(c, node, ".present_v", made.v, one);
    one[0] = 2;
    OpAttributes join;
    join.axes = {0};
    c.add(node, OpKind::kConcat, {k, v}, {c.output(node, 1, type, one)}, join, ".present");
  }
  attend(c, node, made);
}

// Hands the keys on as output `i`, where that is read.
void present(Convert& c, const OnnxNode& node, std::size_t i, TensorId keys) {
  if (c.wanted(node, i)) c.set(node, i, {keys, std::nullopt});
}

// q[b,s,a·d], k, v[b,s,g·d], past k, past v[b,g,p,d], lengths, total length, cos, sin → o, present k, present
// v
void group_query_attention(Convert& c, const OnnxNode& node) {
  const std::int64_t kv_heads = c.integer(node, "kv_num_heads", 0);
  const std::int64_t heads = c.integer(node, "num_heads", 0);
  if (!c.has_input(node, 1) || !c.has_input(node, 2))
    c.wrong(node, "GroupQueryAttention: packed q, k and v aren't read");
  Heads made{split_heads(c, node, ".q", c.tensor(node, 0), heads),
             split_heads(c, node, ".k", c.tensor(node, 1), kv_heads),
             split_heads(c, node, ".v", c.tensor(node, 2), kv_heads),
             {},
             true};
  if (kv_heads < 1 || heads % kv_heads != 0)
    c.wrong(node, "GroupQueryAttention: the heads don't share evenly");
  if (c.has_input(node, 3) && c.has_input(node, 4))
    with_past(c, node, made, c.tensor(node, 3), c.tensor(node, 4));
  if (c.has_input(node, 5) && c.constant(node, 5) == nullptr) made.mask.push_back(c.tensor(node, 5));
  present(c, node, 1, made.k);
  present(c, node, 2, made.v);
  attend(c, node, made);
}

// q, k, v[b,s,h], bias, key padding mask, attention bias, past k, past v
void multi_head_attention(Convert& c, const OnnxNode& node) {
  const std::int64_t heads = c.integer(node, "num_heads", 0);
  if (!c.has_input(node, 1) || !c.has_input(node, 2) || c.has_input(node, 3)) {
    c.wrong(node, "MultiHeadAttention: packed q, k and v, or with a bias, aren't read");
  }
  Heads made{split_heads(c, node, ".q", c.tensor(node, 0), heads),
             split_heads(c, node, ".k", c.tensor(node, 1), heads),
             split_heads(c, node, ".v", c.tensor(node, 2), heads),
             {},
             c.integer(node, "unidirectional", 0) != 0};
  for (const std::size_t i : {4, 5}) {
    if (c.has_input(node, i)) made.mask.push_back(c.tensor(node, i));
  }
  if (c.has_input(node, 6) && c.has_input(node, 7))
    with_past(c, node, made, c.tensor(node, 6), c.tensor(node, 7));
  present(c, node, 1, made.k);
  present(c, node, 2, made.v);
  attend(c, node, made);
}

// Float tables with whole rows looked up are embeddings.
bool embedding(Convert& c, const OnnxNode& node) {
  if (!c.has_input(node, 0) || !c.has_input(node, 1)) return false;
  const DType ids = c.dtype(node, 1);
  const OnnxValue& table = c.value(node, 0);
  const bool looks_up = table.tensor.valid() && c.builder[table.tensor].kind == TensorKind::kParameter &&
                        c.sizes(node, 0).size() == 2 && !c.sizes(node, 1).empty() &&
                        c.constant(node, 1) == nullptr && (ids == DType::kInt64 || ids == DType::kInt32) &&
                        c.integer(node, "axis", 0) == 0;
  if (!looks_up) return false;
  ImportSizes sizes = c.sizes(node, 1);
  sizes.push_back(c.sizes(node, 0)[1]);
  c.add_one(node, OpKind::kEmbedding, {c.tensor(node, 1), c.tensor(node, 0)}, c.dtype(node, 0), sizes);
  return true;
}

void cross_entropy(Convert& c, const OnnxNode& node) {
  const ImportSizes scores = c.sizes(node, 0);
  const ImportSizes labels = c.sizes(node, 1);
  if (scores.size() != 2 || labels.size() != 1 || c.wanted(node, 1)) {
    c.wrong(node, "SoftmaxCrossEntropyLoss: expected scores [n, classes] and labels [n], and one output");
  }
  const TensorId lse = c.inner(node, ".lse", DType::kFp32, labels);
  c.add(node, OpKind::kCrossEntropy, {c.tensor(node, 0), c.tensor(node, 1)},
        {c.output(node, 0, c.dtype(node, 0), {}), lse});
}

using Rule = void (*)(Convert&, const OnnxNode&);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> kRules = {
      {"MatMul", matmul},
      {"Gemm", gemm},
      {"Relu", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kRelu); }},
      {"Gelu", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kGelu); }},
      {"com.microsoft.Gelu", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kGelu); }},
      {"com.microsoft.FastGelu", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kGelu); }},
      {"com.microsoft.BiasGelu", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kGelu); }},
      {"Swish", [](Convert& c, const OnnxNode& n) { activation(c, n, Activation::kSilu); }},
      {"LayerNormalization", [](Convert& c, const OnnxNode& n) { norm(c, n, NormKind::kLayer); }},
      {"RMSNormalization", [](Convert& c, const OnnxNode& n) { norm(c, n, NormKind::kRms); }},
      {"SimplifiedLayerNormalization", [](Convert& c, const OnnxNode& n) { norm(c, n, NormKind::kRms); }},
      {"com.microsoft.SkipLayerNormalization",
       [](Convert& c, const OnnxNode& n) { skip_norm(c, n, NormKind::kLayer); }},
      {"com.microsoft.SkipSimplifiedLayerNormalization",
       [](Convert& c, const OnnxNode& n) { skip_norm(c, n, NormKind::kRms); }},
      {"com.microsoft.EmbedLayerNormalization", embed_layer_norm},
      {"com.microsoft.Attention", attention},
      {"com.microsoft.GroupQueryAttention", group_query_attention},
      {"com.microsoft.MultiHeadAttention", multi_head_attention},
      {"SoftmaxCrossEntropyLoss", cross_entropy}};
  return kRules;
}

}  // namespace

bool apply_onnx_layer(OnnxConverter& convert, const OnnxNode& node) {
  if (node.op == "Gather") return embedding(convert, node);
  const auto rule = rules().find(node.op);
  if (rule == rules().end()) return false;
  rule->second(convert, node);
  return true;
}

}  // namespace orrery
