#include "planner/stage_template.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <unordered_map>

#include "planner/launch.hpp"

namespace orrery {
namespace {

constexpr std::int32_t kStreams = kDataStream + 1;

// "layer3.qkv" → "qkv", "d_layer3.qkv" → "d_qkv": the layer is a field of the instruction.
std::string short_name(const std::string& name) {
  const std::string gradient = name.starts_with("d_") ? "d_" : "";
  const std::string rest = name.substr(gradient.size());
  const std::size_t dot = rest.find('.');
  if (!rest.starts_with("layer") || dot == std::string::npos) return name;
  const std::string digits = rest.substr(5, dot - 5);
  const bool numbered = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  return numbered ? gradient + rest.substr(dot + 1) : name;
}

// Where a tensor is while a list is being built.
struct Place {
  std::int32_t buffer = -1;
  bool persistent = false;
  std::int32_t ready = -1;  // Instruction of the current list that makes it; −1: it is there already.
};

class StageBuilder {
 public:
  StageBuilder(const Graph& graph, const GraphIndex& index, const Plan& plan, const Sharding& sharding,
               const KernelSet& kernels, BlockRange blocks, AxisId tensor_axis, SymbolTable& symbols)
      : graph_(graph),
        index_(index),
        plan_(plan),
        sharding_(sharding),
        kernels_(kernels),
        blocks_(blocks),
        tensor_axis_(tensor_axis),
        symbols_(symbols) {}

  StageTemplate build() {
    const auto count = static_cast<std::size_t>(blocks_.last - blocks_.first);
    stage_.gradients_ready.assign(count, -1);
    stage_.parameter_elements.assign(count, 0);
    stage_.gradient_buffers.resize(count);
    stage_.parameter_buffers.resize(count);
    add_parameters();
    build_forward();
    build_backward();
    return std::move(stage_);
  }

 private:
  // ---- Persistent buffers.

  void add_parameters() {
    for (std::int32_t block = blocks_.first; block < blocks_.last; ++block) {
      for (const OpId op : index_.forward[static_cast<std::size_t>(block)]) {
        for (const TensorId input : graph_[op].inputs) {
          if (graph_[input].kind == TensorKind::kParameter && !places_.contains(input.value)) {
            add_parameter(input, block);
          }
        }
      }
    }
  }

  void add_parameter(TensorId parameter, std::int32_t block) {
    const auto local = static_cast<std::size_t>(block - blocks_.first);
    const std::int64_t elements = sharding_.stored_elements(parameter);
    const std::string name = short_name(graph_[parameter].name);
    const auto add = [&](const std::string& label, MemoryCategory category, std::int64_t bytes) {
      Buffer buffer;
      buffer.label = symbols_.label(label);
      buffer.layer = block;
      buffer.category = category;
      buffer.bytes = bytes;
      buffer.persistent = true;
      stage_.persistent_buffers.push_back(buffer);
      return static_cast<std::int32_t>(std::ssize(stage_.persistent_buffers) - 1);
    };
    const std::int32_t weights =
        add(name, MemoryCategory::kParameters, elements * size_bytes(plan_.compute_dtype));
    const std::int32_t gradient =
        add(name + ".gradient", MemoryCategory::kGradients, elements * size_bytes(plan_.gradient_dtype));
    places_[parameter.value] = {weights, true, -1};
    gradient_of_[parameter.value] = gradient;
    owner_[parameter.value] = block;
    stage_.parameter_elements[local] += elements;
    stage_.parameter_buffers[local].push_back(weights);
    stage_.gradient_buffers[local].push_back(gradient);
    if (is_tied(parameter)) stage_.tied_elements += elements;
  }

  // Used on both ends of the pipeline: by the embedding and by the head.
  bool is_tied(TensorId parameter) const {
    bool first = false, last = false;
    for (const OpId reader : index_.readers[parameter.index()]) {
      if (graph_[reader].phase != Phase::kForward) continue;
      first = first || graph_[reader].block == 0;
      last = last || graph_[reader].block == graph_.block_count() - 1;
    }
    return first && last;
  }

  // ---- Buffers of a micro-batch.

  std::int32_t add_buffer(const std::string& name, std::int32_t layer, MemoryCategory category,
                          std::int64_t bytes) {
    Buffer buffer;
    buffer.label = symbols_.label(name);
    buffer.layer = layer;
    buffer.category = category;
    buffer.bytes = bytes;
    stage_.microbatch_buffers.push_back(buffer);
    return static_cast<std::int32_t>(std::ssize(stage_.microbatch_buffers) - 1);
  }

  // Inputs that nobody in this stage makes: token ids, labels, and what neighbours send.
  Place& place_of(TensorId tensor) {
    const auto found = places_.find(tensor.value);
    if (found != places_.end()) return found->second;
    const Tensor& data = graph_[tensor];
    Place place;
    const bool from_neighbour = data.kind == TensorKind::kActivation || data.kind == TensorKind::kGradient;
    const std::string name = short_name(data.name) + (from_neighbour ? ".received" : "");
    const bool gradient = data.kind == TensorKind::kGradient;
    place.buffer =
        add_buffer(name, data.block, gradient ? MemoryCategory::kWorkspace : MemoryCategory::kActivations,
                   sharding_.stored_bytes(tensor));
    if (data.kind == TensorKind::kActivation) {
      stage_.input_bytes += sharding_.stored_bytes(tensor);
      stage_.input_buffer = place.buffer;
      received_.push_back(tensor);
    } else if (data.kind == TensorKind::kGradient) {
      stage_.output_gradient_buffer = place.buffer;
      received_.push_back(tensor);
    }
    return places_.emplace(tensor.value, place).first->second;
  }

  // ---- Instructions.

  void start_list(std::vector<TemplateInstruction>& list) {
    list_ = &list;
    for (auto& [tensor, place] : places_) place.ready = -1;
    gathered_.clear();
    received_read_.fill(false);
  }

  std::int32_t append(TemplateInstruction instruction) {
    list_->push_back(std::move(instruction));
    return static_cast<std::int32_t>(std::ssize(*list_) - 1);
  }

  void depend(TemplateInstruction& instruction, std::int32_t on) const {
    if (on < 0 || (*list_)[static_cast<std::size_t>(on)].stream == instruction.stream) return;
    if (std::find(instruction.after.begin(), instruction.after.end(), on) == instruction.after.end()) {
      instruction.after.push_back(on);
    }
  }

  static void touch(TemplateInstruction& instruction, TemplateOperand operand) {
    for (TemplateOperand& known : instruction.operands) {
      if (known.buffer == operand.buffer && known.persistent == operand.persistent) {
        known.writes = known.writes || operand.writes;
        return;
      }
    }
    instruction.operands.push_back(operand);
  }

  void read(TemplateInstruction& instruction, TensorId tensor) {
    const Place& place = place_of(tensor);
    depend(instruction, place.ready);
    touch(instruction, {place.buffer, place.persistent, false});
    if (std::find(received_.begin(), received_.end(), tensor) != received_.end() &&
        !received_read_[static_cast<std::size_t>(instruction.stream)]) {
      received_read_[static_cast<std::size_t>(instruction.stream)] = true;
      instruction.reads_input = true;
    }
  }

  TemplateInstruction collective(const std::string& name, std::int32_t layer, CollectiveKind kind,
                                 std::int64_t bytes, DType dtype) {
    TemplateInstruction instruction;
    instruction.label = symbols_.label(name);
    instruction.layer = layer;
    instruction.stream = kTensorStream;
    instruction.purpose =
        kind == CollectiveKind::kAllReduce ? Purpose::kTensorParallel : Purpose::kSequenceParallel;
    instruction.work = Collective{kind, tensor_axis_, bytes, dtype};
    return instruction;
  }

  // The whole sequence of a scattered tensor; gathered once per block and phase, as Megatron-LM does (keeping
  // it from forward to backward would cost its memory).
  Place gathered(TensorId tensor, std::int32_t block, std::int32_t not_before) {
    const auto found = gathered_.find(tensor.value);
    if (found != gathered_.end()) return found->second;
    const std::int64_t bytes = sharding_.gathered_bytes(tensor);
    const bool again =
        list_ == &stage_.backward && prefix_.empty() && graph_[tensor].kind == TensorKind::kActivation;
    const std::string name =
        prefix_ + short_name(graph_[tensor].name) + (again ? ".gather_again" : ".gather");
    TemplateInstruction gather =
        collective(name, block, CollectiveKind::kAllGather, bytes, graph_[tensor].dtype);
    read(gather, tensor);
    depend(gather, not_before);
    Place place;
    place.buffer = add_buffer(name + ".whole", block, MemoryCategory::kCommunication, bytes);
    touch(gather, {place.buffer, false, true});
    place.ready = append(std::move(gather));
    gathered_[tensor.value] = place;
    return place;
  }

  std::int32_t last_compute() const {
    for (std::int32_t i = static_cast<std::int32_t>(std::ssize(*list_)) - 1; i >= 0; --i) {
      if ((*list_)[static_cast<std::size_t>(i)].stream == kComputeStream) return i;
    }
    return -1;
  }

  void gather_inputs(OpId op, std::int32_t not_before) {
    for (const TensorId input : graph_[op].inputs) {
      if (sharding_.degree() > 1 && sharding_.gathers(op, input))
        gathered(input, graph_[op].block, not_before);
    }
  }

  // The weight's gradient needs its input's whole sequence too: gather it while the input's gradient is
  // computed.
  void gather_ahead(const Launch& launch, const Launch* next) {
    if (next == nullptr) return;
    const Op& op = graph_[launch.ops.front()];
    const Op& following = graph_[next->ops.front()];
    if (op.kind == OpKind::kMatmulGradInput && following.kind == OpKind::kMatmulGradWeight &&
        op.forward_of == following.forward_of) {
      gather_inputs(next->ops.front(), last_compute());
    }
  }

  MemoryCategory category_of(TensorId tensor) const {
    return graph_[tensor].kind == TensorKind::kGradient ? MemoryCategory::kWorkspace
                                                        : MemoryCategory::kActivations;
  }

  void emit(const Launch& launch, const Launch* next, Purpose purpose) {
    for (const OpId op : launch.ops) gather_inputs(op, -1);
    gather_ahead(launch, next);

    const Op& first = graph_[launch.ops.front()];
    TemplateInstruction compute;
    std::string name = prefix_ + short_name(first.name);
    for (std::size_t i = 1; i < launch.ops.size(); ++i) name += "+" + short_name(graph_[launch.ops[i]].name);
    compute.label = symbols_.label(name);
    compute.layer = first.block;
    compute.purpose = purpose;
    Kernel kernel = launch_kernel(graph_, index_, plan_, sharding_, launch);
    kernel.label = compute.label;
    compute.work = Compute{symbols_.kernel(kernel)};

    for (const OpId op : launch.ops) read_inputs(op, launch, compute);
    std::vector<std::pair<OpId, TensorId>> partial;
    for (const OpId op : launch.ops) write_outputs(op, compute, partial);
    const std::int32_t made = append(std::move(compute));
    for (const OpId op : launch.ops) settle_outputs(op, made);
    for (const auto& [op, tensor] : partial) reduce(op, tensor, made);
    if (sharding_.degree() > 1 && first.kind == OpKind::kCrossEntropy) reduce_loss(first, made);
  }

  void read_inputs(OpId id, const Launch& launch, TemplateInstruction& compute) {
    for (const TensorId input : graph_[id].inputs) {
      const OpId producer = graph_[input].producer;
      if (std::find(launch.ops.begin(), launch.ops.end(), producer) != launch.ops.end() && producer.valid())
        continue;
      const auto whole = gathered_.find(input.value);
      if (sharding_.gathers(id, input) && whole != gathered_.end()) {
        depend(compute, whole->second.ready);
        touch(compute, {whole->second.buffer, false, false});
      } else {
        read(compute, input);
      }
      if (graph_[input].kind == TensorKind::kParameter) note_new_block(input, compute);
    }
  }

  void note_new_block(TensorId parameter, TemplateInstruction& compute) {
    const std::int32_t block = owner_.at(parameter.value);
    if (seen_blocks_.insert_if_new(block)) compute.new_blocks.push_back(block);
  }

  void write_outputs(OpId id, TemplateInstruction& compute, std::vector<std::pair<OpId, TensorId>>& partial) {
    const Op& op = graph_[id];
    for (const TensorId output : op.outputs) {
      const Tensor& data = graph_[output];
      if (data.kind == TensorKind::kParameterGradient) {
        touch(compute, {gradient_of_.at(data.gradient_of.value), true, true});
        if (sharding_.partial_gradient(id, output)) {
          stage_.partial_gradient_elements += sharding_.stored_elements(output);
        }
        continue;
      }
      Place place;
      place.buffer = add_buffer(prefix_ + short_name(data.name), op.block, category_of(output),
                                sharding_.stored_bytes(output));
      places_[output.value] = place;
      if (sharding_.reduces(id, output)) {
        partial.emplace_back(id, output);
      } else {
        touch(compute, {place.buffer, false, true});
      }
    }
  }

  void settle_outputs(OpId id, std::int32_t made) {
    for (const TensorId output : graph_[id].outputs) {
      const Tensor& data = graph_[output];
      if (data.kind == TensorKind::kParameterGradient) {
        const auto block = static_cast<std::size_t>(owner_.at(data.gradient_of.value) - blocks_.first);
        stage_.gradients_ready[block] = std::max(stage_.gradients_ready[block], made);
      } else {
        places_.at(output.value).ready = made;
      }
    }
  }

  // Sums a partial output over the group: in place, or to each rank's part of the sequence.
  void reduce(OpId id, TensorId output, std::int32_t made) {
    const Op& op = graph_[id];
    const bool scatter = sharding_.scattered(output);
    const std::int64_t bytes = sharding_.gathered_bytes(output);
    const std::string name = prefix_ + short_name(op.name) + (scatter ? ".scatter" : ".reduce");
    TemplateInstruction sum =
        collective(name, op.block, scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                   bytes, graph_[output].dtype);
    Place& place = places_.at(output.value);
    std::int32_t source = place.buffer;
    if (scatter) {
      source = add_buffer(prefix_ + short_name(graph_[output].name) + ".partial", op.block,
                          MemoryCategory::kCommunication, bytes);
    }
    touch((*list_)[static_cast<std::size_t>(made)], {source, false, true});
    depend(sum, made);
    touch(sum, {source, false, false});
    touch(sum, {place.buffer, false, true});
    place.ready = append(std::move(sum));
  }

  // Vocabulary-parallel loss: maximum, the label's logit, and the sum of exponentials, each an fp32 per token
  // (Shoeybi et al. 2019, §3).
  void reduce_loss(const Op& op, std::int32_t made) {
    const TensorId log_sum = op.outputs[1];
    const std::int64_t bytes = sharding_.gathered_bytes(log_sum);
    for (const char* part : {"max", "label", "sum"}) {
      TemplateInstruction sum = collective(prefix_ + short_name(op.name) + "." + part, op.block,
                                           CollectiveKind::kAllReduce, bytes, DType::kFp32);
      depend(sum, made);
      touch(sum, {places_.at(log_sum.value).buffer, false, true});
      places_.at(log_sum.value).ready = append(std::move(sum));
    }
  }

  // ---- Lists.

  void emit_all(const std::vector<Launch>& launches, Purpose purpose) {
    std::int32_t block = -1;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const std::int32_t of_launch = graph_[launches[i].ops.front()].block;
      if (of_launch != block) gathered_.clear();
      block = of_launch;
      emit(launches[i], i + 1 < launches.size() ? &launches[i + 1] : nullptr, purpose);
    }
  }

  void build_forward() {
    start_list(stage_.forward);
    std::vector<OpId> ops;
    for (std::int32_t block = blocks_.first; block < blocks_.last; ++block) {
      const auto& of_block = index_.forward[static_cast<std::size_t>(block)];
      ops.insert(ops.end(), of_block.begin(), of_block.end());
    }
    // A recomputed layer starts from its input alone, so its first norm can't hang on the layer before.
    const bool across_blocks = plan_.recompute == Recompute::kNone;
    emit_all(cut_launches(graph_, ops, kernels_, across_blocks), Purpose::kForward);
    for (const OpId op : ops) {
      for (const TensorId output : graph_[op].outputs) note_forward_output(output);
    }
  }

  void note_forward_output(TensorId tensor) {
    const auto& readers = index_.readers[tensor.index()];
    const bool leaves = std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
      return graph_[reader].phase == Phase::kForward && !blocks_.contains(graph_[reader].block);
    });
    if (!leaves) return;
    stage_.output_bytes += sharding_.stored_bytes(tensor);
    stage_.output_buffers.push_back(places_.at(tensor.value).buffer);
    stage_.output_ready = std::max(stage_.output_ready, places_.at(tensor.value).ready);
  }

  void build_backward() {
    start_list(stage_.backward);
    received_.clear();
    for (std::int32_t block = blocks_.last - 1; block >= blocks_.first; --block) {
      const bool is_layer = block >= 1 && block <= graph_.layers;
      if (plan_.recompute == Recompute::kFull && is_layer) recompute(block);
      const std::vector<OpId>& ops = index_.backward[static_cast<std::size_t>(block)];
      emit_all(cut_launches(graph_, ops, kernels_, false), Purpose::kBackward);
      for (const OpId op : ops) {
        for (const TensorId output : graph_[op].outputs) note_backward_output(output);
      }
    }
  }

  void recompute(std::int32_t block) {
    prefix_ = "recompute.";
    gathered_.clear();
    emit_all(cut_launches(graph_, index_.forward[static_cast<std::size_t>(block)], kernels_, false),
             Purpose::kRecompute);
    gathered_.clear();
    prefix_.clear();
  }

  void note_backward_output(TensorId tensor) {
    if (graph_[tensor].kind != TensorKind::kGradient) return;
    const auto& readers = index_.readers[tensor.index()];
    const bool leaves = std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
      return graph_[reader].phase == Phase::kBackward && !blocks_.contains(graph_[reader].block);
    });
    if (!leaves) return;
    stage_.input_gradient_buffers.push_back(places_.at(tensor.value).buffer);
    stage_.input_gradient_ready = std::max(stage_.input_gradient_ready, places_.at(tensor.value).ready);
  }

  struct SmallSet {
    std::vector<std::int32_t> values;
    bool insert_if_new(std::int32_t value) {
      if (std::find(values.begin(), values.end(), value) != values.end()) return false;
      values.push_back(value);
      return true;
    }
  };

  const Graph& graph_;
  const GraphIndex& index_;
  const Plan& plan_;
  const Sharding& sharding_;
  const KernelSet& kernels_;
  const BlockRange blocks_;
  const AxisId tensor_axis_;
  SymbolTable& symbols_;

  StageTemplate stage_;
  std::vector<TemplateInstruction>* list_ = nullptr;
  std::string prefix_;                                          // "recompute." while a block is recomputed.
  std::unordered_map<std::int32_t, Place> places_;              // By tensor.
  std::unordered_map<std::int32_t, Place> gathered_;            // By tensor, within a block and phase.
  std::unordered_map<std::int32_t, std::int32_t> gradient_of_;  // Parameter → persistent buffer.
  std::unordered_map<std::int32_t, std::int32_t> owner_;        // Parameter → block of this stage.
  SmallSet seen_blocks_;
  std::vector<TensorId> received_;              // From the neighbour, in the current list.
  std::array<bool, kStreams> received_read_{};  // By stream.
};

}  // namespace

StageTemplate build_stage(const Graph& graph, const GraphIndex& index, const Plan& plan,
                          const Sharding& sharding, const KernelSet& kernels, BlockRange blocks,
                          AxisId tensor_axis, SymbolTable& symbols) {
  return StageBuilder(graph, index, plan, sharding, kernels, blocks, tensor_axis, symbols).build();
}

}  // namespace orrery
