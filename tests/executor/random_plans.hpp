#pragma once
// Random plans for tiny models.

#include <string>
#include <vector>

#include "base/random.hpp"
#include "planner/plan.hpp"
#include "planner/recompute.hpp"

namespace orrery::test {

// A random plan that fits the model; retried until one does.
struct Drawn {
  PlanShorthand plan;
  std::int32_t gpus = 1;
};

template <class T>
inline T pick(Random& random, std::initializer_list<T> from) {
  return *(from.begin() + random.between(0, static_cast<std::int64_t>(from.size()) - 1));
}

// None, whole layers, or a random list of what the model has to name; here and there in some layers alone.
inline void draw_recompute(Random& random, Plan& settings, const std::vector<std::string>& names) {
  settings.recompute = pick(random, {Recompute::kNone, Recompute::kFull, Recompute::kTensors,
                                     Recompute::kTensors, Recompute::kTensors});
  if (settings.recompute != Recompute::kNone && random.between(0, 3) == 0) settings.recompute_layers = 1;
  if (settings.recompute != Recompute::kTensors) return;
  for (std::int64_t i = random.between(1, 6); i > 0; --i) {
    const auto name = static_cast<std::size_t>(random.between(0, std::ssize(names) - 1));
    settings.recompute_tensors.push_back(names[name]);
  }
}

inline Drawn draw(Random& random, bool experts, const std::vector<std::string>& names) {
  Drawn drawn;
  PlanShorthand& plan = drawn.plan;
  plan.tp = pick(random, {1, 1, 2});
  plan.settings.context_parallel = pick(random, {1, 1, 2, 4});
  plan.settings.context_form = pick(random, {ContextForm::kAllGather, ContextForm::kRing});
  plan.pp = pick(random, {1, 2, 4});
  plan.dp = pick(random, {1, 2, 2});
  if (experts) {
    if (plan.tp > 1) plan.settings.expert_tensor = pick(random, {0, 1});
    plan.settings.expert_parallel =
        plan.dp * plan.settings.context_parallel * plan.tp >= 2 ? pick(random, {1, 2, 4}) : 1;
    plan.settings.expert_capacity_factor = 2;  // Room for every token at one expert: four experts, two picks.
  }
  const auto kinds = all_pipeline_schedules();
  plan.settings.schedule = kinds[static_cast<std::size_t>(random.between(0, std::ssize(kinds) - 1))];
  plan.settings.sequence = pick<std::int64_t>(random, {8, 16});
  plan.settings.microbatch_size = pick<std::int64_t>(random, {1, 2});
  std::int64_t microbatches = random.between(1, 9);
  if (plan.settings.schedule == PipelineSchedule::kDualPipe) {  // Few others would be accepted.
    plan.pp = pick(random, {2, 4});
    microbatches = 2 * plan.pp;
  }
  plan.global_batch = plan.settings.microbatch_size * plan.dp * microbatches;
  plan.settings.sequence_parallel = plan.tp > 1 && random.between(0, 1) == 1;
  plan.settings.zero_stage = static_cast<std::int32_t>(random.between(0, 3));
  plan.settings.zero_group = pick(random, {0, 0, 1, 2, 4});
  plan.settings.zero_prefetch = static_cast<std::int32_t>(random.between(0, 3));
  plan.settings.zero_reshard = random.between(0, 2) > 0;
  draw_recompute(random, plan.settings, names);
  plan.settings.kernel_set =
      pick<std::string>(random, {"reference", "orrery-cuda", "orrery-cuda-packed", "megatron"});
  plan.settings.overlap_gradient_reduce = random.between(0, 3) > 0;
  plan.settings.bucket_bytes = pick<std::int64_t>(random, {0, 4096, 1 << 20});
  for (const LoweringPass pass : all_lowering_passes()) {
    if (random.between(0, 1) == 1) plan.settings.passes.set(pass, random.between(0, 1) == 1);
  }
  plan.settings.vocab_multiple = pick<std::int64_t>(random, {1, 8});
  drawn.gpus = plan.tp * plan.settings.context_parallel * plan.pp * plan.dp;
  return drawn;
}

// All that tells one drawn plan from another, in a line.
std::string describe(const Drawn& drawn);

}  // namespace orrery::test
