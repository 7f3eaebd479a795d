#include "planner/role_builder.hpp"

#include <algorithm>
#include <cassert>

#include "planner/schedule.hpp"

namespace orrery {
namespace {

// Consecutive blocks whose gradients travel together.
struct Bucket {
  std::int32_t first_block = 0, last_block = 0;
  std::int64_t elements = 0;
  AxisId axis;
  std::int32_t ready = -1;   // In the backward template.
  std::int32_t gather = -1;  // Instruction that brings the updated parameters back (ZeRO-1).
};

class RoleBuilder {
 public:
  RoleBuilder(const Plan& plan, const StageTemplate& stage, const RoleShape& shape, SymbolTable& symbols)
      : plan_(plan), stage_(stage), shape_(shape), symbols_(symbols) {}

  Role build() {
    role_.streams = lowered_streams();
    role_.buffers = stage_.persistent_buffers;
    microbatch_base_.assign(static_cast<std::size_t>(shape_.microbatches), -1);
    make_buckets();
    const auto order = stage_order(plan_.schedule, shape_.stage, shape_.stages, shape_.microbatches);
    reserve(order.size());
    std::int32_t received = receive(order[0]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      // The next input may arrive while this item is computed: one buffer ahead.
      const std::int32_t next = i + 1 < order.size() ? receive(order[i + 1]) : -1;
      run(order[i], received, i == 0, i + 1 == order.size());
      received = next;
    }
    finish_gradients();
    optimize();
    gather_parameters();
    return std::move(role_);
  }

 private:
  bool first_stage() const { return shape_.stage == 0; }
  bool last_stage() const { return shape_.stage + 1 == shape_.stages; }
  bool sharded_optimizer() const { return plan_.zero_stage >= 1 && shape_.replicas > 1; }
  std::int64_t shard(std::int64_t elements) const {
    return sharded_optimizer() ? (elements + shape_.replicas - 1) / shape_.replicas : elements;
  }

  void reserve(std::size_t items) {
    const std::size_t instructions = items / 2 * (stage_.forward.size() + stage_.backward.size() + 4) + 64;
    role_.instructions.reserve(instructions);
    role_.edges.reserve(2 * instructions);
    role_.operands.reserve(5 * instructions);
    role_.buffers.reserve(role_.buffers.size() + items / 2 * stage_.microbatch_buffers.size() + 64);
  }

  // ---- Instructions.

  Instruction start(const std::string& label, LoweredStream stream, Purpose purpose) {
    Instruction instruction;
    instruction.label = symbols_.label(label);
    instruction.stream = StreamId(stream);
    instruction.purpose = purpose;
    return instruction;
  }

  // Closes the edge and operand ranges opened at `edges` and `operands`.
  std::int32_t append(Instruction instruction, std::size_t edges, std::size_t operands) {
    instruction.after = {static_cast<std::int32_t>(edges), static_cast<std::int32_t>(role_.edges.size())};
    instruction.operands = {static_cast<std::int32_t>(operands),
                            static_cast<std::int32_t>(role_.operands.size())};
    const auto index = static_cast<std::int32_t>(role_.instructions.size());
    if (instruction.stream.value == kComputeStream) last_compute_ = index;
    role_.instructions.push_back(instruction);
    return index;
  }

  void after(std::int32_t instruction) {
    if (instruction >= 0) role_.edges.push_back({instruction, false});
  }

  void touch(std::int32_t buffer, bool writes) { role_.operands.push_back({BufferId(buffer), writes}); }

  // ---- Micro-batches.

  std::int32_t microbatch_buffer(std::int32_t microbatch, std::int32_t buffer) {
    std::int32_t& base = microbatch_base_[static_cast<std::size_t>(microbatch)];
    if (base < 0) {
      base = static_cast<std::int32_t>(role_.buffers.size());
      for (Buffer copy : stage_.microbatch_buffers) {
        copy.microbatch = microbatch;
        role_.buffers.push_back(copy);
      }
    }
    return base + buffer;
  }

  // Posts the receive that `item` needs, from the end of what has been computed so far; −1: it needs none.
  std::int32_t receive(const ScheduleItem& item) {
    const bool needed = item.forward ? !first_stage() : !last_stage();
    if (!needed) return -1;
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start(item.forward ? "forward.recv" : "backward.recv",
                                    item.forward ? kRecvForward : kRecvBackward, Purpose::kPipeline);
    instruction.microbatch = item.microbatch;
    const std::int64_t bytes = item.forward ? stage_.input_bytes : stage_.output_bytes;
    instruction.work = Recv{shape_.pipeline, item.forward ? -1 : +1, bytes};
    after(last_compute_);
    touch(microbatch_buffer(item.microbatch,
                            item.forward ? stage_.input_buffer : stage_.output_gradient_buffer),
          true);
    return append(instruction, edges, operands);
  }

  void send(const ScheduleItem& item, std::int32_t ready) {
    if (item.forward ? last_stage() : first_stage()) return;
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start(item.forward ? "forward.send" : "backward.send",
                                    item.forward ? kSendForward : kSendBackward, Purpose::kPipeline);
    instruction.microbatch = item.microbatch;
    const std::int64_t bytes = item.forward ? stage_.output_bytes : stage_.input_bytes;
    instruction.work = Send{shape_.pipeline, item.forward ? +1 : -1, bytes};
    after(ready);
    for (const std::int32_t buffer : item.forward ? stage_.output_buffers : stage_.input_gradient_buffers) {
      touch(microbatch_buffer(item.microbatch, buffer), false);
    }
    append(instruction, edges, operands);
  }

  void run(const ScheduleItem& item, std::int32_t received, bool first, bool last) {
    const std::vector<TemplateInstruction>& list = item.forward ? stage_.forward : stage_.backward;
    placed_.resize(list.size());
    for (std::size_t t = 0; t < list.size(); ++t) {
      const TemplateInstruction& planned = list[t];
      const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
      Instruction instruction;
      instruction.label = planned.label;
      instruction.layer = planned.layer;
      instruction.microbatch = item.microbatch;
      instruction.stream = StreamId(planned.stream);
      instruction.purpose = planned.purpose;
      instruction.work = planned.work;
      for (const std::int32_t dependency : planned.after)
        after(placed_[static_cast<std::size_t>(dependency)]);
      if (planned.reads_input) after(received);
      if (first) await_parameters(planned, t == 0);
      for (const TemplateOperand& operand : planned.operands) {
        touch(operand.persistent ? operand.buffer : microbatch_buffer(item.microbatch, operand.buffer),
              operand.writes);
      }
      placed_[t] = append(instruction, edges, operands);
      if (last && plan_.overlap_gradient_reduce) reduce_ready(static_cast<std::int32_t>(t));
    }
    const std::int32_t ready = item.forward ? stage_.output_ready : stage_.input_gradient_ready;
    send(item, ready < 0 ? -1 : placed_[static_cast<std::size_t>(ready)]);
  }

  // ---- Gradients.

  void make_buckets() {
    if (shape_.replicas < 2) return;
    for (std::int32_t block = shape_.blocks.last - 1; block >= shape_.blocks.first; --block) {
      const auto local = static_cast<std::size_t>(block - shape_.blocks.first);
      const std::int64_t elements = stage_.parameter_elements[local];
      if (elements == 0) continue;
      const std::int64_t full = plan_.bucket_bytes / size_bytes(plan_.gradient_dtype);
      const bool joins = !buckets_.empty() && buckets_.back().axis == shape_.gradient[local] &&
                         buckets_.back().elements + elements <= full;
      if (!joins) buckets_.push_back({block, block + 1, 0, shape_.gradient[local], -1, -1});
      Bucket& bucket = buckets_.back();
      bucket.first_block = block;
      bucket.elements += elements;
      bucket.ready = std::max(bucket.ready, stage_.gradients_ready[local]);
    }
  }

  void reduce_ready(std::int32_t template_index) {
    for (const Bucket& bucket : buckets_) {
      if (bucket.ready == template_index) reduce(bucket, placed_[static_cast<std::size_t>(template_index)]);
    }
  }

  void reduce(const Bucket& bucket, std::int32_t ready) {
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    const bool scatter = sharded_optimizer();
    Instruction instruction =
        start(scatter ? "gradients.scatter" : "gradients.reduce", kDataStream, Purpose::kGradientReduce);
    instruction.layer = bucket.first_block;
    instruction.work =
        Collective{scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, bucket.axis,
                   bucket.elements * size_bytes(plan_.gradient_dtype), plan_.gradient_dtype};
    after(ready);
    for (std::int32_t block = bucket.first_block; block < bucket.last_block; ++block) {
      for (const std::int32_t buffer : stage_.gradient_buffers[local(block)]) touch(buffer, true);
    }
    last_reduce_ = append(instruction, edges, operands);
  }

  std::size_t local(std::int32_t block) const {
    return static_cast<std::size_t>(block - shape_.blocks.first);
  }

  // A further sum over few elements, after the data-parallel one: parameters that several ranks hold whole.
  void reduce_more(const std::string& label, LoweredStream stream, AxisId axis, std::int64_t elements) {
    if (!axis.valid() || elements == 0) return;
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start(label, stream, Purpose::kGradientReduce);
    instruction.work = Collective{CollectiveKind::kAllReduce, axis,
                                  shard(elements) * size_bytes(plan_.gradient_dtype), plan_.gradient_dtype};
    after(last_reduce_ >= 0 ? last_reduce_ : last_compute_);
    last_extra_.push_back(append(instruction, edges, operands));
  }

  void finish_gradients() {
    if (!plan_.overlap_gradient_reduce) {
      for (const Bucket& bucket : buckets_) reduce(bucket, last_compute_);
    }
    reduce_more("replicated_gradients.reduce", kTensorStream, shape_.tensor,
                stage_.partial_gradient_elements);
    if (first_stage() || last_stage()) {
      reduce_more("embedding_gradient.reduce", kDataStream, shape_.embedding, stage_.tied_elements);
    }
  }

  // ---- Optimiser.

  std::int64_t elements() const {
    std::int64_t total = 0;
    for (const std::int64_t block : stage_.parameter_elements) total += block;
    return total;
  }

  std::int32_t optimizer_compute(const std::string& label, KernelKind kind, std::int64_t read,
                                 std::int64_t written, const std::vector<std::int32_t>& dependencies) {
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start(label, kComputeStream, Purpose::kOptimizer);
    Kernel kernel;
    kernel.label = instruction.label;
    kernel.kind = kind;
    kernel.dtype = DType::kFp32;
    kernel.read_bytes = read;
    kernel.written_bytes = written;
    instruction.work = Compute{symbols_.kernel(kernel)};
    for (const std::int32_t dependency : dependencies) after(dependency);
    for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
      const MemoryCategory category = role_.buffers[b].category;
      const bool gradients = category == MemoryCategory::kGradients;
      const bool state = category == MemoryCategory::kOptimizer || category == MemoryCategory::kParameters;
      if (role_.buffers[b].persistent && (gradients || (state && kind == KernelKind::kOptimizer))) {
        touch(static_cast<std::int32_t>(b), !gradients);
      }
    }
    return append(instruction, edges, operands);
  }

  // fp32 master, m and v; fp32 training needs no second copy of the weights.
  std::int64_t state_bytes_per_element() const { return plan_.compute_dtype == DType::kFp32 ? 8 : 12; }

  void add_optimizer_buffers() {
    const std::size_t stage_buffers = stage_.persistent_buffers.size();
    for (std::size_t b = 0; b < stage_buffers; ++b) {
      const Buffer& parameter = stage_.persistent_buffers[b];
      if (parameter.category != MemoryCategory::kParameters) continue;
      Buffer state = parameter;
      state.label = symbols_.label(symbols_.labels[parameter.label.index()] + ".optimizer");
      state.category = MemoryCategory::kOptimizer;
      state.bytes = shard(parameter.bytes / size_bytes(plan_.compute_dtype)) * state_bytes_per_element();
      role_.buffers.push_back(state);
    }
  }

  void optimize() {
    add_optimizer_buffers();
    std::vector<std::int32_t> dependencies = last_extra_;
    if (last_reduce_ >= 0) dependencies.push_back(last_reduce_);
    const std::int64_t own = shard(elements());
    const std::int64_t gradient_bytes = own * size_bytes(plan_.gradient_dtype);
    if (plan_.clip_gradients) {
      const std::int32_t norm =
          optimizer_compute("gradient_norm", KernelKind::kElementwise, gradient_bytes, 0, dependencies);
      dependencies = {norm};
      if (shape_.world.valid()) dependencies = {reduce_norm(norm)};
    }
    // AdamW reads the gradient and its state, writes the state and the compute copy of the weights.
    const std::int64_t weights = plan_.compute_dtype == DType::kFp32 ? 0 : size_bytes(plan_.compute_dtype);
    const std::int64_t state = plan_.compute_dtype == DType::kFp32 ? 12 : state_bytes_per_element();
    updated_ = optimizer_compute("adamw", KernelKind::kOptimizer, gradient_bytes + own * state,
                                 own * (state + weights), dependencies);
  }

  std::int32_t reduce_norm(std::int32_t norm) {
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start("gradient_norm.reduce", kDataStream, Purpose::kGradientReduce);
    instruction.work =
        Collective{CollectiveKind::kAllReduce, shape_.world, size_bytes(DType::kFp32), DType::kFp32};
    after(norm);
    return append(instruction, edges, operands);
  }

  // ---- ZeRO-1: the updated shards come back, block by block in the order of the next forward.

  void gather_parameters() {
    if (sharded_optimizer()) {
      for (std::size_t i = buckets_.size(); i-- > 0;) gather(buckets_[i]);
    }
    for (const auto& [edge, block] : awaited_) {
      const Bucket& bucket = plan_.overlap_parameter_gather ? bucket_of(block) : buckets_.front();
      role_.edges[static_cast<std::size_t>(edge)].instruction = bucket.gather;
    }
  }

  void gather(Bucket& bucket) {
    const std::size_t edges = role_.edges.size(), operands = role_.operands.size();
    Instruction instruction = start("parameters.gather", kDataStream, Purpose::kParameterGather);
    instruction.layer = bucket.first_block;
    instruction.work = Collective{CollectiveKind::kAllGather, bucket.axis,
                                  bucket.elements * size_bytes(plan_.compute_dtype), plan_.compute_dtype};
    after(updated_);
    for (std::int32_t block = bucket.first_block; block < bucket.last_block; ++block) {
      for (const std::int32_t buffer : stage_.parameter_buffers[local(block)]) touch(buffer, true);
    }
    bucket.gather = append(instruction, edges, operands);
  }

  const Bucket& bucket_of(std::int32_t block) const {
    return *std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& bucket) {
      return block >= bucket.first_block && block < bucket.last_block;
    });
  }

  // In the first forward of a step, the first reader of a block waits for the last step's gather. The edge is
  // completed when the gather has an index.
  void await_parameters(const TemplateInstruction& planned, bool first_instruction) {
    if (!sharded_optimizer() || buckets_.empty()) return;
    const auto await = [&](std::int32_t block) {
      awaited_.emplace_back(static_cast<std::int32_t>(role_.edges.size()), block);
      role_.edges.push_back({-1, true});
    };
    if (!plan_.overlap_parameter_gather) {
      if (first_instruction) await(-1);
      return;
    }
    for (const std::int32_t block : planned.new_blocks) await(block);
  }

  const Plan& plan_;
  const StageTemplate& stage_;
  const RoleShape& shape_;
  SymbolTable& symbols_;

  Role role_;
  std::vector<std::int32_t> microbatch_base_;  // First of its buffers, by micro-batch; −1: none yet.
  std::vector<std::int32_t> placed_;           // Template index → instruction, in the current item.
  std::vector<Bucket> buckets_;                // In backward order.
  std::vector<std::pair<std::int32_t, std::int32_t>> awaited_;  // Edge, block.
  std::int32_t last_compute_ = -1;
  std::int32_t last_reduce_ = -1;
  std::vector<std::int32_t> last_extra_;
  std::int32_t updated_ = -1;
};

}  // namespace

Role build_role(const Plan& plan, const StageTemplate& stage, const RoleShape& shape, SymbolTable& symbols) {
  return RoleBuilder(plan, stage, shape, symbols).build();
}

}  // namespace orrery
