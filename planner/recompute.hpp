#pragma once
// Which activations the forward doesn't keep for the backward: the names that plans use, and what they stand
// for in a Graph. A tensor can be recomputed where it belongs to one layer alone: made there, and read by no
// other. The first backward op that needs one has its producer run again just before it, and what that needs,
// back to what was kept: whatever the backward reads and no name drops.

#include <string>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct GraphIndex;

// Whether a tensor is an activation of one layer alone.
bool recomputable(const Graph& graph, const GraphIndex& index, TensorId tensor);

// Names of groups of tensors, each with what it stands for. A group is known of every model; a plan may list
// it where the model has such tensors.
//   core_attention        what attention makes of q, k and v (Megatron-LM's selective, its core_attn)
//   norms                 outputs of norms (layernorm)
//   activation_functions  outputs of SwiGLU, GELU and kin, experts' too (mlp_act, moe_act)
//   self_attention, mlp, experts, shared_expert   all of that part of a layer, without its last product
//   latents               q, k and v as made from their latents (mla_up_proj)
const std::vector<std::string>& recompute_groups();

// Everything that can be named in the graph: groups, then ops and tensors without their layer, in the
// layers' order.
std::vector<std::string> recompute_names(const Graph& graph);

// By tensor, whether a plan of kind kTensors drops it; empty for other kinds. What the same op makes is
// dropped with it, since it comes back with it.
std::vector<bool> recomputed_tensors(const Graph& graph, const GraphIndex& index, const Plan& plan);

// Names that say nothing in the graph, with near ones.
std::vector<std::string> recompute_faults(const Plan& plan, const Graph& graph);
// Names whose tensors no backward op reads, so that dropping them saves nothing.
std::vector<std::string> recompute_warnings(const Plan& plan, const Graph& graph);

// "none", "full", "norms, mlp.gated in the first 2 layers of each stage".
std::string describe_recompute(const Plan& plan);

}  // namespace orrery
