#include "planner/role_gradients.hpp"

#include <algorithm>

namespace orrery {

RoleGradients::RoleGradients(RoleDraft& state, std::int32_t microbatches)
    : state_(state),
      microbatches_(microbatches),
      each_pass_(ordered() || std::any_of(state.buckets.begin(), state.buckets.end(),
                                          [&](const Bucket& bucket) {
                                            return shards_gradients(state.plan, bucket.axes);
                                          })),
      ready_(state.buckets.size()),
      last_of_(state.buckets.size(), -1),
      begun_(state.parameters.size()) {}

std::int32_t RoleGradients::add_buffer(const Buffer& like, const std::string& suffix,
                                       std::int32_t microbatch) {
  SymbolTable& symbols = state_.out.symbols;
  Buffer buffer = like;
  buffer.label = symbols.label(symbols.labels[like.label.index()] + suffix);
  buffer.microbatch = microbatch;
  buffer.persistent = false;
  buffer.behind = {};
  state_.out.role.buffers.push_back(buffer);
  return static_cast<std::int32_t>(std::ssize(state_.out.role.buffers) - 1);
}

std::int32_t RoleGradients::buffer(const Pass& pass, std::size_t parameter) {
  const RoleParameter& of = state_.parameters[parameter];
  return is_partial(of, pass) ? partial(pass, parameter) : of.gradient;
}

// The first of a tree's terms becomes the sum of all, and can be where that is wanted.
bool RoleGradients::is_partial(const RoleParameter& parameter, const Pass& pass) const {
  return shards_gradients(state_.plan, parameter.axes) || (ordered() && pass.microbatch > 0);
}

std::int32_t& RoleGradients::partial(const Pass& pass, std::size_t parameter) {
  const RoleParameter& of = state_.parameters[parameter];
  const auto [found, inserted] = partial_.try_emplace({pass.chunk, pass.microbatch, parameter});
  if (inserted) {
    const std::string suffix = of.uses.size() > 1 ? ".chunk" + std::to_string(pass.chunk) : "";
    found->second = add_buffer(of.whole_gradient, ".whole" + suffix, pass.microbatch);
  }
  return found->second;
}

std::int32_t RoleGradients::add_up(std::size_t bucket, const GradientUse& use, const Pass& pass,
                                   std::int32_t ready) {
  const auto [tree, inserted] = trees_.try_emplace({bucket, use.chunk}, microbatches_);
  std::size_t level = 0;
  for (const SumTree::Merge& merge : tree->second.complete(pass.microbatch)) {
    ready = add(state_.buckets[bucket], use, pass, merge, ++level);
  }
  return ready;
}

std::int32_t RoleGradients::add(const Bucket& bucket, const GradientUse& use, const Pass& pass,
                                const SumTree::Merge& merge, std::size_t level) {
  RoleWriter& out = state_.out;
  Instruction& instruction =
      out.open(bucket.kind + "gradients.add_up" + std::to_string(level), kComputeStream, Purpose::kBackward);
  instruction.layer = use.block;
  instruction.microbatch = pass.microbatch;
  Kernel kernel;
  kernel.label = instruction.label;
  kernel.kind = KernelKind::kAccumulate;
  kernel.dtype = state_.plan.gradient_dtype;
  Pass left = pass, right = pass;
  left.microbatch = merge.left;
  right.microbatch = merge.right;
  for (const std::size_t p : bucket.parameters) {
    const RoleParameter& parameter = state_.parameters[p];
    const bool here = std::any_of(parameter.uses.begin(), parameter.uses.end(),
                                  [&](const GradientUse& other) { return other.chunk == use.chunk; });
    if (!here) continue;
    kernel.written_bytes += parameter.elements * size_bytes(kernel.dtype);
    out.touch(partial(right, p), false);
    out.touch(buffer(left, p), true);
    partial_.erase({pass.chunk, merge.right, p});
  }
  kernel.read_bytes = 2 * kernel.written_bytes;
  instruction.work = Compute{out.symbols.kernel(kernel)};
  return out.close();
}

void RoleGradients::passed(const Pass& pass, bool last, std::int32_t position, bool ends,
                           std::int32_t instruction) {
  if (!last && !each_pass_) return;
  const bool overlaps = state_.plan.overlap_gradient_reduce;
  for (std::size_t b = 0; b < state_.buckets.size(); ++b) {
    const Bucket& bucket = state_.buckets[b];
    const bool scatters = shards_gradients(state_.plan, bucket.axes);
    for (const GradientUse& use : bucket.uses) {
      const bool due = overlaps ? position == use.position[static_cast<std::size_t>(pass.kind)] : ends;
      if (use.chunk != pass.chunk || !due) continue;
      std::int32_t added = ordered() ? add_up(b, use, pass, instruction) : instruction;
      if (scatters && (last || !ordered())) added = scatter(bucket, use, pass, added);
      if (last) ready_[b].push_back(added);
    }
  }
  if (!overlaps) return;
  // In one order on all ranks of a group, whichever chunk ends first on this one.
  for (; next_ < ready_.size() && ready_[next_].size() == state_.buckets[next_].uses.size(); ++next_) {
    reduce(state_.buckets[next_], ready_[next_]);
    last_of_[next_] = last_;
  }
}

// The pass's whole gradients become sums on their shards, and are added to what earlier passes left there.
std::int32_t RoleGradients::scatter(const Bucket& bucket, const GradientUse& use, const Pass& pass,
                                    std::int32_t ready) {
  const Plan& plan = state_.plan;
  RoleWriter& out = state_.out;
  std::vector<std::int32_t> whole, target;
  std::vector<std::size_t> adds;  // Parameters with something to add to.
  std::vector<std::int32_t> added;
  const std::int32_t of_microbatch = ordered() ? 0 : pass.microbatch;  // That of the whole sum.
  for (const std::size_t p : bucket.parameters) {
    const auto found = partial_.find({pass.chunk, of_microbatch, p});
    if (found == partial_.end()) continue;  // Not of this chunk.
    const RoleParameter& parameter = state_.parameters[p];
    whole.push_back(found->second);
    if (!begun_[p]) {
      begun_[p] = true;
      target.push_back(parameter.gradient);
    } else {
      Buffer shard = out.role.buffers[static_cast<std::size_t>(parameter.gradient)];
      const std::string suffix = parameter.uses.size() > 1 ? ".chunk" + std::to_string(pass.chunk) : "";
      target.push_back(add_buffer(shard, ".scattered" + suffix, pass.microbatch));
      adds.push_back(p);
      added.push_back(target.back());
    }
    partial_.erase(found);
  }
  Instruction& instruction =
      out.open(bucket.kind + "gradients.scatter", kDataStream, Purpose::kGradientReduce);
  instruction.layer = use.block;
  instruction.microbatch = pass.microbatch;
  instruction.work =
      Collective{CollectiveKind::kReduceScatter, bucket.axes.shard,
                 bucket.elements * size_bytes(plan.gradient_dtype), plan.gradient_dtype, reduction()};
  out.after(ready);
  for (const std::int32_t buffer : whole) out.touch(buffer, false);
  for (const std::int32_t buffer : target) out.touch(buffer, true);
  last_ = out.close();
  if (adds.empty()) return last_;

  // On the same stream, as PyTorch's fully_shard does: the backward goes on meanwhile.
  Instruction& sum = out.open(bucket.kind + "gradients.accumulate", kDataStream, Purpose::kGradientReduce);
  sum.layer = use.block;
  sum.microbatch = pass.microbatch;
  Kernel kernel;
  kernel.label = sum.label;
  kernel.kind = KernelKind::kAccumulate;
  kernel.dtype = plan.gradient_dtype;
  for (const std::size_t p : adds) {
    kernel.written_bytes += state_.parameters[p].shard.elements * size_bytes(plan.gradient_dtype);
  }
  kernel.read_bytes = 2 * kernel.written_bytes;
  sum.work = Compute{out.symbols.kernel(kernel)};
  for (const std::int32_t buffer : added) out.touch(buffer, false);
  for (const std::size_t p : adds) out.touch(state_.parameters[p].gradient, true);
  return last_ = out.close();
}

void RoleGradients::reduce(const Bucket& bucket, const std::vector<std::int32_t>& ready) {
  const bool divided = shards_state(state_.plan, bucket.axes);
  std::vector<std::int32_t> waits = ready;
  if (divided && !shards_gradients(state_.plan, bucket.axes)) {
    waits = {
        reduce_in_place(bucket, CollectiveKind::kReduceScatter, bucket.axes.shard, bucket.elements, waits)};
  }
  if (!bucket.axes.replicate.valid()) return;
  const std::int64_t degree = bucket.axes.shard_degree;
  const std::int64_t own = divided ? (bucket.elements + degree - 1) / degree : bucket.elements;
  reduce_in_place(bucket, CollectiveKind::kAllReduce, bucket.axes.replicate, own, waits);
}

std::int32_t RoleGradients::reduce_in_place(const Bucket& bucket, CollectiveKind kind, AxisId axis,
                                            std::int64_t elements, const std::vector<std::int32_t>& ready) {
  RoleWriter& out = state_.out;
  const DType dtype = state_.plan.gradient_dtype;
  const std::string what = kind == CollectiveKind::kReduceScatter ? "gradients.scatter" : "gradients.reduce";
  Instruction& instruction = out.open(bucket.kind + what, kDataStream, Purpose::kGradientReduce);
  instruction.layer = bucket.layer;
  instruction.work = Collective{kind, axis, elements * size_bytes(dtype), dtype, reduction()};
  for (const std::int32_t dependency : ready) out.after(dependency);
  for (const std::size_t p : bucket.parameters) out.touch(state_.parameters[p].gradient, true);
  return last_ = out.close();
}

// A further sum over few elements, after the data-parallel one: parameters that several ranks hold whole.
void RoleGradients::reduce_more(const std::string& label, LoweredStream stream, AxisId axis,
                                bool RoleParameter::* which) {
  const DType dtype = state_.plan.gradient_dtype;
  std::int64_t elements = 0;
  for (const RoleParameter& parameter : state_.parameters) {
    elements += parameter.*which ? own_elements(state_.plan, parameter) : 0;
  }
  if (!axis.valid() || elements == 0) return;
  RoleWriter& out = state_.out;
  Instruction& instruction = out.open(label, stream, Purpose::kGradientReduce);
  instruction.work = Collective{CollectiveKind::kAllReduce, axis, elements * size_bytes(dtype), dtype};
  out.after(last_ >= 0 ? last_ : out.last_compute());
  for (const RoleParameter& parameter : state_.parameters) {
    if (parameter.*which) out.touch(parameter.gradient, true);
  }
  more_.push_back(out.close());
}

void RoleGradients::finish(AxisId tensor, AxisId embedding) {
  for (; next_ < ready_.size(); ++next_) {
    reduce(state_.buckets[next_], {state_.out.last_compute()});
    last_of_[next_] = last_;
  }
  reduce_more("replicated_gradients.reduce", kTensorStream, tensor, &RoleParameter::partial);
  reduce_more("embedding_gradient.reduce", kDataStream, embedding, &RoleParameter::tied);
  reduced_ = more_;
  if (last_ >= 0) reduced_.push_back(last_);
}

std::vector<std::int32_t> RoleGradients::reduced(std::size_t bucket) const {
  std::vector<std::int32_t> all = more_;
  if (last_of_[bucket] >= 0) all.push_back(last_of_[bucket]);
  return all;
}

}  // namespace orrery
