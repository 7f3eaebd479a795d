#include "planner/stage_in_place.hpp"

#include <algorithm>
#include <cassert>

namespace orrery {
namespace {

bool touches(const TemplateInstruction& instruction, std::int32_t buffer) {
  return std::any_of(
      instruction.operands.begin(), instruction.operands.end(),
      [&](const TemplateOperand& operand) { return !operand.persistent && operand.buffer == buffer; });
}

// What a launch of the loss's gradient alone reads and writes; −1: it is none.
struct LossGradient {
  std::int32_t logits = -1, gradient = -1;
};

LossGradient loss_gradient(const StageTemplate& stage, const Graph& graph,
                           const TemplateInstruction& instruction) {
  LossGradient found;
  if (instruction.ops.size() != 1) return found;
  const Op& op = graph[instruction.ops.front()];
  if (op.kind != OpKind::kCrossEntropyGrad) return found;
  for (const TemplateOperand& operand : instruction.operands) {
    if (operand.persistent) continue;
    const TensorId tensor = stage.microbatch_buffers[static_cast<std::size_t>(operand.buffer)].tensor;
    if (!operand.writes && tensor == op.inputs.front()) found.logits = operand.buffer;
    if (operand.writes && tensor == op.outputs.front()) found.gradient = operand.buffer;
  }
  return found;
}

// Whether the one instruction of `pass` is the last of its micro-batch to touch the buffer. A schedule that
// has whole and split backwards runs either for a micro-batch.
bool is_last_toucher(const StageTemplate& stage, PassKind pass, std::int32_t buffer) {
  const auto count = [&](PassKind kind) {
    const auto& list = stage.lists[static_cast<std::size_t>(kind)];
    return std::count_if(list.begin(), list.end(), [&](const TemplateInstruction& instruction) {
      return touches(instruction, buffer);
    });
  };
  if (count(pass) != 1) return false;
  return pass == PassKind::kBackward ||
         (pass == PassKind::kBackwardInput && count(PassKind::kBackwardWeight) == 0);
}

bool crosses_border(const StageTemplate& stage, std::int32_t buffer) {
  return buffer == stage.input_buffer ||
         std::count(stage.sent_buffer.begin(), stage.sent_buffer.end(), buffer) > 0;
}

bool is_of_compute_stream(const StageTemplate& stage, std::int32_t buffer) {
  return std::all_of(stage.lists.begin(), stage.lists.end(), [&](const auto& list) {
    return std::all_of(list.begin(), list.end(), [&](const TemplateInstruction& instruction) {
      return instruction.stream == kComputeStream || !touches(instruction, buffer);
    });
  });
}

}  // namespace

void put_gradients_in_place(StageTemplate& stage, const Graph& graph) {
  for (const PassKind pass : {PassKind::kBackward, PassKind::kBackwardInput}) {
    for (const TemplateInstruction& instruction : stage.lists[static_cast<std::size_t>(pass)]) {
      const LossGradient of = loss_gradient(stage, graph, instruction);
      if (of.logits < 0 || of.gradient < 0) continue;
      const Buffer& logits = stage.microbatch_buffers[static_cast<std::size_t>(of.logits)];
      Buffer& gradient = stage.microbatch_buffers[static_cast<std::size_t>(of.gradient)];
      if (logits.bytes != gradient.bytes || logits.placement != gradient.placement) continue;
      if (crosses_border(stage, of.logits) || !is_of_compute_stream(stage, of.logits) ||
          !is_last_toucher(stage, pass, of.logits)) {
        continue;
      }
      assert(of.logits < of.gradient);
      gradient.in_place_of = BufferId(of.logits);
      gradient.category = logits.category;
    }
  }
}

}  // namespace orrery
