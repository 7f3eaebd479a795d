#include "report/summary.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "planner/memory_plan.hpp"
#include "planner/recompute.hpp"
#include "report/metrics.hpp"

namespace orrery {
namespace {

std::vector<std::pair<Purpose, double>> longest_first(const StepShares& shares) {
  std::vector<std::pair<Purpose, double>> by_purpose;
  for (int i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (shares.exposed_s(purpose) > 0) by_purpose.emplace_back(purpose, shares.exposed_s(purpose));
  }
  std::ranges::sort(by_purpose, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return by_purpose;
}

void add_time_shares(const Program& program, const Timeline& timeline, Summary& summary) {
  const StepShares shares = step_shares(program, timeline);
  summary.compute_fraction = shares.fraction(shares.compute_s);
  summary.bubble_fraction = shares.fraction(shares.bubble_s);
  summary.exposed_comm_fraction = shares.fraction(shares.exposed_s());
  summary.communication_fraction = shares.fraction(shares.communication_s);
  summary.overlap_ratio = shares.overlap();
  summary.exposed_s = longest_first(shares);
  for (const auto& [purpose, seconds] : summary.exposed_s) {
    summary.exposed_waiting_s.emplace_back(purpose, shares.waiting_s[static_cast<std::size_t>(purpose)]);
  }
}

// Per GPU and second. Everything stays 0 for a step that takes no time.
void add_rates(const Scenario& scenario, const Graph& graph, const Plan& plan, Summary& summary) {
  if (summary.step_time_s <= 0 || summary.gpus <= 0) return;
  const double gpu_seconds = summary.step_time_s * summary.gpus;
  const double flops_per_s = model_flops(graph, plan.global_batch(), plan.sequence) / gpu_seconds;
  const double peak = scenario.cluster.node.gpu.peak(plan.compute_dtype);
  summary.tokens_per_s_per_gpu = static_cast<double>(summary.tokens) / gpu_seconds;
  summary.tflops_per_gpu = flops_per_s * 1e-12;
  // Ranks that share cores have together the peak of those.
  const Cluster& cluster = scenario.cluster;
  const std::int32_t on_node = std::min(summary.gpus, cluster.node.gpus);
  const bool shared = cluster.node.cores > 0 && cluster.node.cores < on_node;
  const double own_peak = shared ? peak * cluster.node.cores / on_node : peak;
  summary.mfu = own_peak > 0 ? flops_per_s / own_peak : 0;
  if (summary.tokens > 0) {
    const double step_cost = scenario.prices.gpu_hour * gpu_seconds / 3600.0;
    summary.cost_per_million_tokens = step_cost / static_cast<double>(summary.tokens) * 1e6;
  }
}

void add_memory(const Program& program, Summary& summary) {
  for (const Role& role : program.roles) {
    summary.peak_by_role.push_back(peak_memory(role));
    summary.peak_memory_bytes = std::max(summary.peak_memory_bytes, summary.peak_by_role.back().bytes);
  }
  if (program.roles.empty()) return;
  summary.planned_role = fullest_role(program);
  const MemoryPlan plan = plan_memory(program, summary.planned_role);
  summary.planned_memory_bytes = plan.arena_bytes;
  summary.memory_bound_bytes = plan.bound_bytes;
}

std::vector<std::string> all_warnings(const Scenario& scenario, const Graph& graph, const Plan& plan,
                                      const Summary& summary) {
  std::vector<std::string> list = warnings(plan, graph, scenario.cluster);
  if (!summary.settled) {
    list.push_back(
        fmt::format("the step time still changed after {} steps; it is the last one's", summary.steps));
  }
  const std::int64_t capacity = scenario.cluster.node.gpu.memory_bytes;
  if (capacity > 0 && summary.peak_memory_bytes > capacity) {
    list.push_back(fmt::format("out of memory: {} needed, the GPU has {}",
                               format_bytes(static_cast<double>(summary.peak_memory_bytes)),
                               format_bytes(static_cast<double>(capacity))));
  }
  return list;
}

// "tp 8, pp 16, dp 128" where all replicas have one shape.
std::string describe_degrees(const Plan& plan) {
  if (plan.replicas.empty()) return "no replicas";
  const PipelineReplica& first = plan.replicas.front();
  const std::size_t positions = pipeline_positions(first).size();
  const bool uniform = std::ranges::all_of(plan.replicas, [&](const PipelineReplica& replica) {
    return replica.stages.size() == first.stages.size() && pipeline_positions(replica).size() == positions;
  });
  if (!uniform) return fmt::format("{} replicas of different shape", plan.replicas.size());
  std::string text = fmt::format("tp {}, ", plan.tensor_parallel());
  if (plan.context_parallel > 1) {
    text += fmt::format("cp {}{}, ", plan.context_parallel,
                        plan.context_form == ContextForm::kRing ? " (ring)" : "");
  }
  text += fmt::format("pp {}, ", positions);
  if (first.stages.size() > positions)
    text += fmt::format("virtual stages {}, ", first.stages.size() / positions);
  return text + fmt::format("dp {}", plan.replicas.size());
}

std::string describe_plan(const Plan& plan) {
  std::string text =
      fmt::format("{}; batch {} (micro {}), sequence {}; {}, {}, ZeRO-{}", describe_degrees(plan),
                  plan.global_batch(), plan.microbatch_size, plan.sequence, to_string(plan.compute_dtype),
                  to_string(plan.schedule), plan.zero_stage);
  if (plan.zero_stage > 0 && plan.zero_group > 0) text += fmt::format(" in groups of {}", plan.zero_group);
  if (plan.sequence_parallel) text += ", sp";
  if (plan.recompute != Recompute::kNone) text += fmt::format(", recompute {}", describe_recompute(plan));
  return text;
}

}  // namespace

double model_flops(const Graph& graph, std::int64_t batch, std::int64_t sequence) {
  const Sizes sizes = bind(graph, batch, sequence);
  double parameters = 0;
  double attention_flops = 0;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    if (op.kind == OpKind::kAttention) attention_flops += flops(graph, op, sizes);
    if (op.kind != OpKind::kMatmul) continue;
    // x, then one weight per output.
    for (std::size_t pair = 0; pair < op.outputs.size(); ++pair) {
      const TensorId weight = op.inputs[1 + pair];
      parameters += active_share(graph, weight) * static_cast<double>(element_count(graph, weight, sizes));
    }
  }
  // A multiply-add is 2; the backward pass multiplies twice for each forward product.
  const double tokens = static_cast<double>(batch) * static_cast<double>(sequence);
  return 6.0 * parameters * tokens + 3.0 * attention_flops;
}

void add_step_times(std::span<const SimTime> step_ends, Summary& summary) {
  SimTime before;
  for (const SimTime end : step_ends) {
    summary.step_times_s.push_back((end - before).seconds());
    before = end;
  }
}

Summary summarize(const Scenario& scenario, const Graph& graph, const Plan& plan, const Program& program,
                  const Timeline& timeline) {
  Summary summary;
  summary.step_time_s = timeline.step_time.seconds();
  summary.makespan_s = timeline.makespan.seconds();
  summary.gpus = plan.world_size();
  summary.tokens = plan.global_batch() * plan.sequence;
  summary.plan = describe_plan(plan);
  summary.steps = timeline.steps;
  summary.settled = timeline.settled;
  summary.rank_classes = static_cast<std::int32_t>(timeline.classes.size());
  add_time_shares(program, timeline, summary);
  add_rates(scenario, graph, plan, summary);
  add_memory(program, summary);
  summary.warnings = all_warnings(scenario, graph, plan, summary);
  return summary;
}

}  // namespace orrery
