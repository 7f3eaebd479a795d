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
    }
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
  places_[tensor.value] = {parameter.weights, true, -1};
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
  const std::string name = without_layer(data.name) + (from_neighbour ? ".received" : "");
  const bool gradient = data.kind == TensorKind::kGradient;
  place.buffer =
      add_buffer(name, data.block, gradient ? MemoryCategory::kWorkspace : MemoryCategory::kActivations,
                 tensor, sharding_.stored(tensor));
  if (data.kind == TensorKind::kActivation) {
    stage_.input_bytes += sharding_.stored_bytes(tensor);
    stage_.input_buffer = place.buffer;
    received_.push_back(tensor);
  } else if (data.kind == TensorKind::kGradient) {
    stage_.output_gradient_buffer = place.buffer;
    received_.push_back(tensor);
  }
  before_backward_.emplace(tensor.value, place);
  return places_.emplace(tensor.value, place).first->second;
}

// ---- Instructions.

void StageBuilder::start_list(PassKind pass) {
  pass_ = pass;
  for (auto& [tensor, place] : places_) place.ready = -1;
  rearranged_.clear();
  received_read_.fill(false);
}

std::int32_t StageBuilder::append(TemplateInstruction instruction) {
  list().push_back(std::move(instruction));
  return static_cast<std::int32_t>(std::ssize(list()) - 1);
}

void StageBuilder::depend(TemplateInstruction& instruction, std::int32_t on) {
  if (on < 0 || list()[static_cast<std::size_t>(on)].stream == instruction.stream) return;
  if (std::find(instruction.after.begin(), instruction.after.end(), on) == instruction.after.end()) {
    instruction.after.push_back(on);
  }
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
  depend(instruction, place.ready);
  touch(instruction, {place.buffer, place.persistent, false});
  // A backward reads what the forward received, but waits for the gradient alone.
  const bool of_pass = (graph_[tensor].kind == TensorKind::kGradient) == (pass_ != PassKind::kForward);
  if (of_pass && std::find(received_.begin(), received_.end(), tensor) != received_.end() &&
      !received_read_[static_cast<std::size_t>(instruction.stream)]) {
    received_read_[static_cast<std::size_t>(instruction.stream)] = true;
    instruction.reads_input = true;
  }
}

std::int32_t StageBuilder::last_compute() {
  for (std::int32_t i = static_cast<std::int32_t>(std::ssize(list())) - 1; i >= 0; --i) {
    if (list()[static_cast<std::size_t>(i)].stream == kComputeStream) return i;
  }
  return -1;
}

void StageBuilder::emit(const Launch& launch, const Launch* next, Purpose purpose) {
  for (const OpId op : launch.ops) rearrange_inputs(op, -1);
  rearrange_ahead(launch, next);

  const Op& first = graph_[launch.ops.front()];
  TemplateInstruction compute;
  std::string name = prefix_ + without_layer(first.name);
  for (std::size_t i = 1; i < launch.ops.size(); ++i) name += "+" + without_layer(graph_[launch.ops[i]].name);
  compute.label = symbols_.label(name);
  compute.layer = first.block;
  compute.purpose = purpose;
  compute.ops = launch.ops;
  Kernel kernel = launch_kernel(graph_, in_.index, in_.plan, sharding_, launch);
  kernel.label = compute.label;
  compute.work = Compute{symbols_.kernel(kernel)};

  for (const OpId op : launch.ops) read_inputs(op, launch, compute);
  std::vector<std::pair<OpId, TensorId>> elsewhere;
  for (const OpId op : launch.ops) write_outputs(op, compute, elsewhere);
  const std::int32_t made = append(std::move(compute));
  for (const OpId op : launch.ops) settle_outputs(op, made);
  for (const auto& [op, tensor] : elsewhere) settle(op, tensor, made);
}

void StageBuilder::read_inputs(OpId id, const Launch& launch, TemplateInstruction& compute) {
  for (const TensorId input : graph_[id].inputs) {
    const OpId producer = graph_[input].producer;
    if (std::find(launch.ops.begin(), launch.ops.end(), producer) != launch.ops.end() && producer.valid())
      continue;
    const auto elsewhere = rearranged_.find({input, sharding_.needed(id, input)});
    if (elsewhere != rearranged_.end()) {
      depend(compute, elsewhere->second.ready);
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
    if (sharding_.partial_over(id, output).valid() ||
        sharding_.made(id, output) != sharding_.stored(output)) {
      elsewhere.emplace_back(id, output);
    } else {
      touch(compute, {buffer, false, true});
    }
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

void StageBuilder::settle_outputs(OpId id, std::int32_t made) {
  for (const TensorId output : graph_[id].outputs) {
    const Tensor& data = graph_[output];
    if (data.kind != TensorKind::kParameterGradient) {
      places_.at(output.value).ready = made;
    } else {
      stage_.parameters[parameter_of_.at(data.gradient_of.value)].ready[static_cast<std::size_t>(pass_)] =
          made;
    }
  }
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
  const std::int64_t logits_bytes = sharding_.bytes(logits, sharding_.needed(id, logits));

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
  const auto all_reduce = [&](const char* what, Reduction reduction, std::int64_t bytes, std::int32_t made,
                              std::initializer_list<std::int32_t> buffers) {
    TemplateInstruction sum = collective(name + what, op.block, CollectiveKind::kAllReduce,
                                         sharding_.axes().tensor, bytes, DType::kFp32);
    std::get<Collective>(sum.work).reduction = reduction;
    depend(sum, made);
    for (const std::int32_t buffer : buffers) touch(sum, {buffer, false, true});
    return append(std::move(sum));
  };

  TemplateInstruction first = start(0, ".maximum", logits_bytes, tokens_bytes);
  read(first, logits);
  touch(first, {maximum, false, true});
  const std::int32_t reduced_maximum =
      all_reduce(".maximum.reduce", Reduction::kMax, tokens_bytes, append(std::move(first)), {maximum});

  TemplateInstruction second = start(1, ".exponentials", logits_bytes + tokens_bytes, 2 * tokens_bytes);
  read(second, logits);
  read(second, labels);
  depend(second, reduced_maximum);
  touch(second, {maximum, false, false});
  for (const std::int32_t buffer : sums) touch(second, {buffer, false, true});
  const std::int32_t reduced_sums = all_reduce(".exponentials.reduce", Reduction::kSum, 2 * tokens_bytes,
                                               append(std::move(second)), {sums[0], sums[1]});

  TemplateInstruction third = start(2, "", 3 * tokens_bytes, tokens_bytes);
  depend(third, reduced_sums);
  for (const std::int32_t buffer : {maximum, sums[0], sums[1]}) touch(third, {buffer, false, false});
  std::vector<std::pair<OpId, TensorId>> elsewhere;
  write_outputs(id, third, elsewhere);
  assert(elsewhere.empty());
  settle_outputs(id, append(std::move(third)));
}

// ---- Lists.

void StageBuilder::emit_all(const std::vector<Launch>& launches, Purpose purpose) {
  std::int32_t block = -1;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Op& op = graph_[launches[i].ops.front()];
    if (op.block != block) rearranged_.clear();
    block = op.block;
    if (op.kind == OpKind::kCrossEntropy && sharding_.sharded(launches[i].ops.front())) {
      emit_parallel_loss(launches[i].ops.front());
    } else if (sharding_.rings(launches[i].ops.front())) {
      assert(launches[i].ops.size() == 1);
      emit_ring(launches[i].ops.front(), purpose);
    } else {
      emit(launches[i], i + 1 < launches.size() ? &launches[i + 1] : nullptr, purpose);
    }
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
  const bool across_blocks = in_.plan.recompute == Recompute::kNone;
  emit_all(cut_launches(graph_, ops, in_.kernels, across_blocks), Purpose::kForward);
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
  start_list(pass);
  std::vector<OpId> put_off;
  for (std::int32_t block = in_.blocks.last - 1; block >= in_.blocks.first; --block) {
    const bool is_layer = block >= 1 && block <= graph_.layers;
    if (in_.plan.recompute == Recompute::kFull && is_layer) recompute(block);
    std::vector<OpId> ops = in_.index.backward[static_cast<std::size_t>(block)];
    if (pass == PassKind::kBackwardInput) {
      const auto later = std::stable_partition(ops.begin(), ops.end(),
                                               [&](OpId op) { return !only_weight_gradients(graph_, op); });
      put_off.insert(put_off.end(), later, ops.end());
      ops.erase(later, ops.end());
    }
    emit_all(cut_launches(graph_, ops, in_.kernels, false), Purpose::kBackward);
    for (const OpId op : ops) {
      for (const TensorId output : graph_[op].outputs) note_backward_output(output);
    }
  }
  if (pass != PassKind::kBackwardInput) return;
  start_list(PassKind::kBackwardWeight);
  emit_all(cut_launches(graph_, put_off, in_.kernels, false), Purpose::kBackward);
}

void StageBuilder::recompute(std::int32_t block) {
  prefix_ = "recompute.";
  rearranged_.clear();
  emit_all(cut_launches(graph_, in_.index.forward[static_cast<std::size_t>(block)], in_.kernels, false),
           Purpose::kRecompute);
  rearranged_.clear();
  prefix_.clear();
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
  stage_.sent_ready[static_cast<std::size_t>(pass_)] = places_.at(tensor.value).ready;
}

StageTemplate build_stage(const StageInput& input, SymbolTable& symbols) {
  return StageBuilder(input, symbols).build();
}

}  // namespace orrery
