// Attention of one layer: heads from one packed projection or from latents, positions, the attention itself.

#include <utility>

#include "model/transformer_builder.hpp"

namespace orrery {
namespace {

// A list by layer, of which an empty one says the same of all.
bool by_layer(const std::vector<bool>& list, std::int32_t block, bool of_all) {
  return list.empty() ? of_all : list[static_cast<std::size_t>(block - 1)];
}

}  // namespace

void TransformerBuilder::add_latent_dims() {
  const LatentConfig& latent = config_.latent;
  kv_latent_ = dim("kv_latent", DimRole::kOther, latent.kv_dim);
  if (latent.q_dim != 0) q_latent_ = dim("q_latent", DimRole::kOther, latent.q_dim);
  plain_dim_ = dim("plain_dim", DimRole::kHeadDim, latent.plain_dim);
  rope_dim_ = dim("rope_dim", DimRole::kHeadDim, latent.rope_dim);
  value_dim_ = dim("value_dim", DimRole::kHeadDim, latent.value_dim);
  shared_key_ = dim("shared_key", DimRole::kOther, 1);
}

bool TransformerBuilder::local() const {
  const LocalAttentionConfig& local = config_.local;
  return (local.window != 0 || local.chunk != 0) && by_layer(local.layers, block_, true);
}

bool TransformerBuilder::rotated() const {
  return config_.positions == PositionKind::kRope && !by_layer(config_.unrotated_layers, block_, false);
}

std::vector<TensorId> TransformerBuilder::rotate(const std::string& name,
                                                 const std::vector<TensorId>& heads) {
  std::vector<TensorId> rotated_heads;
  for (const TensorId x : heads) {
    rotated_heads.push_back(activation(std::string(graph_[x].name) + "_rotated", graph_[x].shape));
  }
  OpAttributes& attributes = op(name, OpKind::kRope, heads, rotated_heads).attributes;
  attributes.rotary_fraction = config_.latent.kv_dim != 0 ? 1.0 : config_.rotary_fraction;
  const bool own_theta = local() && config_.local.rope_theta != 0;
  attributes.rope_theta = own_theta ? config_.local.rope_theta : config_.rope_theta;
  return rotated_heads;
}

TransformerBuilder::Heads TransformerBuilder::normed_heads(const std::string& prefix, Heads heads) {
  const std::size_t over = config_.qk_norm_across_heads ? 2 : 1;
  heads.q = norm(prefix + "q_norm", heads.q, over, !config_.qk_norm_unweighted);
  heads.k = norm(prefix + "k_norm", heads.k, over, !config_.qk_norm_unweighted);
  return heads;
}

TransformerBuilder::Heads TransformerBuilder::plain_heads(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "attention.";
  const std::vector<TensorId> qkv = project(prefix + "qkv", x, {hidden_},
                                            {{names + "q", names + "q", {heads_, head_dim_}},
                                             {names + "k", names + "k", {kv_heads_, head_dim_}},
                                             {names + "v", names + "v", {kv_heads_, head_dim_}}},
                                            config_.qkv_bias);
  Heads heads{qkv[0], qkv[1], qkv[2]};
  if (config_.qk_norm || config_.qk_norm_across_heads) heads = normed_heads(prefix, heads);
  if (!rotated()) return heads;
  const std::vector<TensorId> turned = rotate(prefix + "rope", {heads.q, heads.k});
  heads.q = turned[0];
  heads.k = turned[1];
  return config_.qk_norm_unweighted ? normed_heads(prefix, heads) : heads;
}

// The queries' projections stand before the keys' and values', as in x · w_down, norm, · w_up for each.
TransformerBuilder::Heads TransformerBuilder::latent_heads(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "attention.";
  TensorId q_input = x;
  DimId q_width = hidden_;
  if (config_.latent.q_dim != 0) {
    const TensorId down = project(prefix + "q_down", x, {hidden_},
                                  {{names + "q_down", names + "q_latent", {q_latent_}}}, config_.qkv_bias)[0];
    q_input = norm(prefix + "q_latent_norm", down);
    q_width = q_latent_;
  }
  const std::vector<TensorId> q = project(prefix + "q_up", q_input, {q_width},
                                          {{names + "q_plain", names + "q_plain", {heads_, plain_dim_}},
                                           {names + "q_rope", names + "q_rope", {heads_, rope_dim_}}},
                                          false);
  const std::vector<TensorId> down = project(prefix + "kv_down", x, {hidden_},
                                             {{names + "kv_down", names + "kv_latent", {kv_latent_}},
                                              {names + "k_rope", names + "k_rope", {shared_key_, rope_dim_}}},
                                             config_.qkv_bias);
  const std::vector<TensorId> kv =
      project(prefix + "kv_up", norm(prefix + "kv_latent_norm", down[0]), {kv_latent_},
              {{names + "k_plain", names + "k_plain", {heads_, plain_dim_}},
               {names + "v", names + "v", {heads_, value_dim_}}},
              false);
  TensorId q_rope = q[1];
  TensorId k_rope = down[1];
  if (rotated()) {  // Apart: the key that heads share isn't divided among them.
    q_rope = rotate(prefix + "q_rotate", {q_rope})[0];
    k_rope = rotate(prefix + "k_rotate", {k_rope})[0];
  }
  const std::vector<DimId> whole = {batch_, sequence_, heads_, head_dim_};
  Heads heads{activation(names + "q", whole), activation(names + "k", whole), kv[1]};
  op(prefix + "q_concat", OpKind::kHeadConcat, {q[0], q_rope}, {heads.q});
  op(prefix + "k_concat", OpKind::kHeadConcat, {kv[0], k_rope}, {heads.k});
  return heads;
}

TensorId TransformerBuilder::attention(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "attention.";
  const bool latent = config_.latent.kv_dim != 0;
  const Heads heads = latent ? latent_heads(prefix, x) : plain_heads(prefix, x);
  const DimId value_dim = latent ? value_dim_ : head_dim_;
  std::vector<TensorId> inputs = {heads.q, heads.k, heads.v};
  if (config_.attention_sinks) inputs.push_back(parameter(names + "sink", {heads_}));
  const TensorId context = activation(names + "context", {batch_, sequence_, heads_, value_dim});
  const TensorId lse =
      tensor(names + "lse", TensorKind::kActivation, DType::kFp32, {batch_, sequence_, heads_});
  OpAttributes& attributes =
      op(prefix + "attention", OpKind::kAttention, std::move(inputs), {context, lse}).attributes;
  if (local()) {
    attributes.window = config_.local.window;
    attributes.chunk = config_.local.chunk;
  }
  attributes.softcap = config_.attention_softcap;
  attributes.score_scale = config_.score_scale;
  const TensorId y = project(prefix + "attention_out", context, {heads_, value_dim},
                             {{names + "out", names + "output", {hidden_}}}, config_.attention_out_bias)[0];
  return dropout(prefix + "attention_dropout", y, config_.residual_dropout);
}

}  // namespace orrery
