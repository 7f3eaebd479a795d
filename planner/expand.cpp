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

std::int32_t data_parallel_degree(const PlanShorthand& shorthand, std::int32_t gpus) {
  const std::int64_t model_parallel = std::int64_t{shorthand.tp} * shorthand.pp;
  if (shorthand.dp > 0) {
    const std::int64_t used = model_parallel * shorthand.dp;
    if (used > gpus) {
      fail(ErrorKind::kInfeasible,
           "plan: tp {} × pp {} × dp {} needs {} GPUs, the cluster has {}; lower a degree (dp at most {}) or "
           "add {} GPUs",
           shorthand.tp, shorthand.pp, shorthand.dp, used, gpus, gpus / model_parallel, used - gpus);
    }
    return shorthand.dp;
  }
  if (gpus % model_parallel != 0 || gpus < model_parallel) {
    fail(
        ErrorKind::kInfeasible,
        "plan: tp {} × pp {} = {} doesn't divide the cluster's {} GPUs ({} left over); give dp to leave GPUs "
        "idle, or change a degree so that the product is {}",
        shorthand.tp, shorthand.pp, model_parallel, gpus, gpus % model_parallel,
        nearest_divisors(gpus, model_parallel));
  }
  return static_cast<std::int32_t>(gpus / model_parallel);
}

// Layers of each stage, first to last.
std::vector<std::int32_t> stage_layers(const PlanShorthand& shorthand, std::int32_t layers) {
  const std::int32_t stages = shorthand.pp;
  if (stages > layers) {
    fail(ErrorKind::kInfeasible, "plan.pp: {} stages but only {} layers; pp can be at most {}", stages,
         layers, layers);
  }
  if (shorthand.layers_per_stage.empty()) {
    if (layers % stages != 0) {
      std::vector<std::int32_t> balanced(static_cast<std::size_t>(stages), layers / stages);
      for (std::int32_t i = 0; i < layers % stages; ++i)
        balanced[1 + static_cast<std::size_t>(i) % (balanced.size() - 1)] += 1;
      fail(ErrorKind::kInfeasible,
           "plan.pp: {} layers don't divide over {} stages ({} left over); say who gets how many, e.g. "
           "layers_per_stage: [{}], or use pp {}",
           layers, stages, layers % stages, fmt::join(balanced, ", "), nearest_divisors(layers, stages));
    }
    return std::vector<std::int32_t>(static_cast<std::size_t>(stages), layers / stages);
  }
  const auto& given = shorthand.layers_per_stage;
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

}  // namespace

Plan expand(const PlanShorthand& shorthand, const Graph& graph, std::int32_t gpus) {
  const std::int32_t tp = shorthand.tp, pp = shorthand.pp;
  if (tp < 1 || pp < 1 || shorthand.dp < 0) {
    fail(ErrorKind::kInfeasible, "plan: degrees must be at least 1 (tp {}, pp {}, dp {})", tp, pp,
         shorthand.dp);
  }
  if (shorthand.settings.microbatch_size < 1) {
    fail(ErrorKind::kInfeasible, "plan.microbatch: {} sequences; give 1 or more",
         shorthand.settings.microbatch_size);
  }
  const std::int32_t dp = data_parallel_degree(shorthand, gpus);
  const std::vector<std::int32_t> layers = stage_layers(shorthand, graph.layers);
  const std::int64_t microbatches = microbatches_per_replica(shorthand, dp);

  Plan plan = shorthand.settings;
  plan.replicas.assign(static_cast<std::size_t>(dp), {});
  for (std::int32_t d = 0; d < dp; ++d) {
    PipelineReplica& replica = plan.replicas[static_cast<std::size_t>(d)];
    replica.microbatches = microbatches;
    std::int32_t block = 0;
    for (std::int32_t p = 0; p < pp; ++p) {
      Stage stage;
      stage.first_block = block;
      block += layers[static_cast<std::size_t>(p)] + (p == 0 ? 1 : 0) + (p == pp - 1 ? 1 : 0);
      stage.last_block = block;
      for (std::int32_t t = 0; t < tp; ++t)
        stage.ranks.push_back(RankId(t + tp * (d + std::int64_t{dp} * p)));
      replica.stages.push_back(std::move(stage));
    }
  }
  for (std::int32_t rank = tp * dp * pp; rank < gpus; ++rank) plan.idle.push_back(RankId(rank));

  const std::vector<std::string> faults = check(plan, graph);
  if (!faults.empty()) fail(ErrorKind::kInfeasible, "{}", fmt::join(faults, "\n"));
  return plan;
}

}  // namespace orrery
