#include "planner/recompute.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <initializer_list>

#include "base/suggest.hpp"
#include "planner/stage_builder.hpp"

namespace orrery {
namespace {

bool one_of(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Whether a group has the tensor that `producer` makes; `name` and the op's are without their layer.
bool in_group(const std::string& group, const Op& producer, const std::string& name) {
  const auto starts = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (group == "core_attention") return producer.kind == OpKind::kAttention;
  if (group == "norms") return producer.kind == OpKind::kNorm;
  if (group == "activation_functions") {
    return producer.kind == OpKind::kGated || producer.kind == OpKind::kUnary;
  }
  if (group == "self_attention") return starts("attention.");
  if (group == "mlp") return starts("mlp.");
  if (group == "experts") return starts("experts.");
  if (group == "shared_expert") return starts("shared.");
  assert(group == "latents");
  return starts("attention.") && one_of(without_layer(producer.name),
                                        {"q_up", "kv_up", "q_rotate", "k_rotate", "q_concat", "k_concat"});
}

bool is_group(const std::string& name) {
  const auto& groups = recompute_groups();
  return std::find(groups.begin(), groups.end(), name) != groups.end();
}

// Whether a name of a plan means the tensor.
bool means(const std::string& name, const Graph& graph, TensorId tensor) {
  const Op& producer = graph[graph[tensor].producer];
  const std::string own = without_layer(graph[tensor].name);
  if (is_group(name)) return in_group(name, producer, own);
  return name == own || name == without_layer(producer.name);
}

std::vector<TensorId> all_recomputable(const Graph& graph, const GraphIndex& index) {
  std::vector<TensorId> found;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorId tensor(static_cast<std::int64_t>(t));
    if (recomputable(graph, index, tensor)) found.push_back(tensor);
  }
  return found;
}

bool read_by_backward(const Graph& graph, const GraphIndex& index, TensorId tensor) {
  const auto& readers = index.readers[tensor.index()];
  return std::any_of(readers.begin(), readers.end(),
                     [&](OpId reader) { return graph[reader].phase == Phase::kBackward; });
}

}  // namespace

bool recomputable(const Graph& graph, const GraphIndex& index, TensorId id) {
  const Tensor& tensor = graph[id];
  if (tensor.kind != TensorKind::kActivation || !tensor.producer.valid()) return false;
  const std::int32_t block = graph[tensor.producer].block;
  if (block < 1 || block > graph.layers) return false;
  const auto& readers = index.readers[id.index()];
  return std::all_of(readers.begin(), readers.end(),
                     [&](OpId reader) { return graph[reader].block == block; });
}

const std::vector<std::string>& recompute_groups() {
  static const std::vector<std::string> kGroups = {"core_attention", "norms",  "activation_functions",
                                                   "self_attention", "mlp",    "experts",
                                                   "shared_expert",  "latents"};
  return kGroups;
}

std::vector<std::string> recompute_names(const Graph& graph) {
  const GraphIndex index(graph);
  const std::vector<TensorId> tensors = all_recomputable(graph, index);
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& group : recompute_groups()) {
    const bool has = std::any_of(tensors.begin(), tensors.end(),
                                 [&](TensorId tensor) { return means(group, graph, tensor); });
    if (has) add(group);
  }
  for (const TensorId tensor : tensors) {
    add(without_layer(graph[graph[tensor].producer].name));
    add(without_layer(graph[tensor].name));
  }
  return names;
}

std::vector<bool> recomputed_tensors(const Graph& graph, const GraphIndex& index, const Plan& plan) {
  if (plan.recompute != Recompute::kTensors) return {};
  std::vector<bool> dropped(graph.tensors.size());
  for (const TensorId tensor : all_recomputable(graph, index)) {
    const bool named = std::any_of(plan.recompute_tensors.begin(), plan.recompute_tensors.end(),
                                   [&](const std::string& name) { return means(name, graph, tensor); });
    if (!named) continue;
    for (const TensorId output : graph[graph[tensor].producer].outputs) {
      dropped[output.index()] = recomputable(graph, index, output);
    }
  }
  return dropped;
}

std::vector<std::string> recompute_faults(const Plan& plan, const Graph& graph) {
  std::vector<std::string> faults;
  if (plan.recompute != Recompute::kTensors) return faults;
  const std::vector<std::string> known = recompute_names(graph);
  for (const std::string& name : plan.recompute_tensors) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    faults.push_back(
        fmt::format("plan: recompute names \"{}\", which is no tensor or op that belongs to one layer of "
                    "{}{}; known are {}",
                    name, graph.name, did_you_mean(name, known), fmt::join(known, ", ")));
  }
  return faults;
}

std::vector<std::string> recompute_warnings(const Plan& plan, const Graph& graph) {
  std::vector<std::string> found;
  if (plan.recompute != Recompute::kTensors) return found;
  const GraphIndex index(graph);
  const std::vector<TensorId> tensors = all_recomputable(graph, index);
  for (const std::string& name : plan.recompute_tensors) {
    const bool saves = std::any_of(tensors.begin(), tensors.end(), [&](TensorId tensor) {
      return means(name, graph, tensor) && read_by_backward(graph, index, tensor);
    });
    if (!saves) {
      found.push_back(fmt::format("recomputing {} saves nothing: no backward op reads it", name));
    }
  }
  return found;
}

std::string describe_recompute(const Plan& plan) {
  std::string text(to_string(plan.recompute));
  if (plan.recompute == Recompute::kTensors)
    text = fmt::format("{}", fmt::join(plan.recompute_tensors, ", "));
  if (plan.recompute != Recompute::kNone && plan.recompute_layers > 0) {
    text += fmt::format(" in the first {} layers of each stage", plan.recompute_layers);
  }
  return text;
}

}  // namespace orrery
