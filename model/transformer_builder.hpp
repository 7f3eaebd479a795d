#pragma once
// Parts of build_forward: one Graph under construction. Names follow the layer: op "layer3.qkv", weight
// "layer3.attention.q_weight", result "layer3.attention.q".

#include <string>
#include <vector>

#include "model/transformer.hpp"

namespace orrery {

// One weight of a packed projection: its name, its result's name and the dimensions it makes.
struct Projection {
  std::string weight;
  std::string output;
  std::vector<DimId> makes;
};

class TransformerBuilder {
 public:
  TransformerBuilder(const TransformerConfig& config, DType compute);
  Graph build();

 private:
  DimId dim(std::string name, DimRole role, std::int64_t size);
  void add_dims();
  void add_latent_dims();
  void add_expert_dims();
  TensorId tensor(std::string name, TensorKind kind, DType dtype, std::vector<DimId> shape);
  TensorId parameter(std::string name, std::vector<DimId> shape);
  TensorId activation(const std::string& name, std::vector<DimId> shape);
  Op& op(const std::string& name, OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs);

  // "layer3.norm1" becomes an op of that name with weight "layer3.norm1.weight", over the last `over`
  // dimensions of x.
  TensorId norm(const std::string& name, TensorId x, std::size_t over = 1, bool weighted = true);
  // y_i = x · w_i (+ b_i); the contracted dimensions are the trailing ones of x. With `batch` one product for
  // each of x's first dimension.
  std::vector<TensorId> project(const std::string& name, TensorId x, const std::vector<DimId>& contracted,
                                const std::vector<Projection>& projections, bool bias,
                                const std::vector<DimId>& batch = {});
  TensorId dropout(const std::string& name, TensorId x, double rate);
  TensorId scale(const std::string& name, TensorId x, double factor);
  TensorId add(const std::string& name, TensorId a, TensorId b, const std::string& output);
  TensorId softcap(const std::string& name, TensorId x, double limit);

  TensorId embedding();
  TensorId layer(std::int32_t block, TensorId x);
  // What a sub-layer adds to the residual: after its own norm, scaled.
  TensorId residual_part(const std::string& name, TensorId x);
  void head(TensorId x);

  // ---- Attention (transformer_attention.cpp).
  struct Heads {
    TensorId q, k, v;
  };
  TensorId attention(const std::string& prefix, TensorId x);
  Heads plain_heads(const std::string& prefix, TensorId x);
  Heads latent_heads(const std::string& prefix, TensorId x);
  Heads normed_heads(const std::string& prefix, Heads heads);
  std::vector<TensorId> rotate(const std::string& name, const std::vector<TensorId>& heads);
  bool local() const;
  bool rotated() const;

  // ---- MLP and experts (transformer_experts.cpp).
  // An MLP of some width: op names begin with `prefix`, tensor names with `names`.
  struct MlpShape {
    std::string prefix, names;
    DimId ffn;
    bool bias = false;
    std::vector<DimId> batch;  // Experts.
  };
  TensorId mlp(const MlpShape& shape, TensorId x);
  TensorId mlp_or_experts(const std::string& prefix, TensorId x);
  TensorId experts(const std::string& prefix, TensorId x);
  TensorId shared_expert(const std::string& prefix, TensorId x);
  struct Routed {
    TensorId weights, picks;
  };
  Routed route(const std::string& prefix, TensorId x);
  bool has_experts() const;

  const TransformerConfig& config_;
  DType compute_;
  Graph graph_;
  std::int32_t block_ = 0;
  DimId batch_, sequence_, hidden_, heads_, kv_heads_, head_dim_, ffn_, vocab_, positions_, embedding_;
  DimId kv_latent_, q_latent_, plain_dim_, rope_dim_, value_dim_, shared_key_;
  DimId experts_, top_k_, slots_, expert_ffn_, shared_ffn_;
  TensorId table_;
};

}  // namespace orrery
