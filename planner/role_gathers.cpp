#include "planner/role_gathers.hpp"

#include <algorithm>

namespace orrery {
namespace {

// Stands for all passes where parameters stay gathered until the step's end.
constexpr std::size_t kAnyPass = static_cast<std::size_t>(-1);

}  // namespace

RoleGathers::RoleGathers(RoleState& state, RoleOptimizer& optimizer)
    : state_(state), optimizer_(optimizer), bucket_of_(state.parameters.size(), -1) {
  for (std::size_t b = 0; b < state.buckets.size(); ++b) {
    if (!shards_parameters(state.plan, state.buckets[b].axes)) continue;
    for (const std::size_t p : state.buckets[b].parameters) bucket_of_[p] = static_cast<std::int32_t>(b);
  }
}

void RoleGathers::expect(std::size_t pass, const Pass& kind, std::size_t parameter, std::int32_t layer) {
  const auto bucket = static_cast<std::size_t>(bucket_of_[parameter]);
  const bool reshard = state_.plan.zero_reshard;
  const auto [known, inserted] = use_of_.try_emplace({reshard ? pass : kAnyPass, bucket}, uses_.size());
  if (!inserted) return;
  const std::size_t kept = std::min(uses_.size(), static_cast<std::size_t>(1 + state_.plan.zero_prefetch));
  for (std::size_t u = uses_.size() - kept; u < uses_.size(); ++u) {
    if (uses_[u].bucket != bucket) continue;
    known->second = u;
    return;
  }
  Use& use = uses_.emplace_back();
  use.bucket = bucket;
  // Two chunks may use a tied table; what else reads a layer's parameters may be a launch of the layer
  // before.
  use.layer = state_.parameters[parameter].tied ? layer : state_.buckets[bucket].layer;
  use.microbatch = reshard ? kind.microbatch : -1;
  use.again = reshard && kind.kind != PassKind::kForward;
}

std::size_t RoleGathers::use_of(std::size_t pass, std::size_t bucket) const {
  return use_of_.at({state_.plan.zero_reshard ? pass : kAnyPass, bucket});
}

std::int32_t RoleGathers::enter(std::size_t pass, std::size_t parameter) {
  const std::size_t u = use_of(pass, static_cast<std::size_t>(bucket_of_[parameter]));
  if (uses_[u].begun) return -1;
  uses_[u].begun = true;
  const std::size_t wanted =
      std::min(uses_.size(), u + 1 + static_cast<std::size_t>(state_.plan.zero_prefetch));
  for (; posted_ < wanted; ++posted_) post(uses_[posted_], posted_ == 0);
  return uses_[u].gather;
}

std::int32_t RoleGathers::buffer(std::size_t pass, std::size_t parameter) const {
  const auto b = static_cast<std::size_t>(bucket_of_[parameter]);
  const auto& members = state_.buckets[b].parameters;
  const auto at = std::find(members.begin(), members.end(), parameter) - members.begin();
  return uses_[use_of(pass, b)].buffers[static_cast<std::size_t>(at)];
}

void RoleGathers::post(Use& use, bool first) {
  RoleWriter& out = state_.out;
  const Bucket& bucket = state_.buckets[use.bucket];
  const DType dtype = state_.plan.compute_dtype;
  const std::string again = use.again ? "_again" : "";
  for (const std::size_t p : bucket.parameters) {
    Buffer whole = state_.parameters[p].whole_weights;
    whole.label = out.symbols.label(out.symbols.labels[whole.label.index()] + ".gathered" + again);
    if (state_.parameters[p].tied) whole.layer = use.layer;
    whole.microbatch = use.microbatch;
    whole.persistent = false;
    use.buffers.push_back(static_cast<std::int32_t>(std::ssize(out.role.buffers)));
    out.role.buffers.push_back(whole);
  }
  Instruction& gather =
      out.open(bucket.kind + "parameters.gather" + again, kGatherStream, Purpose::kParameterGather);
  gather.layer = use.layer;
  gather.microbatch = use.microbatch;
  gather.work =
      Collective{CollectiveKind::kAllGather, bucket.axes.shard, bucket.elements * size_bytes(dtype), dtype};
  if (first) optimizer_.await_update();
  out.after(out.last_compute());
  for (const std::size_t p : bucket.parameters) out.touch(state_.parameters[p].weights, false);
  for (const std::int32_t buffer : use.buffers) out.touch(buffer, true);
  use.gather = out.close();
}

}  // namespace orrery
