// Ring attention (Liu et al. 2023, arXiv:2310.01889): the context-parallel group works in as many steps as it
// has ranks. In each a rank's queries meet one block of keys and values while that block goes on to the next
// rank and the one of the previous rank comes in, so two blocks are held beside the rank's own. What the
// steps make is merged by its log-sum-exps (Milakov & Gimelshein 2018; Dao 2023, §3.1), kept in fp32
// meanwhile. In a backward the gradients of a block travel behind it, each rank adds its own, and after as
// many steps they are home. A launch of its own adds each step's result to those before, as in Megatron-LM's
// implementation (Transformer Engine): so a step need not wait for the gradients that come in beside it.

#include <algorithm>
#include <cassert>

#include "planner/context_attention.hpp"
#include "planner/stage_builder.hpp"

namespace orrery {

struct StageBuilder::Ring {
  OpId op;
  Purpose purpose = Purpose::kForward;
  std::string name;
  std::int32_t degree = 1;
  // By step, until the last: whether any rank's queries see the block of that step.
  std::vector<bool> works;

  std::int32_t steps() const { return static_cast<std::int32_t>(std::ssize(works)); }
  bool last(std::int32_t step) const { return step + 1 == steps(); }
  std::string at(const char* what, std::int32_t step) const { return name + what + std::to_string(step); }
};

void StageBuilder::emit_ring(OpId id, Purpose purpose) {
  const Op& op = graph_[id];
  Ring ring{id, purpose, prefix_ + without_layer(op.name), sharding_.context_parallel(), {}};
  const std::int64_t local = sharding_.sizes(id)[graph_[op.inputs[0]].shape[1].index()];
  for (std::int32_t step = 0; step < ring.degree; ++step) {
    ring.works.push_back(ring_step_pairs(op.attributes, local * ring.degree, ring.degree, step) > 0);
  }
  while (!ring.works.back()) ring.works.pop_back();
  if (op.kind == OpKind::kAttention) {
    ring_forward(ring);
  } else {
    ring_backward(ring);
  }
}

// A block goes to the next rank and the previous rank's comes in: `positions` is how far that one has come.
StageBuilder::Block StageBuilder::pass_on(const Ring& ring, const char* what,
                                          const std::array<TensorId, 2>& tensors, const Block& block,
                                          std::int32_t positions) {
  const auto message = [&](const char* verb, std::int32_t stream) {
    TemplateInstruction instruction;
    instruction.label = symbols_.label(ring.name + what + verb + std::to_string(positions));
    instruction.layer = graph_[ring.op].block;
    instruction.stream = stream;
    instruction.purpose = Purpose::kContextParallel;
    return instruction;
  };
  const std::int64_t bytes = sharding_.stored_bytes(tensors[0]) + sharding_.stored_bytes(tensors[1]);
  TemplateInstruction send = message(".send", kContextStream);
  send.work = Send{sharding_.axes().context, 1, bytes};
  send.with_next = true;
  for (const Place& place : block) touch(send, {place.buffer, place.persistent, false});
  TemplateInstruction recv = message(".recv", kContextRecv);
  recv.work = Recv{sharding_.axes().context, -1, bytes};
  recv.ahead = true;  // One block beside the one in use.
  const bool again = graph_[ring.op].kind == OpKind::kAttentionGrad;
  Block next;
  append(std::move(send));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorId tensor = tensors[t];
    if (positions == ring.degree) {
      next[t].buffer = add_output(tensor, graph_[ring.op].block);
    } else {
      const std::string name = prefix_ + without_layer(graph_[tensor].name) + ".from";
      next[t].buffer =
          add_buffer(name + std::to_string(positions) + (again ? "_again" : ""), graph_[ring.op].block,
                     MemoryCategory::kCommunication, tensor, sharding_.shifted(tensor, positions));
    }
    touch(recv, {next[t].buffer, false, true});
  }
  append(std::move(recv));
  return next;
}

// The step's launch; its results go to `results`, by output of the op.
void StageBuilder::ring_attend(const Ring& ring, std::int32_t step, const Block& block,
                               const std::vector<std::int32_t>& results) {
  const Op& op = graph_[ring.op];
  Launch launch{{ring.op}, step};
  TemplateInstruction compute;
  compute.label = symbols_.label(ring.at(".step", step));
  compute.layer = op.block;
  compute.purpose = ring.purpose;
  compute.ops = {ring.op};
  compute.part = 2 * step;
  Kernel kernel = launch_kernel(graph_, in_.index, in_.plan, sharding_, launch);
  kernel.label = compute.label;
  compute.work = Compute{symbols_.kernel(kernel)};
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (i == 1 || i == 2) {
      const Place& place = block[i - 1];
      touch(compute, {place.buffer, place.persistent, false});
    } else {
      read(compute, op.inputs[i]);
      if (graph_[op.inputs[i]].kind == TensorKind::kParameter) note_new_block(op.inputs[i], compute);
    }
  }
  for (const std::int32_t result : results) touch(compute, {result, false, true});
  if (op.outputs.size() > results.size() && step == 0) {  // The sinks' gradient hangs on no block.
    TemplateParameter& sinks =
        stage_.parameters[parameter_of_.at(graph_[op.outputs.back()].gradient_of.value)];
    touch(compute, {sinks.gradient, true, true});
    sinks.partial = sinks.partial || sharding_.partial_gradient(ring.op, op.outputs.back());
  }
  append(std::move(compute));
}

// Adds the step's results to those before. The executor tells the operands by their order: what is read, then
// what is written and isn't read.
void StageBuilder::ring_add(const Ring& ring, std::int32_t step, const std::vector<std::int32_t>& reads,
                            const std::vector<std::int32_t>& writes) {
  TemplateInstruction compute;
  compute.label = symbols_.label(ring.at(".add", step));
  compute.layer = graph_[ring.op].block;
  compute.purpose = ring.purpose;
  compute.ops = {ring.op};
  compute.part = 2 * step + 1;
  Kernel kernel;
  kernel.label = compute.label;
  kernel.kind = KernelKind::kElementwise;
  kernel.dtype = in_.plan.compute_dtype;
  const auto bytes = [&](std::int32_t buffer) {
    return stage_.microbatch_buffers[static_cast<std::size_t>(buffer)].bytes;
  };
  for (const std::int32_t buffer : reads) {
    kernel.read_bytes += bytes(buffer);
    touch(compute, {buffer, false, false});
  }
  for (const std::int32_t buffer : writes) {
    kernel.written_bytes += bytes(buffer);
    touch(compute, {buffer, false, true});
  }
  compute.work = Compute{symbols_.kernel(kernel)};
  append(std::move(compute));
}

// One step's share of a result, in the type of the result; and the sum of several, in fp32.
std::int32_t StageBuilder::ring_part(const Ring& ring, std::int32_t step, TensorId tensor,
                                     std::int32_t positions) {
  return add_buffer(ring.at(".step", step) + "." + without_layer(graph_[tensor].name), graph_[ring.op].block,
                    MemoryCategory::kWorkspace, tensor, sharding_.shifted(tensor, positions));
}

std::int32_t StageBuilder::ring_sum(const Ring& ring, TensorId tensor) {
  const std::int32_t buffer =
      add_buffer(ring.name + ".sum." + without_layer(graph_[tensor].name), graph_[ring.op].block,
                 MemoryCategory::kWorkspace, tensor, sharding_.stored(tensor));
  stage_.microbatch_buffers[static_cast<std::size_t>(buffer)].bytes =
      sharding_.stored_elements(tensor) * size_bytes(DType::kFp32);
  return buffer;
}

void StageBuilder::ring_forward(const Ring& ring) {
  const Op& op = graph_[ring.op];
  const std::array<TensorId, 2> keys = {op.inputs[1], op.inputs[2]};
  Block block = {place_of(keys[0]), place_of(keys[1])};
  std::vector<std::int32_t> so_far;  // Buffers of the context and its log-sum-exps.
  std::int32_t results = 0;
  for (std::int32_t step = 0; step < ring.steps(); ++step) {
    Block next;
    if (!ring.last(step)) next = pass_on(ring, ".kv", keys, block, step + 1);
    if (ring.works[static_cast<std::size_t>(step)]) {
      std::vector<std::int32_t> target = so_far;
      if (ring.last(step)) {
        target = {add_output(op.outputs[0], op.block), add_output(op.outputs[1], op.block)};
      } else if (results == 1) {
        target = {ring_sum(ring, op.outputs[0]), ring_sum(ring, op.outputs[1])};
      }
      std::vector<std::int32_t> part = target;
      if (ring.steps() > 1) {
        part = {ring_part(ring, step, op.outputs[0], 0), ring_part(ring, step, op.outputs[1], 0)};
      }
      ring_attend(ring, step, block, part);
      if (results > 0) ring_add(ring, step, {so_far[0], so_far[1], part[0], part[1]}, target);
      so_far = results > 0 ? target : part;
      ++results;
    }
    block = next;
  }
}

void StageBuilder::ring_backward(const Ring& ring) {
  const Op& op = graph_[ring.op];
  const std::array<TensorId, 2> keys = {op.inputs[1], op.inputs[2]};
  const std::array<TensorId, 2> key_gradients = {op.outputs[1], op.outputs[2]};
  Block block = {place_of(keys[0]), place_of(keys[1])};
  Block gradients;           // Of that block, so far.
  std::int32_t so_far = -1;  // Buffer of the queries' gradient.
  std::int32_t results = 0;
  // Keys and values travel no further than they are seen; their gradients have to come home.
  const std::int32_t steps = ring.steps() == 1 ? 1 : ring.degree;
  for (std::int32_t step = 0; step < steps; ++step) {
    Block next;
    if (step + 1 < ring.steps()) next = pass_on(ring, ".kv", keys, block, step + 1);
    if (step < ring.steps() && ring.works[static_cast<std::size_t>(step)]) {
      std::int32_t target = so_far;
      if (ring.last(step)) {
        target = add_output(op.outputs[0], op.block);
      } else if (results == 1) {
        target = ring_sum(ring, op.outputs[0]);
      }
      std::vector<std::int32_t> parts;
      if (steps == 1) {
        parts = {target, add_output(key_gradients[0], op.block), add_output(key_gradients[1], op.block)};
      } else {
        for (std::size_t i = 0; i < 3; ++i) {
          parts.push_back(ring_part(ring, step, op.outputs[i], i == 0 ? 0 : step));
        }
      }
      ring_attend(ring, step, block, parts);
      if (results == 0) {
        gradients = {Place{parts[1], false}, Place{parts[2], false}};
      } else {
        const std::int32_t dk = gradients[0].buffer, dv = gradients[1].buffer;
        ring_add(ring, step, {so_far, parts[0], parts[1], parts[2], dk, dv}, {dk, dv, target});
      }
      so_far = results > 0 ? target : parts[0];
      ++results;
    }
    if (steps > 1) gradients = pass_on(ring, ".dkv", key_gradients, gradients, step + 1);
    block = next;
  }
}

}  // namespace orrery
