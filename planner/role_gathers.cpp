#include "planner/role_gathers.hpp"

#include <algorithm>

namespace orrery {
namespace {

// Stands for all passes where parameters stay gathered until the step's end.
constexpr std::size_t kAnyPass = static_cast<std::size_t>(-1);

// A weights' backward has to gather where it recomputes.
const char* suffix_of(PassKind pass) {
  if (pass == PassKind::kForward) return "";
  return pass == PassKind::kBackwardWeight ? "_for_weights" : "_again";
}

}  // namespace

RoleGathers::RoleGathers(RoleDraft& state, RoleOptimizer& optimizer)
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
    if (gathered_[uses_[u].gathered].bucket != bucket) continue;
    uses_.push_back({uses_[u].gathered});
    return;
  }
  uses_.push_back({gathered_.size()});
  Gathered& gathered = gathered_.emplace_back();
  gathered.bucket = bucket;
  // Two chunks may use a tied table; what else reads a layer's parameters may be a launch of the layer
  // before.
  gathered.layer = state_.parameters[parameter].tied ? layer : state_.buckets[bucket].layer;
  gathered.microbatch = reshard ? kind.microbatch : -1;
  if (reshard) gathered.suffix = suffix_of(kind.kind);
}

std::size_t RoleGathers::use_of(std::size_t pass, std::size_t bucket) const {
  return use_of_.at({state_.plan.zero_reshard ? pass : kAnyPass, bucket});
}

std::int32_t RoleGathers::enter(std::size_t pass, std::size_t parameter) {
  const std::size_t u = use_of(pass, static_cast<std::size_t>(bucket_of_[parameter]));
  if (uses_[u].begun) return -1;
  uses_[u].begun = true;
  const auto prefetch = static_cast<std::size_t>(state_.plan.zero_prefetch);
  const std::size_t last = std::min(uses_.size() - 1, u + prefetch);
  for (std::size_t next = u; next <= last; ++next) {
    for (; posted_ <= uses_[next].gathered; ++posted_) post(gathered_[posted_], posted_ == 0);
  }
  return gathered_[uses_[u].gathered].gather;
}

std::int32_t RoleGathers::buffer(std::size_t pass, std::size_t parameter) const {
  const auto b = static_cast<std::size_t>(bucket_of_[parameter]);
  const auto& members = state_.buckets[b].parameters;
  const auto at = std::find(members.begin(), members.end(), parameter) - members.begin();
  return gathered_[uses_[use_of(pass, b)].gathered].buffers[static_cast<std::size_t>(at)];
}

void RoleGathers::post(Gathered& gathered, bool first) {
  RoleWriter& out = state_.out;
  const Bucket& bucket = state_.buckets[gathered.bucket];
  const DType dtype = state_.plan.compute_dtype;
  for (const std::size_t p : bucket.parameters) {
    Buffer whole = state_.parameters[p].whole_weights;
    whole.label = out.symbols.label(out.symbols.labels[whole.label.index()] + ".gathered" + gathered.suffix);
    if (state_.parameters[p].tied) whole.layer = gathered.layer;
    whole.microbatch = gathered.microbatch;
    whole.persistent = false;
    whole.behind = {};
    gathered.buffers.push_back(static_cast<std::int32_t>(std::ssize(out.role.buffers)));
    out.role.buffers.push_back(whole);
  }
  Instruction& gather =
      out.open(bucket.kind + "parameters.gather" + gathered.suffix, kGatherStream, Purpose::kParameterGather);
  gather.layer = gathered.layer;
  gather.microbatch = gathered.microbatch;
  gather.work =
      Collective{CollectiveKind::kAllGather, bucket.axes.shard, bucket.elements * size_bytes(dtype), dtype};
  if (first) optimizer_.await_update();
  out.after(out.last_compute());
  for (const std::size_t p : bucket.parameters) out.touch(state_.parameters[p].weights, false);
  for (const std::int32_t buffer : gathered.buffers) out.touch(buffer, true);
  gathered.gather = out.close();
}

}  // namespace orrery
