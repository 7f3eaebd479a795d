#include "scenarios/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/units.hpp"
#include "model/program_ranks.hpp"
#include "planner/recompute.hpp"
#include "planner/schedule_diagram.hpp"

namespace orrery {
namespace {

// The fabric in a few words.
std::string fabric_text(const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric;
  std::string text(to_string(fabric.kind));
  if (fabric.kind == FabricKind::kTorus) {
    text += fmt::format(" of {}", fmt::join(fabric.torus, " x "));
  } else {
    text += fmt::format(", {} nodes per leaf", fabric.nodes_per_leaf);
  }
  if (fabric.kind == FabricKind::kDragonfly)
    text += fmt::format(", groups of {} switches with {} global links", fabric.switches_per_group,
                        fabric.global_links);
  for (const FabricTier& tier : fabric.tiers)
    text += fmt::format(", a tier that joins {} at {}:1", tier.joins, tier.oversubscription);
  if (fabric.routing != FabricRouting::kAdaptive)
    text += fmt::format(", {} routing", to_string(fabric.routing));
  if (cluster.nodes_per_nvlink_domain > 1)
    text += fmt::format(", NVLink domains of {} nodes", cluster.nodes_per_nvlink_domain);
  return text;
}

std::string_view part_name(Fault::What what) {
  switch (what) {
    case Fault::What::kGpu: return "GPU";
    case Fault::What::kNic: return "network card";
    case Fault::What::kNvLink: return "NVLink";
    case Fault::What::kNode: return "node";
    case Fault::What::kLeaf: return "leaf switch";
    case Fault::What::kUplink: return "trunks of the leaf switch";
  }
  return "";
}

using Out = std::back_insert_iterator<std::string>;

void model_lines(Out out, const Scenario& scenario, const Graph& graph) {
  const TransformerConfig& model = scenario.model;
  fmt::format_to(out, "model: {}\n", model.name);
  fmt::format_to(out, "  parameters: {}\n", format_count(parameter_count(graph)));
  fmt::format_to(out, "  layers: {}, hidden: {}, heads: {} x {}, kv_heads: {}, ffn: {}{}, vocab: {}\n",
                 model.layers, model.hidden, model.heads, model.head_dim, model.kv_heads, model.ffn,
                 model.gated_mlp ? " gated" : "", model.vocab);
  fmt::format_to(out, "sequence: {}\n", scenario.plan.settings.sequence);
  fmt::format_to(out, "global_batch: {}  # {} tokens a step\n", scenario.plan.global_batch,
                 format_count(scenario.plan.global_batch * scenario.plan.settings.sequence));
}

void cluster_lines(Out out, const Cluster& cluster) {
  const GpuType& gpu = cluster.node.gpu;
  fmt::format_to(out, "cluster: {}\n", describe(cluster));
  fmt::format_to(out, "  gpu: {}, {} memory at {:.2f} TB/s", gpu.name,
                 format_bytes(static_cast<double>(gpu.memory_bytes)), gpu.memory_bytes_per_s / 1e12);
  for (const DType type : {DType::kFp32, DType::kTf32, DType::kBf16, DType::kFp16, DType::kFp8}) {
    if (gpu.peak(type) > 0)
      fmt::format_to(out, ", {} {:.0f} TFLOP/s", to_string(type), gpu.peak(type) / 1e12);
  }
  fmt::format_to(out, "\n");
  if (cluster.nodes > 1) {
    fmt::format_to(out,
                   "  network: {} NICs of {:.0f} Gb/s per node, oversubscription {}, {:.0f} ns per hop\n",
                   cluster.node.nics, cluster.node.nic_bytes_per_s * 8e-9, cluster.fabric.oversubscription,
                   cluster.fabric.hop_latency_s * 1e9);
  }
}

void settings_lines(Out out, const Plan& plan) {
  fmt::format_to(out, "plan:\n  schedule: {}, microbatch: {}, precision: {}, gradient_type: {}\n",
                 to_string(plan.schedule), plan.microbatch_size, to_string(plan.compute_dtype),
                 to_string(plan.gradient_dtype));
  fmt::format_to(out, "  sequence_parallel: {}, zero: {}, recompute: {}, cuda_graphs: {}, kernel_set: {}\n",
                 plan.sequence_parallel, plan.zero_stage, describe_recompute(plan), plan.cuda_graphs,
                 plan.kernel_set);
  if (plan.fp8 != Fp8::kNone) {
    fmt::format_to(out, "  fp8: {}, fp8_format: {}, fp8_fast_sums: {}\n", to_string(plan.fp8),
                   to_string(plan.fp8_format), to_string(plan.fp8_fast_sums));
  }
  if (plan.zero_stage > 0 && plan.zero_group > 0) fmt::format_to(out, "  zero_group: {}\n", plan.zero_group);
  if (plan.zero_stage >= 3) {
    fmt::format_to(out, "  zero_prefetch: {}, zero_reshard: {}\n", plan.zero_prefetch, plan.zero_reshard);
  }
  fmt::format_to(out, "  passes: {}\n", to_string(plan.passes));
  fmt::format_to(out, "  bucket: {}, overlap: {{gradient_reduce: {}, parameter_gather: {}}}\n",
                 plan.bucket_bytes == 0 ? "one per layer" : exact_bytes(plan.bucket_bytes),
                 plan.overlap_gradient_reduce, plan.overlap_parameter_gather);
}

void placement_lines(Out out, const Scenario& scenario, const Plan& plan) {
  const PlacementRequest& request = scenario.placement;
  const NodeType& node = scenario.cluster.node;
  const auto numbers = [](const std::vector<std::int32_t>& list) {
    return format_numbers(std::vector<std::int64_t>(list.begin(), list.end()));
  };
  if (request.policy == PlacementPolicy::kLinear && node.nic_of_gpu.empty() && node.cpu_of_gpu.empty() &&
      request.max_pcie_hops == kNoHopLimit) {
    return;
  }
  fmt::format_to(out, "  placement: {}", to_string(request.policy));
  if (request.max_pcie_hops != kNoHopLimit) {
    fmt::format_to(out, ", at most {} PCIe hops in a {} group", request.max_pcie_hops, request.hop_group);
  }
  fmt::format_to(out, "\n");
  if (!plan.device_of.empty()) fmt::format_to(out, "    GPUs by rank: {}\n", numbers(plan.device_of));
  if (!node.nic_of_gpu.empty())
    fmt::format_to(out, "    NICs by GPU of a node: {}\n", numbers(node.nic_of_gpu));
  if (!node.cpu_of_gpu.empty())
    fmt::format_to(out, "    CPUs by GPU of a node: {}\n", numbers(node.cpu_of_gpu));
}

// Replicas that differ only in their ranks.
bool same_shape(const PipelineReplica& a, const PipelineReplica& b) {
  return a.microbatches == b.microbatches && std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(),
                                                        b.stages.end(), [](const Stage& x, const Stage& y) {
                                                          return x.first_block == y.first_block &&
                                                                 x.last_block == y.last_block &&
                                                                 x.ranks.size() == y.ranks.size();
                                                        });
}

std::string stage_content(const Stage& stage, std::int32_t layers) {
  const std::int32_t first = std::max(stage.first_block, 1);
  const std::int32_t last = std::min(stage.last_block, layers + 1);
  std::string content = stage.first_block == 0 ? "embedding, " : "";
  content += last > first ? fmt::format("layers {}-{} ({})", first, last - 1, last - first) : "no layers";
  return content + (stage.last_block > layers + 1 ? ", head" : "");
}

// The order of passes as a picture, where one fits into a terminal.
void pipeline_lines(Out out, const Plan& plan) {
  const ScheduleShape shape = schedule_shape(plan, plan.replicas.front());
  if (shape.ranks < 2 || shape.ranks > 32 || shape.microbatches > 64) return;
  const Schedule schedule = build_schedule(shape);
  const ScheduleTiming timing = time_schedule(schedule, even_times(shape, 1, 1, 1));
  fmt::format_to(out,
                 "  passes by pipeline position, if forward, input and weight gradients took equally long "
                 "({:.1f} % bubble):\n",
                 100 * timing.bubble_rate);
  std::istringstream lines(pipeline_diagram(schedule, timing));
  for (std::string line; std::getline(lines, line);) fmt::format_to(out, "    {}\n", line);
}

void replica_lines(Out out, const Plan& plan, std::int32_t layers) {
  for (std::size_t begin = 0; begin < plan.replicas.size();) {
    std::size_t end = begin + 1;
    while (end < plan.replicas.size() && same_shape(plan.replicas[begin], plan.replicas[end])) ++end;
    const PipelineReplica& replica = plan.replicas[begin];
    fmt::format_to(out, "  {} x replica of {} micro-batches:\n", end - begin, replica.microbatches);
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      fmt::format_to(out, "    stage {}: {}; ranks {}{}\n", s, stage_content(replica.stages[s], layers),
                     format_ranks(replica.stages[s].ranks), end - begin > 1 ? " in the first" : "");
    }
    begin = end;
  }
  pipeline_lines(out, plan);
  if (!plan.idle.empty()) fmt::format_to(out, "  idle: ranks {}\n", format_ranks(plan.idle));
}

}  // namespace

std::string describe(const Cluster& cluster) {
  std::string text = fmt::format("{} x {}: {} x {}", format_count(cluster.nodes), cluster.node.name,
                                 format_count(cluster.gpu_count()), cluster.node.gpu.name);
  if (cluster.nodes > 1) {
    text += ", " + fabric_text(cluster);
  }
  return text;
}

std::string digest(const Scenario& scenario, const Graph& graph, const Plan& plan) {
  return fmt::format("{} parameters, {} of {} GPUs, TP {}{} x PP {} x DP {}, {} x {} tokens",
                     format_count(parameter_count(graph)),
                     format_count(plan.world_size() - static_cast<std::int64_t>(plan.idle.size())),
                     format_count(scenario.cluster.gpu_count()), plan.tensor_parallel(),
                     plan.context_parallel > 1 ? fmt::format(" x CP {}", plan.context_parallel) : "",
                     pipeline_positions(plan.replicas.front()).size(), plan.replicas.size(),
                     format_count(scenario.plan.global_batch), format_count(plan.sequence));
}

std::string normal_form(const Scenario& scenario, const Graph& graph, const Plan& plan) {
  std::string text = fmt::format("name: {}\n", scenario.name);
  const Out out = std::back_inserter(text);
  model_lines(out, scenario, graph);
  cluster_lines(out, scenario.cluster);
  settings_lines(out, plan);
  placement_lines(out, scenario, plan);
  replica_lines(out, plan, graph.layers);
  for (const auto& [rank, slowdown] : scenario.stragglers) {
    fmt::format_to(out, "straggler: rank {}, compute takes {} times as long\n", rank.value, slowdown);
  }
  for (const Fault& fault : scenario.faults) {
    fmt::format_to(
        out, "fault: rank {}, {}{} at {} of its rate from {} s{}\n", fault.rank.value, part_name(fault.what),
        fault.peer.valid() ? fmt::format(" to rank {}", fault.peer.value) : "", fault.factor,
        fault.from.seconds(), fault.until ? fmt::format(" to {} s", fault.until->seconds()) : " on");
  }
  for (const FaultRate& rate : scenario.random_faults.rates) {
    fmt::format_to(out, "random faults: {}, {} an hour each, at {} of its rate {}\n", part_name(rate.what),
                   rate.per_hour, rate.factor,
                   rate.repair_s > 0 ? fmt::format("for {} s on average", rate.repair_s) : "for good");
  }
  fmt::format_to(out, "engine: {}{}\n", scenario.engine, scenario.fold ? "" : ", not folded");
  for (const std::string& line : scenario.profile.provenance) fmt::format_to(out, "profile: {}\n", line);
  for (const std::string& note : scenario.notes) fmt::format_to(out, "assumed: {}\n", note);
  return text;
}

}  // namespace orrery
