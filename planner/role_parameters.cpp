#include "planner/role_parameters.hpp"

#include <algorithm>

namespace orrery {
namespace {

// A tied table whose state is divided has a bucket of its own, so that both ends of the pipeline divide it
// alike (as Megatron-LM's param_and_grad_buffer.py does); so has one that two chunks of the rank use.
bool stands_alone(const Plan& plan, const RoleParameter& parameter) {
  return parameter.tied && (shards_state(plan, parameter.axes) || parameter.uses.size() > 1);
}

bool joins(const Plan& plan, const std::vector<RoleParameter>& parameters, const Bucket& bucket,
           const RoleParameter& parameter) {
  const RoleParameter& last = parameters[bucket.parameters.back()];
  if (bucket.axes != parameter.axes || stands_alone(plan, parameter) || stands_alone(plan, last))
    return false;
  if (last.block == parameter.block) return true;
  std::int64_t of_block = 0;
  for (const RoleParameter& other : parameters) {
    if (other.block == parameter.block && other.axes == parameter.axes) of_block += other.elements;
  }
  const bool same_chunk = last.uses.front().chunk == parameter.uses.front().chunk;
  return same_chunk && bucket.elements + of_block <= plan.bucket_bytes / size_bytes(plan.gradient_dtype);
}

// The bucket is ready where the last of its gradients is.
void add_use(const GradientUse& use, std::vector<GradientUse>& uses) {
  const auto known = std::find_if(uses.begin(), uses.end(),
                                  [&](const GradientUse& other) { return other.chunk == use.chunk; });
  if (known == uses.end()) {
    uses.push_back(use);
    return;
  }
  known->block = std::min(known->block, use.block);
  for (std::size_t kind = 0; kind < kPassKindCount; ++kind) {
    known->position[kind] = std::max(known->position[kind], use.position[kind]);
  }
}

}  // namespace

bool shards_state(const Plan& plan, const ReductionAxes& axes) {
  return plan.zero_stage >= 1 && axes.shard.valid();
}
bool shards_gradients(const Plan& plan, const ReductionAxes& axes) {
  return plan.zero_stage >= 2 && axes.shard.valid();
}
bool shards_parameters(const Plan& plan, const ReductionAxes& axes) {
  return plan.zero_stage >= 3 && axes.shard.valid();
}

std::int64_t own_elements(const Plan& plan, const RoleParameter& parameter) {
  if (!shards_state(plan, parameter.axes)) return parameter.elements;
  if (shards_gradients(plan, parameter.axes)) return parameter.shard.elements;
  return (parameter.elements + parameter.axes.shard_degree - 1) / parameter.axes.shard_degree;
}

std::vector<Bucket> make_buckets(const Plan& plan, const std::vector<RoleParameter>& parameters) {
  std::vector<std::size_t> order(parameters.size());
  for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parameters[a].block > parameters[b].block; });
  std::vector<Bucket> buckets;
  for (const std::size_t p : order) {
    const RoleParameter& parameter = parameters[p];
    const bool alone = !parameter.axes.shard.valid() && !parameter.axes.replicate.valid();
    if (alone && plan.gradient_sum != GradientSum::kOrdered) continue;
    const auto known = std::find_if(buckets.rbegin(), buckets.rend(), [&](const Bucket& bucket) {
      return joins(plan, parameters, bucket, parameter);
    });
    const bool is_new = known == buckets.rend();
    Bucket& bucket = is_new ? buckets.emplace_back() : *known;
    if (is_new) {
      bucket.axes = parameter.axes;
      bucket.kind = parameter.of_expert ? "expert_" : stands_alone(plan, parameter) ? "tied_" : "";
    }
    bucket.parameters.push_back(p);
    bucket.elements += shards_gradients(plan, parameter.axes)
                           ? parameter.shard.elements * parameter.axes.shard_degree
                           : parameter.elements;
    bucket.layer = parameter.block;
    for (const GradientUse& use : parameter.uses) add_use(use, bucket.uses);
  }
  return buckets;
}

}  // namespace orrery
