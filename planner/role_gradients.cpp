#include "planner/role_gradients.hpp"

#include <algorithm>
#include <map>

namespace orrery {

RoleGradients::RoleGradients(const Plan& plan, const RoleShape& shape, RoleWriter& writer,
                             std::vector<RoleParameter> parameters)
    : plan_(plan), shape_(shape), out_(writer), parameters_(std::move(parameters)) {
  make_buckets();
}

std::int64_t RoleGradients::own_elements(const RoleParameter& parameter) const {
  if (!shards(parameter.degree)) return parameter.elements;
  return (parameter.elements + parameter.degree - 1) / parameter.degree;
}

std::int64_t RoleGradients::own_elements() const {
  // Of each group's parameters together, as their buckets are divided.
  std::map<std::int32_t, std::int64_t> by_degree;
  for (const RoleParameter& parameter : parameters_) by_degree[parameter.degree] += parameter.elements;
  std::int64_t sum = 0;
  for (const auto& [degree, elements] : by_degree) {
    sum += shards(degree) ? (elements + degree - 1) / degree : elements;
  }
  return sum;
}

// ---- Reduction.

// A tied table whose optimiser state is divided has a bucket of its own, so that both ends of the pipeline
// divide it alike (as Megatron-LM's param_and_grad_buffer.py does); so has one that two chunks of the rank
// use.
bool RoleGradients::stands_alone(const RoleParameter& parameter) const {
  return parameter.tied && (shards(parameter.degree) || parameter.ready.size() > 1);
}

// A bucket holds whole blocks.
bool RoleGradients::joins(const Bucket& bucket, const RoleParameter& parameter) const {
  const RoleParameter& last = parameters_[bucket.parameters.back()];
  if (bucket.axis != parameter.axis || stands_alone(parameter) || stands_alone(last)) return false;
  if (last.block == parameter.block) return true;
  std::int64_t of_block = 0;
  for (const RoleParameter& other : parameters_) {
    if (other.block == parameter.block && other.axis == parameter.axis) of_block += other.elements;
  }
  const bool same_chunk = last.ready.front().first == parameter.ready.front().first;
  return same_chunk && bucket.elements + of_block <= plan_.bucket_bytes / size_bytes(plan_.gradient_dtype);
}

void RoleGradients::make_buckets() {
  std::vector<std::size_t> order(parameters_.size());
  for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parameters_[a].block > parameters_[b].block; });
  for (const std::size_t p : order) {
    const RoleParameter& parameter = parameters_[p];
    if (parameter.degree == 1) continue;  // Nobody else has a part of its gradient.
    const auto known = std::find_if(buckets_.rbegin(), buckets_.rend(),
                                    [&](const Bucket& bucket) { return joins(bucket, parameter); });
    const bool is_new = known == buckets_.rend();
    Bucket& bucket = is_new ? buckets_.emplace_back() : *known;
    if (is_new) {
      bucket.axis = parameter.axis;
      bucket.degree = parameter.degree;
    }
    bucket.parameters.push_back(p);
    bucket.elements += parameter.elements;
    for (const auto& [chunk, position] : parameter.ready) {
      const auto wait =
          std::find_if(bucket.waits.begin(), bucket.waits.end(),
                       [&, of = chunk](const auto& known_wait) { return known_wait.first == of; });
      if (wait == bucket.waits.end()) {
        bucket.waits.emplace_back(chunk, position);
      } else {
        wait->second = std::max(wait->second, position);
      }
    }
  }
}

void RoleGradients::passed(std::int32_t chunk, std::int32_t position, std::int32_t instruction) {
  if (!plan_.overlap_gradient_reduce) return;
  for (Bucket& bucket : buckets_) {
    for (const auto& wait : bucket.waits) {
      if (wait == std::pair(chunk, position)) bucket.ready.push_back(instruction);
    }
  }
  // In one order on all ranks of a group, whichever chunk ends first on this one.
  while (reduced_ < buckets_.size() && buckets_[reduced_].ready.size() == buckets_[reduced_].waits.size()) {
    reduce(buckets_[reduced_], buckets_[reduced_].ready);
    ++reduced_;
  }
}

// Tells buckets of one block apart.
std::string RoleGradients::kind(const Bucket& bucket) const {
  const RoleParameter& parameter = parameters_[bucket.parameters.front()];
  if (parameter.of_expert) return "expert_";
  return stands_alone(parameter) ? "tied_" : "";
}

void RoleGradients::reduce(const Bucket& bucket, const std::vector<std::int32_t>& ready) {
  const bool scatter = shards(bucket.degree);
  Instruction& instruction = out_.open(kind(bucket) + (scatter ? "gradients.scatter" : "gradients.reduce"),
                                       kDataStream, Purpose::kGradientReduce);
  instruction.layer = parameters_[bucket.parameters.back()].block;
  instruction.work =
      Collective{scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, bucket.axis,
                 bucket.elements * size_bytes(plan_.gradient_dtype), plan_.gradient_dtype};
  for (const std::int32_t dependency : ready) out_.after(dependency);
  for (const std::size_t p : bucket.parameters) out_.touch(parameters_[p].gradient, true);
  last_reduce_ = out_.close();
}

// A further sum over few elements, after the data-parallel one: parameters that several ranks hold whole.
void RoleGradients::reduce_more(const std::string& label, LoweredStream stream, AxisId axis,
                                bool RoleParameter::* which) {
  std::int64_t elements = 0;
  for (const RoleParameter& parameter : parameters_)
    elements += parameter.*which ? own_elements(parameter) : 0;
  if (!axis.valid() || elements == 0) return;
  Instruction& instruction = out_.open(label, stream, Purpose::kGradientReduce);
  instruction.work = Collective{CollectiveKind::kAllReduce, axis, elements * size_bytes(plan_.gradient_dtype),
                                plan_.gradient_dtype};
  out_.after(last_reduce_ >= 0 ? last_reduce_ : out_.last_compute());
  for (const RoleParameter& parameter : parameters_) {
    if (parameter.*which) out_.touch(parameter.gradient, true);
  }
  last_extra_.push_back(out_.close());
}

void RoleGradients::finish() {
  if (!plan_.overlap_gradient_reduce) {
    for (const Bucket& bucket : buckets_) reduce(bucket, {out_.last_compute()});
  }
  reduce_more("replicated_gradients.reduce", kTensorStream, shape_.tensor, &RoleParameter::partial);
  reduce_more("embedding_gradient.reduce", kDataStream, shape_.embedding, &RoleParameter::tied);
  optimize();
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    if (shards(buckets_[i].degree)) gather(buckets_[i]);
  }
  for (const auto& [edge, bucket] : awaited_) {
    out_.role.edges[static_cast<std::size_t>(edge)].instruction = bucket->gather;
  }
}

// ---- Optimiser.

// fp32 master, m and v; fp32 training needs no second copy of the weights.
void RoleGradients::add_state_buffer(const std::string& label, std::int32_t layer, std::int64_t elements) {
  Buffer state;
  state.label = out_.symbols.label(label);
  state.layer = layer;
  state.category = MemoryCategory::kOptimizer;
  state.bytes = elements * (plan_.compute_dtype == DType::kFp32 ? 8 : 12);
  state.persistent = true;
  out_.role.buffers.push_back(state);
}

void RoleGradients::add_state_buffers() {
  for (const RoleParameter& parameter : parameters_) {
    const Buffer& weights = out_.role.buffers[static_cast<std::size_t>(parameter.weights)];
    const std::string name = out_.symbols.labels[weights.label.index()] + ".optimizer";
    add_state_buffer(name, weights.layer, own_elements(parameter));
  }
}

std::int32_t RoleGradients::optimizer_compute(const std::string& label, KernelKind kind, std::int64_t read,
                                              std::int64_t written,
                                              const std::vector<std::int32_t>& dependencies) {
  Instruction& instruction = out_.open(label, kComputeStream, Purpose::kOptimizer);
  Kernel kernel;
  kernel.label = instruction.label;
  kernel.kind = kind;
  kernel.dtype = DType::kFp32;
  kernel.read_bytes = read;
  kernel.written_bytes = written;
  instruction.work = Compute{out_.symbols.kernel(kernel)};
  for (const std::int32_t dependency : dependencies) out_.after(dependency);
  for (std::size_t b = 0; b < out_.role.buffers.size(); ++b) {
    const MemoryCategory category = out_.role.buffers[b].category;
    const bool gradients = category == MemoryCategory::kGradients;
    const bool state = category == MemoryCategory::kOptimizer || category == MemoryCategory::kParameters;
    if (out_.role.buffers[b].persistent && (gradients || (state && kind == KernelKind::kOptimizer))) {
      out_.touch(static_cast<std::int32_t>(b), !gradients);
    }
  }
  return out_.close();
}

void RoleGradients::optimize() {
  add_state_buffers();
  std::vector<std::int32_t> dependencies = last_extra_;
  if (last_reduce_ >= 0) dependencies.push_back(last_reduce_);
  const std::int64_t own = own_elements();
  const std::int64_t gradient_bytes = own * size_bytes(plan_.gradient_dtype);
  if (plan_.clip_gradients) {
    const std::int32_t norm =
        optimizer_compute("gradient_norm", KernelKind::kElementwise, gradient_bytes, 0, dependencies);
    dependencies = {shape_.world.valid() ? reduce_norm(norm) : norm};
  }
  // AdamW reads the gradient and its state, writes the state and the compute copy of the weights.
  const bool fp32 = plan_.compute_dtype == DType::kFp32;
  const std::int64_t weights = fp32 ? 0 : size_bytes(plan_.compute_dtype);
  updated_ = optimizer_compute("adamw", KernelKind::kOptimizer, gradient_bytes + own * 12,
                               own * (12 + weights), dependencies);
}

std::int32_t RoleGradients::reduce_norm(std::int32_t norm) {
  Instruction& instruction = out_.open("gradient_norm.reduce", kDataStream, Purpose::kGradientReduce);
  instruction.work =
      Collective{CollectiveKind::kAllReduce, shape_.world, size_bytes(DType::kFp32), DType::kFp32};
  out_.after(norm);
  return out_.close();
}

// ---- ZeRO-1: the updated shards come back, bucket by bucket in the order of the next forward.

void RoleGradients::gather(Bucket& bucket) {
  Instruction& instruction =
      out_.open(kind(bucket) + "parameters.gather", kDataStream, Purpose::kParameterGather);
  instruction.layer = parameters_[bucket.parameters.back()].block;
  instruction.work = Collective{CollectiveKind::kAllGather, bucket.axis,
                                bucket.elements * size_bytes(plan_.compute_dtype), plan_.compute_dtype};
  out_.after(updated_);
  for (const std::size_t p : bucket.parameters) out_.touch(parameters_[p].weights, true);
  bucket.gather = out_.close();
}

// The edge is completed when the gather has an index.
void RoleGradients::await(const Bucket& bucket) {
  awaited_.emplace_back(static_cast<std::int32_t>(out_.role.edges.size()), &bucket);
  out_.after_previous_step(-1);
}

void RoleGradients::await_parameters(const std::vector<std::int32_t>& blocks, bool first_of_chunk) {
  const auto gathered = [&](const Bucket& bucket) { return shards(bucket.degree); };
  if (!plan_.overlap_parameter_gather) {
    const auto last = std::find_if(buckets_.begin(), buckets_.end(), gathered);
    if (first_of_chunk && last != buckets_.end()) await(*last);
    return;
  }
  for (const Bucket& bucket : buckets_) {
    if (!gathered(bucket)) continue;
    const bool holds = std::any_of(bucket.parameters.begin(), bucket.parameters.end(), [&](std::size_t p) {
      return std::any_of(blocks.begin(), blocks.end(), [&](std::int32_t block) {
        return block == parameters_[p].block || block == parameters_[p].last_block;
      });
    });
    if (holds) await(bucket);
  }
}

}  // namespace orrery
