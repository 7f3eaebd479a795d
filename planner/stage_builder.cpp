#include "planner/stage_builder.hpp"

#include <algorithm>
#include <cassert>

namespace orrery {
namespace {

// Ops whose only results are gradients of parameters: what a split backward puts off.
bool only_weight_gradients(const Graph& graph, OpId op) {
  return std::all_of(graph[op].outputs.begin(), graph[op].outputs.end(),
                     [&](TensorId output) { return graph[output].kind == TensorKind::kParameterGradient; });
}

}  // namespace

std::string without_layer(const std::string& name) {
  const std::string gradient = name.starts_with("d_") ? "d_" : "";
  const std::string rest = name.substr(gradient.size());
  const std::size_t dot = rest.find('.');
  if (!rest.starts_with("layer") || dot == std::string::npos) return name;
  const std::string digits = rest.substr(5, dot - 5);
  const bool numbered = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  return numbered ? gradient + rest.substr(dot + 1) : name;
}

StageBuilder::StageBuilder(const StageInput& input, SymbolTable& symbols)
    : in_(input), graph_(input.graph), sharding_(input.sharding), symbols_(symbols) {}

StageTemplate StageBuilder::build() {
  seen_blocks_.assign(static_cast<std::size_t>(graph_.block_count()), false);
  add_parameters();
  build_forward();
  if (in_.whole_backward) build_backward(PassKind::kBackward);
  if (in_.split_backward) build_backward(PassKind::kBackwardInput);
  return std::move(stage_);
}

// ---- Buffers.

void StageBuilder::add_parameters() {
  for (std::int32_t block = in_.blocks.first; block < in_.blocks.last; ++block) {
    for (const OpId op : in_.index.forward[static_cast<std::size_t>(block)]) {
      for (const TensorId input : graph_[op].inputs) {
        if (graph_[input].kind == TensorKind::kParameter && !places_.contains(input.value)) {
          add_parameter(input, block);
        }
      }
      if (in_.kernels.packed) pack_weights(graph_[op]);
    }
  }
}

// A projection's weights side by side, and their gradients.
void StageBuilder::pack_weights(const Op& op) {
  if (op.kind != OpKind::kMatmul) return;
  for (std::size_t i = 2; i <= op.outputs.size(); ++i) {
    const TemplateParameter& before = stage_.parameters[parameter_of_.at(op.inputs[i - 1].value)];
    const TemplateParameter& after = stage_.parameters[parameter_of_.at(op.inputs[i].value)];
    const auto follow = [&](std::int32_t first, std::int32_t second) {
      if (first < second)
        stage_.persistent_buffers[static_cast<std::size_t>(second)].behind = BufferId(first);
    };
    follow(before.weights, after.weights);
    follow(before.gradient, after.gradient);
  }
}

void StageBuilder::add_parameter(TensorId tensor, std::int32_t block) {
  TemplateParameter parameter;
  parameter.tensor = tensor;
  parameter.block = block;
  parameter.elements = sharding_.stored_elements(tensor);
  parameter.tied = is_tied(tensor);
  parameter.of_expert = sharding_.of_expert(tensor);
  const std::string name = without_layer(graph_[tensor].name);
  const auto add = [&](const std::string& label, MemoryCategory category, DType dtype) {
    Buffer buffer;
    buffer.label = symbols_.label(label);
    buffer.layer = block;
    buffer.category = category;
    buffer.bytes = parameter.elements * size_bytes(dtype);
    buffer.persistent = true;
    buffer.tensor = tensor;
    buffer.placement = sharding_.stored(tensor);
    stage_.persistent_buffers.push_back(buffer);
    return static_cast<std::int32_t>(std::ssize(stage_.persistent_buffers) - 1);
  };
  parameter.weights = add(name, MemoryCategory::kParameters, in_.plan.compute_dtype);
  parameter.gradient = add(name + ".gradient", MemoryCategory::kGradients, in_.plan.gradient_dtype);
  places_[tensor.value] = {parameter.weights, true};
  parameter_of_[tensor.value] = stage_.parameters.size();
  stage_.parameters.push_back(parameter);
}

bool StageBuilder::is_tied(TensorId parameter) const {
  bool first = false, last = false;
  for (const OpId reader : in_.index.readers[parameter.index()]) {
    if (graph_[reader].phase != Phase::kForward) continue;
    first = first || graph_[reader].block == 0;
    last = last || graph_[reader].block == graph_.block_count() - 1;
  }
  return first && last;
}

std::int32_t StageBuilder::add_buffer(const std::string& name, std::int32_t layer, MemoryCategory category,
                                      TensorId tensor, PlacementId placement) {
  Buffer buffer;
  buffer.label = symbols_.label(name);
  buffer.layer = layer;
  buffer.category = category;
  buffer.bytes = sharding_.bytes(tensor, placement);
  buffer.tensor = tensor;
  buffer.placement = placement;
  stage_.microbatch_buffers.push_back(buffer);
  return static_cast<std::int32_t>(std::ssize(stage_.microbatch_buffers) - 1);
}

// Inputs that nobody in this stage makes: token ids, labels, and what neighbours send.
StageBuilder::Place& StageBuilder::place_of(TensorId tensor) {
  const auto found = places_.find(tensor.value);
  if (found != places_.end()) return found->second;
  const Tensor& data = graph_[tensor];
  Place place;
  const bool from_neighbour = data.kind == TensorKind::kActivation || data.kind == TensorKind::kGradient;
  assert(!from_neighbour || !in_.blocks.contains(graph_[data.producer].block));
  const std::string name = without_layer(data.name) + (from_neighbour ? ".received" : "");
  const bool gradient = data.kind == TensorKind::kGradient;
  place.buffer =
      add_buffer(name, data.block, gradient ? MemoryCategory::kWorkspace : MemoryCategory::kActivations,
                 tensor, sharding_.stored(tensor));
  if (data.kind == TensorKind::kActivation) {
    stage_.input_bytes += sharding_.stored_bytes(tensor);
    stage_.input_buffer = place.buffer;
  } else if (data.kind == TensorKind::kGradient) {
    stage_.output_gradient_buffer = place.buffer;
  }
  before_backward_.emplace(tensor.value, place);
  return places_.emplace(tensor.value, place).first->second;
}

// ---- Instructions.

void StageBuilder::start_list(PassKind pass) {
  pass_ = pass;
  ++region_;
  // The two parts of a split backward belong to one micro-batch, and their names have to differ.
  if (pass != PassKind::kBackwardWeight) moves_.clear();
}

std::int32_t StageBuilder::append(TemplateInstruction instruction) {
  list().push_back(std::move(instruction));
  return static_cast<std::int32_t>(std::ssize(list()) - 1);
}

void StageBuilder::touch(TemplateInstruction& instruction, TemplateOperand operand) {
  for (TemplateOperand& known : instruction.operands) {
    if (known.buffer == operand.buffer && known.persistent == operand.persistent) {
      known.writes = known.writes || operand.writes;
      return;
    }
  }
  instruction.operands.push_back(operand);
}

void StageBuilder::read(TemplateInstruction& instruction, TensorId tensor) {
  const Place& place = place_of(tensor);
  touch(instruction, {place.buffer, place.persistent, false});
}

void StageBuilder::emit(const Launch& launch, Purpose purpose) {
  rearranged_.clear();
  for (const OpId op : launch.ops) rearrange_inputs(op);

  const Op& first = graph_[launch.ops.front()];
  TemplateInstruction compute;
  std::string name = prefix_ + without_layer(first.name);
  for (std::size_t i = 1; i < launch.ops.size(); ++i) name += "+" + without_layer(graph_[launch.ops[i]].name);
  compute.label = symbols_.label(name);
  compute.layer = first.block;
  compute.purpose = purpose;
  compute.ops = launch.ops;
  Kernel kernel = launch_kernel(graph_, in_.index, in_.plan, sharding_, launch);
  kernel.read_bytes += widening(launch.ops.front());
  kernel.label = compute.label;

  for (const OpId op : launch.ops) read_inputs(op, launch, compute);
  std::vector<std::pair<OpId, TensorId>> elsewhere;
  for (const OpId op : launch.ops) write_outputs(op, compute, elsewhere);
  for (const OpId op : launch.ops) add_fp8_copies(op, compute, kernel);
  note_fp8_maker(launch);
  compute.work = Compute{symbols_.kernel(kernel)};
  if (in_.kernels.packed) pack_outputs(launch, compute);
  const std::int32_t made = append(std::move(compute));
  for (const auto& [op, tensor] : elsewhere) settle(op, tensor, made);
}

void StageBuilder::read_inputs(OpId id, const Launch& launch, TemplateInstruction& compute) {
  for (const TensorId input : graph_[id].inputs) {
    const OpId producer = graph_[input].producer;
    if (std::find(launch.ops.begin(), launch.ops.end(), producer) != launch.ops.end() && producer.valid())
      continue;
    const auto elsewhere = rearranged_.find({input, sharding_.needed(id, input)});
    if (elsewhere != rearranged_.end()) {
      touch(compute, {elsewhere->second.buffer, false, false});
    } else {
      read(compute, input);
    }
    if (graph_[input].kind == TensorKind::kParameter) note_new_block(input, compute);
  }
}

void StageBuilder::note_new_block(TensorId parameter, TemplateInstruction& compute) {
  const std::int32_t block = stage_.parameters[parameter_of_.at(parameter.value)].block;
  if (seen_blocks_[static_cast<std::size_t>(block)]) return;
  seen_blocks_[static_cast<std::size_t>(block)] = true;
  compute.new_blocks.push_back(block);
}

void StageBuilder::write_outputs(OpId id, TemplateInstruction& compute,
                                 std::vector<std::pair<OpId, TensorId>>& elsewhere) {
  const Op& op = graph_[id];
  for (const TensorId output : op.outputs) {
    const Tensor& data = graph_[output];
    if (data.kind == TensorKind::kParameterGradient) {
      TemplateParameter& parameter = stage_.parameters[parameter_of_.at(data.gradient_of.value)];
      touch(compute, {parameter.gradient, true, true});
      parameter.partial = parameter.partial || sharding_.partial_gradient(id, output);
      continue;
    }
    const std::int32_t buffer = add_output(output, op.block);
    const bool reduced = sharding_.partial_over(id, output).valid() && !sharding_.unreduced(output);
    if (reduced || sharding_.made(id, output) != sharding_.stored(output)) {
      elsewhere.emplace_back(id, output);
    } else {
      touch(compute, {buffer, false, true});
    }
  }
}

// Side by side: what a projection makes, as its readers see it, and gradients that its input's gradient
// reads.
void StageBuilder::pack_outputs(const Launch& launch, const TemplateInstruction& compute) {
  const Op& first = graph_[launch.ops.front()];
  if (first.kind == OpKind::kMatmul) {
    std::vector<TensorId> made = first.outputs;
    for (std::size_t o = 1; o < launch.ops.size(); ++o) {
      const Op& next = graph_[launch.ops[o]];
      if (next.kind != OpKind::kRope) continue;
      for (std::size_t i = 0; i < next.inputs.size(); ++i) {
        std::replace(made.begin(), made.end(), next.inputs[i], next.outputs[i]);
      }
    }
    chain(made, compute);
  }
  for (const OpId op : launch.ops) {
    for (const TensorId output : graph_[op].outputs) {
      for (const OpId reader : in_.index.readers[output.index()]) {
        const std::vector<TensorId>& inputs = graph_[reader].inputs;
        if (graph_[reader].kind != OpKind::kMatmulGradInput || inputs.front() != output) continue;
        const auto gradients = static_cast<std::ptrdiff_t>(inputs.size() / 2);
        chain({inputs.begin(), inputs.begin() + gradients}, compute);
      }
    }
  }
}

// Each behind the one before, if the instruction writes all of them where they stay.
void StageBuilder::chain(const std::vector<TensorId>& tensors, const TemplateInstruction& compute) {
  std::vector<std::int32_t> buffers;
  for (const TensorId tensor : tensors) {
    const auto place = places_.find(tensor.value);
    if (place == places_.end() || place->second.persistent) return;
    const bool written =
        std::any_of(compute.operands.begin(), compute.operands.end(), [&](const TemplateOperand& operand) {
          return operand.buffer == place->second.buffer && !operand.persistent && operand.writes;
        });
    if (!written) return;
    buffers.push_back(place->second.buffer);
  }
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    stage_.microbatch_buffers[static_cast<std::size_t>(buffers[i])].behind = BufferId(buffers[i - 1]);
  }
}

std::int32_t StageBuilder::add_output(TensorId output, std::int32_t block) {
  const bool gradient = graph_[output].kind == TensorKind::kGradient;
  Place place;
  place.buffer = add_buffer(prefix_ + without_layer(graph_[output].name), block,
                            gradient ? MemoryCategory::kWorkspace : MemoryCategory::kActivations, output,
                            sharding_.stored(output));
  places_[output.value] = place;
  return place.buffer;
}

// The logits in fp32, from where the loss and its gradient read them.
void StageBuilder::widen_logits(OpId id) {
  const TensorId logits = graph_[id].inputs[0];
  const std::int64_t bytes = sharding_.stored_bytes(logits), more = widening(id);
  if (more == 0) return;
  TemplateInstruction compute;
  compute.label = symbols_.label("logits.to_fp32");
  compute.layer = graph_[id].block;
  compute.purpose = Purpose::kForward;
  Kernel kernel;
  kernel.label = compute.label;
  kernel.dtype = in_.plan.compute_dtype;
  kernel.read_bytes = bytes;
  kernel.written_bytes = bytes + more;
  compute.work = Compute{symbols_.kernel(kernel)};
  read(compute, logits);
  Place place;
  place.buffer = add_buffer("logits.fp32", graph_[id].block, MemoryCategory::kActivations, logits,
                            sharding_.stored(logits));
  stage_.microbatch_buffers.back().bytes += more;
  touch(compute, {place.buffer, false, true});
  append(std::move(compute));
  places_[logits.value] = place;
}

// By how much fp32 logits are larger than the graph's, for ops that read them.
std::int64_t StageBuilder::widening(OpId id) const {
  const Op& op = graph_[id];
  const bool of_loss = op.kind == OpKind::kCrossEntropy || op.kind == OpKind::kCrossEntropyGrad;
  if (!of_loss || !in_.kernels.fp32_loss) return 0;
  const TensorId logits = op.inputs[0];
  return sharding_.stored_elements(logits) * size_bytes(DType::kFp32) - sharding_.stored_bytes(logits);
}

// The loss over a divided vocabulary in three launches with two all-reduces between them: the maximum of each
// token's logits, then the sum of their exponentials with the label's logit (Shoeybi et al. 2019, §3).
void StageBuilder::emit_parallel_loss(OpId id) {
  const Op& op = graph_[id];
  const TensorId logits = op.inputs[0], labels = op.inputs[1], log_sum = op.outputs[1];
  const std::string name = prefix_ + without_layer(op.name);
  const auto statistic = [&](const char* what) {
    return add_buffer(name + what, op.block, MemoryCategory::kWorkspace, log_sum, sharding_.stored(log_sum));
  };
  const std::int32_t maximum = statistic(".maximum");
  const std::array<std::int32_t, 2> sums = {statistic(".exponentials"), statistic(".label_logit")};
  const std::int64_t tokens_bytes = sharding_.stored_bytes(log_sum);
  const std::int64_t logits_bytes = sharding_.bytes(logits, sharding_.needed(id, logits)) + widening(id);

  const auto start = [&](std::int32_t part, const char* what, std::int64_t read_bytes,
                         std::int64_t written_bytes) {
    TemplateInstruction compute;
    compute.label = symbols_.label(name + what);
    compute.layer = op.block;
    compute.purpose = Purpose::kForward;
    compute.ops = {id};
    compute.part = part;
    Kernel kernel;
    kernel.label = compute.label;
    kernel.kind = KernelKind::kCrossEntropy;
    kernel.dtype = in_.plan.compute_dtype;
    kernel.read_bytes = read_bytes;
    kernel.written_bytes = written_bytes;
    if (part == 1) kernel.flops = flops(graph_, op, sharding_.sizes(id));
    compute.work = Compute{symbols_.kernel(kernel)};
    return compute;
  };
  const auto all_reduce = [&](const char* what, Reduction reduction, std::int64_t bytes,
                              std::initializer_list<std::int32_t> buffers) {
    TemplateInstruction sum = collective(name + what, op.block, CollectiveKind::kAllReduce,
                                         sharding_.axes().tensor, bytes, DType::kFp32);
    std::get<Collective>(sum.work).reduction = reduction;
    for (const std::int32_t buffer : buffers) touch(sum, {buffer, false, true});
    append(std::move(sum));
  };

  TemplateInstruction first = start(0, ".maximum", logits_bytes, tokens_bytes);
  read(first, logits);
  touch(first, {maximum, false, true});
  append(std::move(first));
  all_reduce(".maximum.reduce", Reduction::kMax, tokens_bytes, {maximum});

  TemplateInstruction second = start(1, ".exponentials", logits_bytes + tokens_bytes, 2 * tokens_bytes);
  read(second, logits);
  read(second, labels);
  touch(second, {maximum, false, false});
  for (const std::int32_t buffer : sums) touch(second, {buffer, false, true});
  append(std::move(second));
  all_reduce(".exponentials.reduce", Reduction::kSum, 2 * tokens_bytes, {sums[0], sums[1]});

  TemplateInstruction third = start(2, "", 3 * tokens_bytes, tokens_bytes);
  for (const std::int32_t buffer : {maximum, sums[0], sums[1]}) touch(third, {buffer, false, false});
  std::vector<std::pair<OpId, TensorId>> elsewhere;
  write_outputs(id, third, elsewhere);
  assert(elsewhere.empty());
  append(std::move(third));
}

// ---- Lists.

void StageBuilder::emit_all(const std::vector<Launch>& launches, Purpose purpose) {
  std::int32_t block = -1;
  for (const Launch& launch : launches) {
    const Op& op = graph_[launch.ops.front()];
    if (op.block != block) ++region_;
    block = op.block;
    remake_inputs(launch);
    emit_any(launch, purpose);
  }
}

// What takes several instructions has a builder of its own.
void StageBuilder::emit_any(const Launch& launch, Purpose purpose) {
  const OpId first = launch.ops.front();
  const bool is_loss = graph_[first].kind == OpKind::kCrossEntropy;
  if (is_loss) widen_logits(first);
  if (is_loss && sharding_.sharded(first)) {
    emit_parallel_loss(first);
  } else if (sharding_.rings(first)) {
    assert(launch.ops.size() == 1);
    emit_ring(first, purpose);
  } else {
    emit(launch, purpose);
  }
}

void StageBuilder::build_forward() {
  start_list(PassKind::kForward);
  std::vector<OpId> ops;
  for (std::int32_t block = in_.blocks.first; block < in_.blocks.last; ++block) {
    const auto& of_block = in_.index.forward[static_cast<std::size_t>(block)];
    ops.insert(ops.end(), of_block.begin(), of_block.end());
  }
  // A recomputed layer starts from its input alone, so its first norm can't hang on the layer before.
  const bool across_blocks = in_.plan.recompute != Recompute::kFull;
  emit_all(cut_launches(graph_, sharding_, ops, in_.kernels, across_blocks), Purpose::kForward);
  for (const OpId op : ops) {
    for (const TensorId output : graph_[op].outputs) note_forward_output(output);
  }
  before_backward_ = places_;
}

void StageBuilder::note_forward_output(TensorId tensor) {
  const auto& readers = in_.index.readers[tensor.index()];
  const bool leaves = std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
    return graph_[reader].phase == Phase::kForward && !in_.blocks.contains(graph_[reader].block);
  });
  if (!leaves) return;
  stage_.output_bytes = sharding_.stored_bytes(tensor);
  note_sent(tensor);
}

void StageBuilder::build_backward(PassKind pass) {
  places_ = before_backward_;
  drop_tensors();
  for (auto* const known : {&fp8_kept_, &fp8_makers_}) {
    std::erase_if(*known, [](const auto& kept) { return kept.second->pass != PassKind::kForward; });
  }
  start_list(pass);
  std::vector<OpId> put_off;
  for (std::int32_t block = in_.blocks.last - 1; block >= in_.blocks.first; --block) {
    if (in_.plan.recompute == Recompute::kFull && recomputes(block)) recompute(block);
    std::vector<OpId> ops = in_.index.backward[static_cast<std::size_t>(block)];
    const auto first_put_off = std::ssize(put_off);
    if (pass == PassKind::kBackwardInput) {
      const auto later = std::stable_partition(ops.begin(), ops.end(),
                                               [&](OpId op) { return !only_weight_gradients(graph_, op); });
      put_off.insert(put_off.end(), later, ops.end());
      ops.erase(later, ops.end());
    }
    emit_all(cut_launches(graph_, sharding_, ops, in_.kernels, false), Purpose::kBackward);
    for (const OpId op : ops) {
      for (const TensorId output : graph_[op].outputs) note_backward_output(output);
    }
    // What the weight part misses is made here, where the layer's parameters are at hand.
    const std::vector<OpId> of_block(put_off.begin() + first_put_off, put_off.end());
    for (const Launch& launch : cut_launches(graph_, sharding_, of_block, in_.kernels, false)) {
      remake_inputs(launch);
    }
  }
  if (pass != PassKind::kBackwardInput) return;
  start_list(PassKind::kBackwardWeight);
  emit_all(cut_launches(graph_, sharding_, put_off, in_.kernels, false), Purpose::kBackward);
}

void StageBuilder::note_backward_output(TensorId tensor) {
  if (graph_[tensor].kind != TensorKind::kGradient) return;
  const auto& readers = in_.index.readers[tensor.index()];
  const bool leaves = std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
    return graph_[reader].phase == Phase::kBackward && !in_.blocks.contains(graph_[reader].block);
  });
  if (leaves) note_sent(tensor);
}

void StageBuilder::note_sent(TensorId tensor) {
  std::int32_t& buffer = stage_.sent_buffer[static_cast<std::size_t>(pass_)];
  assert(buffer < 0);  // One tensor crosses a border: the residual stream.
  buffer = places_.at(tensor.value).buffer;
}

StageTemplate build_stage(const StageInput& input, SymbolTable& symbols) {
  return StageBuilder(input, symbols).build();
}

}  // namespace orrery
