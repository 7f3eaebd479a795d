// The MLP of one layer, or the experts that stand in its place.

#include <utility>

#include "model/transformer_builder.hpp"

namespace orrery {

void TransformerBuilder::add_expert_dims() {
  const ExpertsConfig& experts = config_.experts;
  experts_ = dim("experts", DimRole::kExperts, experts.count);
  top_k_ = dim("top_k", DimRole::kTopK, experts.per_token);
  slots_ = dim("slots", DimRole::kSlots, 0);
  expert_ffn_ = dim("expert_ffn", DimRole::kFfn, experts.ffn);
  if (experts.shared_ffn != 0) shared_ffn_ = dim("shared_ffn", DimRole::kFfn, experts.shared_ffn);
}

bool TransformerBuilder::has_experts() const {
  const ExpertsConfig& experts = config_.experts;
  if (experts.count == 0) return false;
  return experts.layers.empty() || experts.layers[static_cast<std::size_t>(block_ - 1)];
}

TensorId TransformerBuilder::mlp(const MlpShape& shape, TensorId x) {
  const auto& [prefix, names, ffn, bias, batch] = shape;
  std::vector<DimId> inner = graph_[x].shape;
  inner.back() = ffn;
  if (config_.gated_mlp) {
    const std::vector<TensorId> both =
        project(prefix + "gate_up", x, {hidden_},
                {{names + "gate", names + "gate", {ffn}}, {names + "up", names + "up", {ffn}}}, bias, batch);
    const TensorId gated = activation(names + "gated", inner);
    OpAttributes& attributes = op(prefix + "gated", OpKind::kGated, both, {gated}).attributes;
    attributes.activation = config_.activation;
    attributes.limit = config_.activation_limit;
    return project(prefix + "down", gated, {ffn}, {{names + "down", names + "output", {hidden_}}}, bias,
                   batch)[0];
  }
  const std::vector<TensorId> up =
      project(prefix + "fc1", x, {hidden_}, {{names + "fc1", names + "fc1", {ffn}}}, bias, batch);
  const TensorId activated = activation(names + "activated", inner);
  op(prefix + "activation", OpKind::kUnary, up, {activated}).attributes.activation = config_.activation;
  return project(prefix + "fc2", activated, {ffn}, {{names + "fc2", names + "output", {hidden_}}}, bias,
                 batch)[0];
}

TransformerBuilder::Routed TransformerBuilder::route(const std::string& prefix, TensorId x) {
  const ExpertsConfig& experts = config_.experts;
  const std::string names = prefix + "experts.";
  const DType dtype = experts.router_fp32 ? DType::kFp32 : compute_;
  const TensorId logits = project(prefix + "router", x, {hidden_},
                                  {{names + "router", names + "logits", {experts_}}}, experts.router_bias)[0];
  graph_.tensors[logits.index()].dtype = dtype;
  std::vector<TensorId> inputs = {logits};
  if (experts.balancing_bias) {
    inputs.push_back(tensor(names + "balancing_bias", TensorKind::kBuffer, DType::kFp32, {experts_}));
  }
  const std::vector<DimId> picked = {batch_, sequence_, top_k_};
  const TensorId weights = tensor(names + "weights", TensorKind::kActivation, dtype, picked);
  const TensorId picks = tensor(names + "picks", TensorKind::kActivation, DType::kInt32, picked);
  OpAttributes& attributes =
      op(prefix + "route", OpKind::kRoute, std::move(inputs), {weights, picks}).attributes;
  attributes.score = experts.score;
  attributes.normalized = experts.normalized;
  attributes.scale = experts.scale;
  attributes.groups = experts.groups;
  attributes.top_groups = experts.top_groups;
  return {weights, picks};
}

TensorId TransformerBuilder::experts(const std::string& prefix, TensorId x) {
  const bool scale_inputs = config_.experts.scale_inputs;
  const std::string names = prefix + "experts.";
  const Routed routed = route(prefix, x);
  const TensorId rows = activation(names + "rows", {experts_, slots_, hidden_});
  const TensorId place =
      tensor(names + "place", TensorKind::kActivation, DType::kInt32, {batch_, sequence_, top_k_});
  std::vector<TensorId> dispatched = {x, routed.picks};
  if (scale_inputs) dispatched.push_back(routed.weights);
  op(prefix + "dispatch", OpKind::kDispatch, std::move(dispatched), {rows, place});
  const TensorId made =
      mlp({prefix + "experts_", names, expert_ffn_, config_.experts.expert_bias, {experts_}}, rows);
  std::vector<TensorId> combined = {made, place};
  if (!scale_inputs) combined.push_back(routed.weights);
  const TensorId y = activation(names + "combined", {batch_, sequence_, hidden_});
  op(prefix + "combine", OpKind::kCombine, std::move(combined), {y});
  return y;
}

TensorId TransformerBuilder::shared_expert(const std::string& prefix, TensorId x) {
  const std::string names = prefix + "shared.";
  const TensorId y = mlp({prefix + "shared_", names, shared_ffn_, config_.mlp_bias, {}}, x);
  if (!config_.experts.shared_gate) return y;
  // One number a token: the projection makes no dimension.
  const TensorId gate =
      project(prefix + "shared_gate", x, {hidden_}, {{names + "own_gate", names + "own_gate", {}}}, false)[0];
  const TensorId gated = activation(names + "gated_output", graph_[y].shape);
  op(prefix + "shared_gate_apply", OpKind::kRowGate, {gate, y}, {gated});
  return gated;
}

TensorId TransformerBuilder::mlp_or_experts(const std::string& prefix, TensorId x) {
  TensorId y;
  if (!has_experts()) {
    y = mlp({prefix, prefix + "mlp.", ffn_, config_.mlp_bias, {}}, x);
  } else {
    y = experts(prefix, x);
    if (config_.experts.shared_ffn != 0) {
      y = add(prefix + "shared_add", y, shared_expert(prefix, x), prefix + "mlp.output");
    }
  }
  return dropout(prefix + "mlp_dropout", y, config_.residual_dropout);
}

}  // namespace orrery
