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

void RoleOptimizer::finish(AxisId world, const std::vector<std::int32_t>& after) {
  add_state_buffers();
  const std::int32_t updated = update(world, after);
  // In the order of the next forward.
  for (std::size_t b = state_.buckets.size(); b-- > 0;) {
    if (gathers_after_update(state_.buckets[b])) gathers_[b] = gather(state_.buckets[b], updated);
  }
  for (const auto& [edge, bucket] : awaited_) {
    state_.out.role.edges[edge].instruction = bucket == kUpdate ? updated : gathers_[bucket];
  }
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
    out.role.buffers.push_back(state);
  }
}

std::int32_t RoleOptimizer::compute(const std::string& label, KernelKind kind, std::int64_t read,
                                    std::int64_t written, const std::vector<std::int32_t>& dependencies) {
  RoleWriter& out = state_.out;
  Instruction& instruction = out.open(label, kComputeStream, Purpose::kOptimizer);
  Kernel kernel;
  kernel.label = instruction.label;
  kernel.kind = kind;
  kernel.dtype = DType::kFp32;
  kernel.read_bytes = read;
  kernel.written_bytes = written;
  instruction.work = Compute{out.symbols.kernel(kernel)};
  for (const std::int32_t dependency : dependencies) out.after(dependency);
  for (std::size_t b = 0; b < out.role.buffers.size(); ++b) {
    const MemoryCategory category = out.role.buffers[b].category;
    const bool gradients = category == MemoryCategory::kGradients;
    const bool state = category == MemoryCategory::kOptimizer || category == MemoryCategory::kParameters;
    if (out.role.buffers[b].persistent && (gradients || (state && kind == KernelKind::kOptimizer))) {
      out.touch(static_cast<std::int32_t>(b), !gradients);
    }
  }
  return out.close();
}

// Of this rank: of each group's parameters together, as their buckets are divided.
std::int64_t RoleOptimizer::own_elements() const {
  std::map<std::int32_t, std::int64_t> by_degree;
  std::int64_t sum = 0;
  for (const RoleParameter& parameter : state_.parameters) {
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

std::int32_t RoleOptimizer::update(AxisId world, const std::vector<std::int32_t>& after) {
  const Plan& plan = state_.plan;
  RoleWriter& out = state_.out;
  const std::int64_t own = own_elements();
  const std::int64_t gradient_bytes = own * size_bytes(plan.gradient_dtype);
  std::vector<std::int32_t> dependencies = after;
  if (plan.clip_gradients) {
    std::int32_t norm = compute("gradient_norm", KernelKind::kElementwise, gradient_bytes, 0, dependencies);
    if (world.valid()) {
      Instruction& sum = out.open("gradient_norm.reduce", kDataStream, Purpose::kGradientReduce);
      sum.work = Collective{CollectiveKind::kAllReduce, world, size_bytes(DType::kFp32), DType::kFp32};
      out.after(norm);
      norm = out.close();
    }
    dependencies = {norm};
  }
  // AdamW reads the gradient and its state, writes the state and the compute copy of the weights.
  const std::int64_t weights = plan.compute_dtype == DType::kFp32 ? 0 : size_bytes(plan.compute_dtype);
  return compute("adamw", KernelKind::kOptimizer, gradient_bytes + own * 12, own * (12 + weights),
                 dependencies);
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
