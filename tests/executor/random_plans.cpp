#include "tests/executor/random_plans.hpp"

#include <fmt/format.h>

namespace orrery::test {

std::string describe(const Drawn& drawn) {
  const Plan& settings = drawn.plan.settings;
  return fmt::format(
      "{}, tp {}, cp {} {}, ep {} etp {}, pp {}, dp {}, virtual {}, batch {} of {}, sp {}, "
      "zero {} (group {}, prefetch {}, reshard {}), {}, {}, passes {}",
      to_string(settings.schedule), drawn.plan.tp, settings.context_parallel,
      to_string(settings.context_form), settings.expert_parallel, settings.expert_tensor, drawn.plan.pp,
      drawn.plan.dp, drawn.plan.virtual_stages, drawn.plan.global_batch, settings.microbatch_size,
      settings.sequence_parallel, settings.zero_stage, settings.zero_group, settings.zero_prefetch,
      settings.zero_reshard, describe_recompute(settings), settings.kernel_set, to_string(settings.passes));
}

}  // namespace orrery::test
