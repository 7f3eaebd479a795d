// Builds the forward Graph of a decoder transformer from its shape.

#include <string>
#include <utility>

#include "base/error.hpp"
#include "model/transformer_builder.hpp"

namespace orrery {

TransformerBuilder::TransformerBuilder(const TransformerConfig& config, DType compute)
    : config_(config), compute_(compute) {
  graph_.name = config.name;
  graph_.layers = static_cast<std::int32_t>(config.layers);
  // Enough for what a layer with everything switched on makes; saves moving the vectors as they grow.
  graph_.tensors.reserve(static_cast<std::size_t>(config.layers + 1) * 48);
  graph_.ops.reserve(static_cast<std::size_t>(config.layers + 1) * 16);
  add_dims();
}

DimId TransformerBuilder::dim(std::string name, DimRole role, std::int64_t size) {
  graph_.dims.push_back({std::move(name), role, size});
  return DimId(static_cast<std::int64_t>(graph_.dims.size()) - 1);
}

void TransformerBuilder::add_dims() {
  batch_ = dim("batch", DimRole::kBatch, 0);
  sequence_ = dim("sequence", DimRole::kSequence, 0);
  hidden_ = dim("hidden", DimRole::kHidden, config_.hidden);
  heads_ = dim("heads", DimRole::kHeads, config_.heads);
  // Multi-head attention has one head dimension, so that q, k and v are divided alike.
  kv_heads_ =
      config_.kv_heads == config_.heads ? heads_ : dim("kv_heads", DimRole::kKvHeads, config_.kv_heads);
  head_dim_ = dim("head_dim", DimRole::kHeadDim, config_.head_dim);
  if (!config_.all_layers_have_experts()) ffn_ = dim("ffn", DimRole::kFfn, config_.ffn);
  vocab_ = dim("vocab", DimRole::kVocab, config_.vocab);
  if (config_.positions == PositionKind::kLearned) {
    positions_ = dim("positions", DimRole::kPositions, config_.max_positions + config_.position_offset);
  }
  const bool projected = config_.embedding_dim != 0 && config_.embedding_dim != config_.hidden;
  embedding_ = projected ? dim("embedding", DimRole::kOther, config_.embedding_dim) : hidden_;
  if (config_.latent.kv_dim != 0) add_latent_dims();
  if (config_.experts.count != 0) add_expert_dims();
}

TensorId TransformerBuilder::tensor(std::string name, TensorKind kind, DType dtype,
                                    std::vector<DimId> shape) {
  Tensor& made = graph_.tensors.emplace_back();
  made.name = std::move(name);
  made.kind = kind;
  made.dtype = dtype;
  made.shape = std::move(shape);
  made.block = block_;
  return TensorId(static_cast<std::int64_t>(graph_.tensors.size()) - 1);
}

TensorId TransformerBuilder::parameter(std::string name, std::vector<DimId> shape) {
  return tensor(std::move(name), TensorKind::kParameter, compute_, std::move(shape));
}

TensorId TransformerBuilder::activation(const std::string& name, std::vector<DimId> shape) {
  return tensor(name, TensorKind::kActivation, compute_, std::move(shape));
}

Op& TransformerBuilder::op(const std::string& name, OpKind kind, std::vector<TensorId> inputs,
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

TensorId TransformerBuilder::norm(const std::string& name, TensorId x, std::size_t over, bool weighted) {
  const bool bias = weighted && config_.norm == NormKind::kLayer && config_.norm_bias;
  const std::vector<DimId> normed(graph_[x].shape.end() - static_cast<std::ptrdiff_t>(over),
                                  graph_[x].shape.end());
  std::vector<TensorId> inputs = {x};
  if (weighted) inputs.push_back(parameter(name + ".weight", normed));
  if (bias) inputs.push_back(parameter(name + ".bias", normed));
  const TensorId y = activation(name + ".output", graph_[x].shape);
  OpAttributes& attributes = op(name, OpKind::kNorm, std::move(inputs), {y}).attributes;
  attributes.norm = config_.norm;
  attributes.epsilon = config_.norm_epsilon;
  attributes.bias = bias;
  attributes.weight = weighted;
  return y;
}

std::vector<TensorId> TransformerBuilder::project(const std::string& name, TensorId x,
                                                  const std::vector<DimId>& contracted,
                                                  const std::vector<Projection>& projections, bool bias,
                                                  const std::vector<DimId>& batch) {
  std::vector<TensorId> inputs = {x};
  std::vector<TensorId> biases;
  std::vector<TensorId> outputs;
  for (const Projection& projection : projections) {
    std::vector<DimId> weight = batch;
    weight.insert(weight.end(), contracted.begin(), contracted.end());
    weight.insert(weight.end(), projection.makes.begin(), projection.makes.end());
    inputs.push_back(parameter(projection.weight + "_weight", std::move(weight)));
    if (bias) {
      std::vector<DimId> made = batch;
      made.insert(made.end(), projection.makes.begin(), projection.makes.end());
      biases.push_back(parameter(projection.weight + "_bias", std::move(made)));
    }
    std::vector<DimId> shape = graph_[x].shape;
    shape.resize(shape.size() - contracted.size());
    shape.insert(shape.end(), projection.makes.begin(), projection.makes.end());
    outputs.push_back(activation(projection.output, std::move(shape)));
  }
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  op(name, OpKind::kMatmul, std::move(inputs), outputs).attributes.bias = bias;
  return outputs;
}

TensorId TransformerBuilder::dropout(const std::string& name, TensorId x, double rate) {
  if (rate == 0) return x;
  const TensorId y = activation(name + ".output", graph_[x].shape);
  const TensorId mask = tensor(name + ".mask", TensorKind::kActivation, DType::kUint8, graph_[x].shape);
  op(name, OpKind::kDropout, {x}, {y, mask}).attributes.rate = rate;
  return y;
}

TensorId TransformerBuilder::scale(const std::string& name, TensorId x, double factor) {
  if (factor == 1) return x;
  const TensorId y = activation(name + ".output", graph_[x].shape);
  op(name, OpKind::kScale, {x}, {y}).attributes.scale = factor;
  return y;
}

TensorId TransformerBuilder::softcap(const std::string& name, TensorId x, double limit) {
  if (limit == 0) return x;
  const TensorId y = activation(name + ".output", graph_[x].shape);
  OpAttributes& attributes = op(name, OpKind::kUnary, {x}, {y}).attributes;
  attributes.activation = Activation::kTanhCap;
  attributes.limit = limit;
  return y;
}

TensorId TransformerBuilder::add(const std::string& name, TensorId a, TensorId b, const std::string& output) {
  const TensorId y = activation(output, graph_[a].shape);
  op(name, OpKind::kAdd, {a, b}, {y});
  return y;
}

TensorId TransformerBuilder::embedding() {
  const TensorId ids = tensor("token_ids", TensorKind::kInput, DType::kInt64, {batch_, sequence_});
  table_ = parameter("embedding.table", {vocab_, embedding_});
  TensorId x = activation("embedding.tokens.output", {batch_, sequence_, embedding_});
  op("embedding.tokens", OpKind::kEmbedding, {ids, table_}, {x});
  if (embedding_ != hidden_) {
    x = project("embedding.project", x, {embedding_},
                {{"embedding.project", "embedding.project.output", {hidden_}}}, false)[0];
  }
  x = scale("embedding.scale", x, config_.embedding_scale);
  if (config_.positions == PositionKind::kLearned) {
    const TensorId table = parameter("embedding.position_table", {positions_, hidden_});
    const TensorId y = activation("embedding.positions.output", {batch_, sequence_, hidden_});
    op("embedding.positions", OpKind::kAddPositions, {x, table}, {y});
    x = y;
  }
  return dropout("embedding.dropout", x, config_.embedding_dropout);
}

TensorId TransformerBuilder::residual_part(const std::string& name, TensorId x) {
  if (config_.post_norm) x = norm(name + "_norm", x);
  return scale(name + "_scale", x, config_.residual_scale);
}

TensorId TransformerBuilder::layer(std::int32_t block, TensorId x) {
  block_ = block;
  const std::string prefix = "layer" + std::to_string(block) + ".";
  const TensorId normed = config_.pre_norm ? norm(prefix + "norm1", x) : x;
  const TensorId attended = residual_part(prefix + "attention_post", attention(prefix, normed));
  const auto mlp = [&](TensorId input) {
    return residual_part(prefix + "mlp_post", mlp_or_experts(prefix, input));
  };
  if (config_.parallel_residual) {
    TensorId input = config_.shared_input_norm ? normed : x;
    if (!config_.shared_input_norm && config_.pre_norm) input = norm(prefix + "norm2", input);
    // The branches first, as GPT-NeoX, GPT-J and Falcon do it: both are partial sums where heads and ffn are
    // divided.
    const TensorId branches = add(prefix + "branch_add", attended, mlp(input), prefix + "branches");
    return add(prefix + "residual_add", x, branches, prefix + "output");
  }
  const TensorId residual = add(prefix + "attention_add", x, attended, prefix + "residual");
  const TensorId part = mlp(config_.pre_norm ? norm(prefix + "norm2", residual) : residual);
  return add(prefix + "mlp_add", residual, part, prefix + "output");
}

void TransformerBuilder::head(TensorId x) {
  ++block_;
  TensorId y = norm("final_norm", x);
  if (embedding_ != hidden_) {
    y = project("head.project", y, {hidden_}, {{"head.project", "head.project.output", {embedding_}}},
                false)[0];
  }
  std::vector<TensorId> inputs = {
      y, config_.tied_head ? table_ : parameter("head.weight", {embedding_, vocab_})};
  if (config_.head_bias) inputs.push_back(parameter("head.bias", {vocab_}));
  TensorId logits = activation("logits", {batch_, sequence_, vocab_});
  op("head", OpKind::kMatmul, std::move(inputs), {logits}).attributes.bias = config_.head_bias;
  logits = softcap("head.softcap", scale("head.scale", logits, config_.logit_scale), config_.logit_softcap);

  const TensorId labels = tensor("labels", TensorKind::kInput, DType::kInt64, {batch_, sequence_});
  const TensorId loss = tensor("loss", TensorKind::kActivation, DType::kFp32, {});
  const TensorId lse = tensor("loss.lse", TensorKind::kActivation, DType::kFp32, {batch_, sequence_});
  op("cross_entropy", OpKind::kCrossEntropy, {logits, labels}, {loss, lse});
}

Graph TransformerBuilder::build() {
  TensorId x = embedding();
  for (std::int32_t block = 1; block <= graph_.layers; ++block) x = layer(block, x);
  head(x);
  return std::move(graph_);
}

Graph build_forward(const TransformerConfig& config, DType compute) {
  const std::vector<std::string> faults = check(config);
  if (!faults.empty()) {
    fail(ErrorKind::kInput, "{}: {}", config.name.empty() ? "model" : config.name,
         fmt::join(faults.begin(), faults.end(), "; "));
  }
  return TransformerBuilder(config, compute).build();
}

}  // namespace orrery
