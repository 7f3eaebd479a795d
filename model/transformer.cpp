// Builds the forward Graph of a decoder transformer from its shape.

#include "model/transformer.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"

namespace orrery {
namespace {

// One weight of a packed projection: its name, its result's name and the dimensions it makes.
struct Projection {
  std::string weight;
  std::string output;
  std::vector<DimId> makes;
};

class Builder {
 public:
  Builder(const TransformerConfig& config, DType compute);
  Graph build();

 private:
  DimId dim(std::string name, DimRole role, std::int64_t size);
  void add_dims();
  TensorId tensor(std::string name, TensorKind kind, DType dtype, std::vector<DimId> shape);
  TensorId parameter(std::string name, std::vector<DimId> shape);
  TensorId activation(const std::string& name, std::vector<DimId> shape);
  Op& op(const std::string& name, OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs);

  // "layer3.norm1" becomes an op of that name with weight "layer3.norm1.weight".
  TensorId norm(const std::string& name, TensorId x);
  // y_i = x · w_i (+ b_i); the contracted dimensions are the trailing ones of x.
  std::vector<TensorId> project(const std::string& name, TensorId x, std::vector<DimId> contracted,
                                const std::vector<Projection>& projections, bool bias);
  TensorId dropout(const std::string& name, TensorId x, double rate);
  TensorId add(const std::string& name, TensorId a, TensorId b, const std::string& output);

  TensorId embedding();
  TensorId layer(std::int32_t block, TensorId x);
  TensorId attention(const std::string& prefix, TensorId x);
  TensorId mlp(const std::string& prefix, TensorId x);
  void head(TensorId x);

  const TransformerConfig& config_;
  DType compute_;
  Graph graph_;
  std::int32_t block_ = 0;
  DimId batch_, sequence_, hidden_, heads_, kv_heads_, head_dim_, ffn_, vocab_, positions_, embedding_;
  TensorId table_;
};

Builder::Builder(const TransformerConfig& config, DType compute) : config_(config), compute_(compute) {
  graph_.name = config.name;
  graph_.layers = static_cast<std::int32_t>(config.layers);
  // Enough for what a layer with everything switched on makes; saves moving the vectors as they grow.
  graph_.tensors.reserve(static_cast<std::size_t>(config.layers + 1) * 48);
  graph_.ops.reserve(static_cast<std::size_t>(config.layers + 1) * 16);
  add_dims();
}

DimId Builder::dim(std::string name, DimRole role, std::int64_t size) {
  graph_.dims.push_back({std::move(name), role, size});
  return DimId(static_cast<std::int64_t>(graph_.dims.size()) - 1);
}

void Builder::add_dims() {
  batch_ = dim("batch", DimRole::kBatch, 0);
  sequence_ = dim("sequence", DimRole::kSequence, 0);
  hidden_ = dim("hidden", DimRole::kHidden, config_.hidden);
  heads_ = dim("heads", DimRole::kHeads, config_.heads);
  // Multi-head attention has one head dimension, so that q, k and v are divided alike.
  kv_heads_ =
      config_.kv_heads == config_.heads ? heads_ : dim("kv_heads", DimRole::kKvHeads, config_.kv_heads);
  head_dim_ = dim("head_dim", DimRole::kHeadDim, config_.head_dim);
  ffn_ = dim("ffn", DimRole::kFfn, config_.ffn);
  vocab_ = dim("vocab", DimRole::kVocab, config_.vocab);
  if (config_.positions == PositionKind::kLearned) {
    positions_ = dim("positions", DimRole::kPositions, config_.max_positions + config_.position_offset);
  }
  const bool projected = config_.embedding_dim != 0 && config_.embedding_dim != config_.hidden;
  embedding_ = projected ? dim("embedding", DimRole::kOther, config_.embedding_dim) : hidden_;
}

TensorId Builder::tensor(std::string name, TensorKind kind, DType dtype, std::vector<DimId> shape) {
  Tensor& made = graph_.tensors.emplace_back();
  made.name = std::move(name);
  made.kind = kind;
  made.dtype = dtype;
  made.shape = std::move(shape);
  made.block = block_;
  return TensorId(static_cast<std::int64_t>(graph_.tensors.size()) - 1);
}

TensorId Builder::parameter(std::string name, std::vector<DimId> shape) {
  return tensor(std::move(name), TensorKind::kParameter, compute_, std::move(shape));
}

TensorId Builder::activation(const std::string& name, std::vector<DimId> shape) {
  return tensor(name, TensorKind::kActivation, compute_, std::move(shape));
}

Op& Builder::op(const std::string& name, OpKind kind, std::vector<TensorId> inputs,
                std::vector<TensorId> outputs) {
  const OpId id(static_cast<std::int64_t>(graph_.ops.size()));
  for (const TensorId output : outputs) graph_.tensors[output.index()].producer = id;
  Op& made = graph_.ops.emplace_back();
  made.name = name;
  made.kind = kind;
  made.block = block_;
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  return made;
}

TensorId Builder::norm(const std::string& name, TensorId x) {
  const bool bias = config_.norm == NormKind::kLayer;
  const DimId normed = graph_[x].shape.back();
  std::vector<TensorId> inputs = {x, parameter(name + ".weight", {normed})};
  if (bias) inputs.push_back(parameter(name + ".bias", {normed}));
  const TensorId y = activation(name + ".output", graph_[x].shape);
  OpAttributes& attributes = op(name, OpKind::kNorm, std::move(inputs), {y}).attributes;
  attributes.norm = config_.norm;
  attributes.epsilon = config_.norm_epsilon;
  attributes.bias = bias;
  return y;
}

std::vector<TensorId> Builder::project(const std::string& name, TensorId x, std::vector<DimId> contracted,
                                       const std::vector<Projection>& projections, bool bias) {
  std::vector<TensorId> inputs = {x};
  std::vector<TensorId> biases;
  std::vector<TensorId> outputs;
  for (const Projection& projection : projections) {
    std::vector<DimId> weight = contracted;
    weight.insert(weight.end(), projection.makes.begin(), projection.makes.end());
    inputs.push_back(parameter(projection.weight + "_weight", std::move(weight)));
    if (bias) biases.push_back(parameter(projection.weight + "_bias", projection.makes));
    std::vector<DimId> shape = graph_[x].shape;
    shape.resize(shape.size() - contracted.size());
    shape.insert(shape.end(), projection.makes.begin(), projection.makes.end());
    outputs.push_back(activation(projection.output, std::move(shape)));
  }
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  op(name, OpKind::kMatmul, std::move(inputs), outputs).attributes.bias = bias;
  return outputs;
}

TensorId Builder::dropout(const std::string& name, TensorId x, double rate) {
  if (rate == 0) return x;
  const TensorId y = activation(name + ".output", graph_[x].shape);
  const TensorId mask = tensor(name + ".mask", TensorKind::kActivation, DType::kUint8, graph_[x].shape);
  op(name, OpKind::kDropout, {x}, {y, mask}).attributes.rate = rate;
  return y;
}

TensorId Builder::add(const std::string& name, TensorId a, TensorId b, const std::string& output) {
  const TensorId y = activation(output, graph_[a].shape);
  op(name, OpKind::kAdd, {a, b}, {y});
  return y;
}

TensorId Builder::embedding() {
  const TensorId ids = tensor("token_ids", TensorKind::kInput, DType::kInt64, {batch_, sequence_});
  table_ = parameter("embedding.table", {vocab_, embedding_});
  TensorId x = activation("embedding.tokens.output", {batch_, sequence_, embedding_});
  op("embedding.tokens", OpKind::kEmbedding, {ids, table_}, {x});
  if (embedding_ != hidden_) {
    x = project("embedding.project", x, {embedding_},
                {{"embedding.project", "embedding.project.output", {hidden_}}}, false)[0];
  }
  if (config_.positions == PositionKind::kLearned) {
    const TensorId table = parameter("embedding.position_table", {positions_, hidden_});
    const TensorId y = activation("embedding.positions.output", {batch_, sequence_, hidden_});
    op("embedding.positions", OpKind::kAddPositions, {x, table}, {y});
    x = y;
  }
  return dropout("embedding.dropout", x, config_.embedding_dropout);
}

TensorId Builder::attention(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "attention.";
  const std::vector<TensorId> qkv = project(prefix + "qkv", x, {hidden_},
                                            {{names + "q", names + "q", {heads_, head_dim_}},
                                             {names + "k", names + "k", {kv_heads_, head_dim_}},
                                             {names + "v", names + "v", {kv_heads_, head_dim_}}},
                                            config_.qkv_bias);
  TensorId q = qkv[0];
  TensorId k = qkv[1];
  if (config_.qk_norm) {
    q = norm(prefix + "q_norm", q);
    k = norm(prefix + "k_norm", k);
  }
  if (config_.positions == PositionKind::kRope) {
    const TensorId q_rotated = activation(names + "q_rotated", graph_[q].shape);
    const TensorId k_rotated = activation(names + "k_rotated", graph_[k].shape);
    OpAttributes& attributes = op(prefix + "rope", OpKind::kRope, {q, k}, {q_rotated, k_rotated}).attributes;
    attributes.rotary_fraction = config_.rotary_fraction;
    attributes.rope_theta = config_.rope_theta;
    q = q_rotated;
    k = k_rotated;
  }
  const TensorId context = activation(names + "context", graph_[q].shape);
  const TensorId lse =
      tensor(names + "lse", TensorKind::kActivation, DType::kFp32, {batch_, sequence_, heads_});
  op(prefix + "attention", OpKind::kAttention, {q, k, qkv[2]}, {context, lse});
  const TensorId y = project(prefix + "attention_out", context, {heads_, head_dim_},
                             {{names + "out", names + "output", {hidden_}}}, config_.attention_out_bias)[0];
  return dropout(prefix + "attention_dropout", y, config_.residual_dropout);
}

TensorId Builder::mlp(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "mlp.";
  const std::vector<DimId> inner = {batch_, sequence_, ffn_};
  TensorId y;
  if (config_.gated_mlp) {
    const std::vector<TensorId> both = project(
        prefix + "gate_up", x, {hidden_},
        {{names + "gate", names + "gate", {ffn_}}, {names + "up", names + "up", {ffn_}}}, config_.mlp_bias);
    const TensorId gated = activation(names + "gated", inner);
    op(prefix + "gated", OpKind::kGated, both, {gated}).attributes.activation = config_.activation;
    y = project(prefix + "down", gated, {ffn_}, {{names + "down", names + "output", {hidden_}}},
                config_.mlp_bias)[0];
  } else {
    const std::vector<TensorId> up =
        project(prefix + "fc1", x, {hidden_}, {{names + "fc1", names + "fc1", {ffn_}}}, config_.mlp_bias);
    const TensorId activated = activation(names + "activated", inner);
    op(prefix + "activation", OpKind::kUnary, up, {activated}).attributes.activation = config_.activation;
    y = project(prefix + "fc2", activated, {ffn_}, {{names + "fc2", names + "output", {hidden_}}},
                config_.mlp_bias)[0];
  }
  return dropout(prefix + "mlp_dropout", y, config_.residual_dropout);
}

TensorId Builder::layer(std::int32_t block, TensorId x) {
  block_ = block;
  const std::string prefix = "layer" + std::to_string(block) + ".";
  const TensorId normed = norm(prefix + "norm1", x);
  const TensorId attended = attention(prefix, normed);
  const TensorId residual = add(prefix + "attention_add", x, attended, prefix + "residual");
  const TensorId mlp_input = !config_.parallel_residual   ? norm(prefix + "norm2", residual)
                             : !config_.shared_input_norm ? norm(prefix + "norm2", x)
                                                          : normed;
  return add(prefix + "mlp_add", residual, mlp(prefix, mlp_input), prefix + "output");
}

void Builder::head(TensorId x) {
  ++block_;
  TensorId y = norm("final_norm", x);
  if (embedding_ != hidden_) {
    y = project("head.project", y, {hidden_}, {{"head.project", "head.project.output", {embedding_}}},
                false)[0];
  }
  std::vector<TensorId> inputs = {
      y, config_.tied_head ? table_ : parameter("head.weight", {embedding_, vocab_})};
  if (config_.head_bias) inputs.push_back(parameter("head.bias", {vocab_}));
  const TensorId logits = activation("logits", {batch_, sequence_, vocab_});
  op("head", OpKind::kMatmul, std::move(inputs), {logits}).attributes.bias = config_.head_bias;

  const TensorId labels = tensor("labels", TensorKind::kInput, DType::kInt64, {batch_, sequence_});
  const TensorId loss = tensor("loss", TensorKind::kActivation, DType::kFp32, {});
  const TensorId lse = tensor("loss.lse", TensorKind::kActivation, DType::kFp32, {batch_, sequence_});
  op("cross_entropy", OpKind::kCrossEntropy, {logits, labels}, {loss, lse});
}

Graph Builder::build() {
  TensorId x = embedding();
  for (std::int32_t block = 1; block <= graph_.layers; ++block) x = layer(block, x);
  head(x);
  return std::move(graph_);
}

}  // namespace

Graph build_forward(const TransformerConfig& config, DType compute) {
  const std::vector<std::string> faults = check(config);
  if (!faults.empty()) {
    fail(ErrorKind::kInput, "{}: {}", config.name.empty() ? "model" : config.name,
         fmt::join(faults.begin(), faults.end(), "; "));
  }
  return Builder(config, compute).build();
}

}  // namespace orrery
