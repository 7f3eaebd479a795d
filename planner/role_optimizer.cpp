#include "planner/role_optimizer.hpp"

#include <algorithm>
#include <map>

namespace orrery {

bool RoleOptimizer::gathers_after_update(const Bucket& bucket) const {
  return shards_state(state_.plan, bucket.axes) && !shards_parameters(state_.plan, bucket.axes);
}

// The edge is completed when what it waits for has an index.
void RoleOptimizer::await(std::size_t bucket) {
  awaited_.emplace_back(state_.out.role.edges.size(), bucket);
  state_.out.after_previous_step(-1);
}

void RoleOptimizer::await_parameters(const std::vector<std::int32_t>& blocks, bool first_of_chunk) {
  const auto& buckets = state_.buckets;
  if (!state_.plan.overlap_parameter_gather) {
    const auto last = std::find_if(buckets.begin(), buckets.end(),
                                   [&](const Bucket& bucket) { return gathers_after_update(bucket); });
    if (first_of_chunk && last != buckets.end()) await(static_cast<std::size_t>(last - buckets.begin()));
    return;
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!gathers_after_update(buckets[b])) continue;
    const auto holds_some = [&](std::size_t p) {
      const RoleParameter& parameter = state_.parameters[p];
      return std::any_of(blocks.begin(), blocks.end(), [&](std::int32_t block) {
        return block == parameter.block || block == parameter.last_block;
      });
    };
    if (std::any_of(buckets[b].parameters.begin(), buckets[b].parameters.end(), holds_some)) await(b);
  }
}

void RoleOptimizer::finish(AxisId world, const RoleGradients& gradients) {
  add_state_buffers();
  std::vector<std::int32_t> clipped;  // Norm of all gradients, if anybody asks for it.
  if (state_.plan.clip_gradients) clipped = {norm(world, gradients.reduced())};
  std::vector<std::int32_t> updated(state_.buckets.size(), -1);
  std::int32_t last = -1;
  if (state_.plan.passes.contains(LoweringPass::kSplitOptimizer)) {
    // In the order in which buckets are gathered for the next forward; what is in no bucket at the end.
    for (std::size_t b = state_.buckets.size(); b-- > 0;) {
      const Bucket& bucket = state_.buckets[b];
      updated[b] = last = update(bucket.kind + "adamw", bucket.layer, bucket.parameters,
                                 clipped.empty() ? gradients.reduced(b) : clipped);
    }
    const Parameters rest = unbucketed();
    if (!rest.empty()) last = update("adamw", -1, rest, clipped.empty() ? gradients.reduced() : clipped);
  } else {
    last = update("adamw", -1, all_parameters(), clipped.empty() ? gradients.reduced() : clipped);
    std::fill(updated.begin(), updated.end(), last);
  }
  for (std::size_t b = state_.buckets.size(); b-- > 0;) {
    if (gathers_after_update(state_.buckets[b])) gathers_[b] = gather(state_.buckets[b], updated[b]);
  }
  for (const auto& [edge, bucket] : awaited_) {
    state_.out.role.edges[edge].instruction = bucket == kUpdate ? last : gathers_[bucket];
  }
}

RoleOptimizer::Parameters RoleOptimizer::all_parameters() const {
  Parameters all(state_.parameters.size());
  for (std::size_t p = 0; p < all.size(); ++p) all[p] = p;
  return all;
}

RoleOptimizer::Parameters RoleOptimizer::unbucketed() const {
  Parameters rest = all_parameters();
  std::erase_if(rest, [&](std::size_t p) {
    return std::any_of(state_.buckets.begin(), state_.buckets.end(), [&](const Bucket& bucket) {
      return std::find(bucket.parameters.begin(), bucket.parameters.end(), p) != bucket.parameters.end();
    });
  });
  return rest;
}

// fp32 master, m and v; fp32 training needs no second copy of the weights.
void RoleOptimizer::add_state_buffers() {
  RoleWriter& out = state_.out;
  for (const RoleParameter& parameter : state_.parameters) {
    const Buffer& weights = out.role.buffers[static_cast<std::size_t>(parameter.weights)];
    Buffer state;
    state.label = out.symbols.label(out.symbols.labels[weights.label.index()] + ".optimizer");
    state.layer = weights.layer;
    state.category = MemoryCategory::kOptimizer;
    state.bytes =
        orrery::own_elements(state_.plan, parameter) * (state_.plan.compute_dtype == DType::kFp32 ? 8 : 12);
    state.persistent = true;
    states_.push_back(static_cast<std::int32_t>(std::ssize(out.role.buffers)));
    out.role.buffers.push_back(state);
  }
}

// Of this rank: of each group's parameters together, as their buckets are divided.
std::int64_t RoleOptimizer::own_elements(const Parameters& of) const {
  std::map<std::int32_t, std::int64_t> by_degree;
  std::int64_t sum = 0;
  for (const std::size_t p : of) {
    const RoleParameter& parameter = state_.parameters[p];
    if (shards_gradients(state_.plan, parameter.axes)) {
      sum += parameter.shard.elements;
    } else {
      by_degree[shards_state(state_.plan, parameter.axes) ? parameter.axes.shard_degree : 1] +=
          parameter.elements;
    }
  }
  for (const auto& [degree, elements] : by_degree) sum += (elements + degree - 1) / degree;
  return sum;
}

Instruction& RoleOptimizer::open(const std::string& label, Kernel kernel,
                                 const std::vector<std::int32_t>& after) {
  RoleWriter& out = state_.out;
  Instruction& instruction = out.open(label, kComputeStream, Purpose::kOptimizer);
  kernel.label = instruction.label;
  kernel.dtype = DType::kFp32;
  instruction.work = Compute{out.symbols.kernel(kernel)};
  for (const std::int32_t dependency : after) out.after(dependency);
  return instruction;
}

std::int32_t RoleOptimizer::norm(AxisId world, const std::vector<std::int32_t>& after) {
  RoleWriter& out = state_.out;
  Kernel kernel;
  kernel.read_bytes = own_elements(all_parameters()) * size_bytes(state_.plan.gradient_dtype);
  open("gradient_norm", kernel, after);
  for (const RoleParameter& parameter : state_.parameters) out.touch(parameter.gradient, false);
  const std::int32_t norm = out.close();
  if (!world.valid()) return norm;
  Instruction& sum = out.open("gradient_norm.reduce", kDataStream, Purpose::kGradientReduce);
  sum.work = Collective{CollectiveKind::kAllReduce, world, size_bytes(DType::kFp32), DType::kFp32};
  out.after(norm);
  return out.close();
}

// AdamW reads the gradient and its state, writes the state and the compute copy of the weights.
std::int32_t RoleOptimizer::update(const std::string& label, std::int32_t layer, const Parameters& of,
                                   const std::vector<std::int32_t>& after) {
  const Plan& plan = state_.plan;
  const std::int64_t weights = plan.compute_dtype == DType::kFp32 ? 0 : size_bytes(plan.compute_dtype);
  const std::int64_t own = own_elements(of);
  Kernel kernel;
  kernel.kind = KernelKind::kOptimizer;
  kernel.read_bytes = own * (size_bytes(plan.gradient_dtype) + 12);
  kernel.written_bytes = own * (12 + weights);
  open(label, kernel, after).layer = layer;
  for (const std::size_t p : of) {
    state_.out.touch(state_.parameters[p].gradient, false);
    state_.out.touch(state_.parameters[p].weights, true);
    state_.out.touch(states_[p], true);
  }
  return state_.out.close();
}

std::int32_t RoleOptimizer::gather(const Bucket& bucket, std::int32_t updated) {
  RoleWriter& out = state_.out;
  const DType dtype = state_.plan.compute_dtype;
  Instruction& instruction =
      out.open(bucket.kind + "parameters.gather", kDataStream, Purpose::kParameterGather);
  instruction.layer = bucket.layer;
  instruction.work =
      Collective{CollectiveKind::kAllGather, bucket.axes.shard, bucket.elements * size_bytes(dtype), dtype};
  out.after(updated);
  for (const std::size_t p : bucket.parameters) out.touch(state_.parameters[p].weights, true);
  return out.close();
}

}  // namespace orrery
