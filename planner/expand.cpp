// The shorthand's degrees, checked against the model and the machine and written out as replicas.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "planner/plan.hpp"

namespace orrery {
namespace {

// The divisors of `n` nearest to `wanted`, for messages: "4 or 8".
std::string nearest_divisors(std::int64_t n, std::int64_t wanted) {
  std::int64_t below = 1, above = n;
  for (std::int64_t d = 1; d <= n && d <= 1'000'000; ++d) {
    if (n % d != 0) continue;
    if (d <= wanted) below = d;
    if (d >= wanted) {
      above = d;
      break;
    }
  }
  return below == above || above < wanted ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

std::string context_text(std::int32_t degree) { return degree > 1 ? fmt::format("cp {} × ", degree) : ""; }

std::int32_t data_parallel_degree(const PlanShorthand& shorthand, std::int32_t gpus) {
  const std::int32_t cp = shorthand.settings.context_parallel;
  const std::int64_t model_parallel = std::int64_t{shorthand.tp} * cp * shorthand.pp;
  if (shorthand.dp > 0) {
    const std::int64_t used = model_parallel * shorthand.dp;
    if (used > gpus) {
      fail(ErrorKind::kInfeasible,
           "plan: tp {} × {}pp {} × dp {} needs {} GPUs, the cluster has {}; lower a degree (dp at most {}) "
           "or "
           "add {} GPUs",
           shorthand.tp, context_text(cp), shorthand.pp, shorthand.dp, used, gpus, gpus / model_parallel,
           used - gpus);
    }
    return shorthand.dp;
  }
  if (gpus % model_parallel != 0 || gpus < model_parallel) {
    fail(ErrorKind::kInfeasible,
         "plan: tp {} × {}pp {} = {} doesn't divide the cluster's {} GPUs ({} left over); give dp to leave "
         "GPUs "
         "idle, or change a degree so that the product is {}",
         shorthand.tp, context_text(cp), shorthand.pp, model_parallel, gpus, gpus % model_parallel,
         nearest_divisors(gpus, model_parallel));
  }
  return static_cast<std::int32_t>(gpus / model_parallel);
}

// Layers of each virtual stage, first to last.
std::vector<std::int32_t> stage_layers(const PlanShorthand& shorthand, std::int32_t stages,
                                       std::int32_t layers) {
  const std::string key = stages == shorthand.pp ? "plan.pp" : "plan.virtual_stages";
  const auto& given = shorthand.layers_per_stage;
  if (given.empty()) {
    if (stages > layers) {
      fail(ErrorKind::kInfeasible,
           "{}: {} stages but only {} layers; use at most {}, or say who gets how many with layers_per_stage",
           key, stages, layers, layers);
    }
    if (layers % stages != 0) {
      std::vector<std::int32_t> balanced(static_cast<std::size_t>(stages), layers / stages);
      for (std::int32_t i = 0; i < layers % stages; ++i)
        balanced[1 + static_cast<std::size_t>(i) % (balanced.size() - 1)] += 1;
      fail(ErrorKind::kInfeasible,
           "{}: {} layers don't divide over {} stages ({} left over); say who gets how many, e.g. "
           "layers_per_stage: [{}], or use {} stages",
           key, layers, stages, layers % stages, fmt::join(balanced, ", "), nearest_divisors(layers, stages));
    }
    return std::vector<std::int32_t>(static_cast<std::size_t>(stages), layers / stages);
  }
  if (std::ssize(given) != stages) {
    fail(ErrorKind::kInfeasible, "plan.layers_per_stage: {} entries for {} stages; give one entry per stage",
         given.size(), stages);
  }
  const auto empty = std::find_if(given.begin(), given.end(), [](std::int32_t n) { return n < 0; });
  if (empty != given.end()) {
    fail(ErrorKind::kInfeasible, "plan.layers_per_stage: stage {} has {} layers; a stage has 0 or more",
         empty - given.begin(), *empty);
  }
  const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  if (sum != layers) {
    fail(ErrorKind::kInfeasible, "plan.layers_per_stage: sums to {}, the model has {} layers ({} {})", sum,
         layers, std::abs(sum - layers), sum < layers ? "missing" : "too many");
  }
  return given;
}

// The same with the embedding and the head, which are blocks too.
std::vector<std::int32_t> stage_blocks(const PlanShorthand& shorthand, std::int32_t stages,
                                       std::int32_t layers) {
  const auto& layout = shorthand.layout;
  std::vector<std::int32_t> blocks;
  if (layout.empty()) {
    blocks = stage_layers(shorthand, stages, layers);
    ++blocks.front();
    ++blocks.back();
    return blocks;
  }
  if (std::ssize(layout) != stages) {
    fail(
        ErrorKind::kInfeasible,
        "plan.layout: {} stages, but pp {} with {} virtual {} each has {}; end every stage but the last with "
        "'|'",
        layout.size(), shorthand.pp, stages / shorthand.pp, stages == shorthand.pp ? "stage" : "stages",
        stages);
  }
  std::int64_t sum = 0;
  for (const StageContent& stage : layout) {
    sum += stage.layers;
    blocks.push_back(stage.layers + (stage.embedding ? 1 : 0) + (stage.loss ? 1 : 0));
  }
  if (sum != layers) {
    fail(ErrorKind::kInfeasible, "plan.layout: has {} layers (t), the model has {} ({} {})", sum, layers,
         std::abs(sum - layers), sum < layers ? "missing" : "too many");
  }
  return blocks;
}

std::int64_t microbatches_per_replica(const PlanShorthand& shorthand, std::int32_t dp) {
  const std::int64_t unit = shorthand.settings.microbatch_size * dp;
  if (shorthand.global_batch <= 0 || shorthand.global_batch % unit != 0) {
    const std::int64_t down = shorthand.global_batch / unit * unit;
    fail(ErrorKind::kInfeasible,
         "global_batch: {} sequences don't divide into dp {} × microbatch {} = {}; nearest that do: {}{}",
         shorthand.global_batch, dp, shorthand.settings.microbatch_size, unit,
         down > 0 ? fmt::format("{} or ", down) : "", down + unit);
  }
  return shorthand.global_batch / unit;
}

// The stages of one replica, each on the ranks of its pipeline position.
PipelineReplica make_replica(const PlanShorthand& shorthand, const Schedule& schedule,
                             const std::vector<std::int32_t>& blocks, std::int32_t d, std::int32_t dp) {
  const std::int32_t inner = shorthand.tp * shorthand.settings.context_parallel;
  PipelineReplica replica;
  replica.microbatches = schedule.shape.microbatches;
  std::int32_t block = 0;
  for (std::int32_t s = 0; s < schedule.stages(); ++s) {
    const std::int32_t position = schedule.place_of(s, 0).rank;
    Stage stage;
    stage.first_block = block;
    block += blocks[static_cast<std::size_t>(s)];
    stage.last_block = block;
    for (std::int32_t i = 0; i < inner; ++i) {
      stage.ranks.push_back(RankId(i + inner * (d + std::int64_t{dp} * position)));
    }
    replica.stages.push_back(std::move(stage));
  }
  return replica;
}

}  // namespace

Plan expand(const PlanShorthand& shorthand, const Graph& graph, std::int32_t gpus) {
  const Plan& settings = shorthand.settings;
  if (shorthand.tp < 1 || shorthand.pp < 1 || shorthand.dp < 0 || settings.context_parallel < 1) {
    fail(ErrorKind::kInfeasible, "plan: degrees must be at least 1 (tp {}, cp {}, pp {}, dp {})",
         shorthand.tp, settings.context_parallel, shorthand.pp, shorthand.dp);
  }
  if (settings.microbatch_size < 1) {
    fail(ErrorKind::kInfeasible, "plan.microbatch: {} sequences; give 1 or more", settings.microbatch_size);
  }
  const std::int32_t dp = data_parallel_degree(shorthand, gpus);
  ScheduleShape shape;
  shape.kind = settings.schedule;
  shape.ranks = shorthand.pp;
  shape.chunks = shorthand.virtual_stages;
  const auto written_stages = static_cast<std::int32_t>(std::ssize(shorthand.layout));
  if (shape.chunks == 0 && written_stages > shape.ranks && written_stages % shape.ranks == 0) {
    shape.chunks = written_stages / shape.ranks;
  }
  shape.microbatches = static_cast<std::int32_t>(microbatches_per_replica(shorthand, dp));
  shape.group = settings.interleave_group;
  if (const std::string fault = schedule_fault(shape); !fault.empty()) {
    fail(ErrorKind::kInfeasible, "plan.schedule: {}", fault);
  }
  const Schedule schedule = build_schedule(shape);
  const std::vector<std::int32_t> blocks = stage_blocks(shorthand, schedule.stages(), graph.layers);

  Plan plan = settings;
  for (std::int32_t d = 0; d < dp; ++d) {
    plan.replicas.push_back(make_replica(shorthand, schedule, blocks, d, dp));
  }
  const std::int32_t used = shorthand.tp * settings.context_parallel * dp * shorthand.pp;
  for (std::int32_t rank = used; rank < gpus; ++rank) plan.idle.push_back(RankId(rank));

  const std::vector<std::string> faults = check(plan, graph);
  if (!faults.empty()) fail(ErrorKind::kInfeasible, "{}", fmt::join(faults, "\n"));
  return plan;
}

}  // namespace orrery
