#include "planner/stage_dependencies.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace orrery {
namespace {

// Who touches a buffer, or a piece of one, in the order of the list.
struct Touchers {
  std::int32_t writer = -1;
  std::vector<std::int32_t> readers;  // Since then.
};

// Of a buffer that instructions touch piece by piece: one for each; else one.
using Pieces = std::vector<Touchers>;

class ListDependencies {
 public:
  ListDependencies(StageTemplate& stage, PassKind pass)
      : stage_(stage),
        kind_(static_cast<std::size_t>(pass)),
        list_(stage.lists[kind_]),
        // A backward reads what the forward received, but waits for the gradient alone.
        received_(pass == PassKind::kForward ? stage.input_buffer : stage.output_gradient_buffer),
        touchers_{std::vector<Pieces>(stage.microbatch_buffers.size(), Pieces(1)),
                  std::vector<Pieces>(stage.persistent_buffers.size(), Pieces(1))},
        waits_for_input_(kLoweredStreams) {}

  void run(bool blocking) {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      TemplateInstruction& instruction = list_[i];
      instruction.after.clear();
      for (const TemplateOperand& operand : instruction.operands) wait(instruction, operand);
      if (blocking) wait_for_previous(index);
      if (instruction.ahead) wait_for(instruction, last_compute_);
      for (const TemplateOperand& operand : instruction.operands) note(instruction, operand, index);
      if (instruction.stream == kComputeStream) last_compute_ = index;
      std::sort(instruction.after.begin(), instruction.after.end());
    }
    stage_.sent_ready[kind_] = writer_of({stage_.sent_buffer[kind_], false, false});
    for (TemplateParameter& parameter : stage_.parameters) {
      parameter.ready[kind_] = writer_of({parameter.gradient, true, false});
    }
  }

 private:
  // What the instruction touches of the buffer: one piece of a buffer of the micro-batch that has as many, or
  // all.
  std::span<Touchers> touched(const TemplateInstruction& instruction, const TemplateOperand& operand) {
    Pieces& pieces = pieces_of(operand);
    if (instruction.piece.of == 1 || operand.persistent) return pieces;
    if (pieces.size() == 1) pieces.resize(static_cast<std::size_t>(instruction.piece.of), pieces.front());
    return std::span(pieces).subspan(static_cast<std::size_t>(instruction.piece.index), 1);
  }
  Pieces& pieces_of(const TemplateOperand& operand) {
    return touchers_[operand.persistent ? 1 : 0][static_cast<std::size_t>(operand.buffer)];
  }
  std::int32_t writer_of(const TemplateOperand& operand) {
    std::int32_t last = -1;
    if (operand.buffer < 0) return last;
    for (const Touchers& piece : pieces_of(operand)) last = std::max(last, piece.writer);
    return last;
  }

  // Streams are in order, so the last one of each is enough.
  void wait_for(TemplateInstruction& instruction, std::int32_t on) {
    if (on < 0) return;
    const std::int32_t stream = list_[static_cast<std::size_t>(on)].stream;
    if (stream == instruction.stream) return;
    for (std::int32_t& known : instruction.after) {
      if (list_[static_cast<std::size_t>(known)].stream != stream) continue;
      known = std::max(known, on);
      return;
    }
    instruction.after.push_back(on);
  }

  // A message sent and the one received beside it wait for each other on some other rank, so only what comes
  // after waits for both.
  void wait_for_previous(std::int32_t index) {
    const auto beside = [&](std::int32_t i) {
      return i >= 0 && list_[static_cast<std::size_t>(i)].with_next;
    };
    TemplateInstruction& instruction = list_[static_cast<std::size_t>(index)];
    const std::int32_t previous = beside(index - 1) ? index - 2 : index - 1;
    wait_for(instruction, previous);
    if (beside(previous - 1)) wait_for(instruction, previous - 1);
  }

  void wait(TemplateInstruction& instruction, const TemplateOperand& operand) {
    for (const Touchers& before : touched(instruction, operand)) {
      wait_for(instruction, before.writer);
      if (!operand.writes) continue;
      for (const std::int32_t reader : before.readers) wait_for(instruction, reader);
    }
    const bool received = !operand.persistent && operand.buffer == received_;
    if (received && !waits_for_input_[static_cast<std::size_t>(instruction.stream)]) {
      waits_for_input_[static_cast<std::size_t>(instruction.stream)] = true;
      instruction.reads_input = true;
    }
  }

  void note(const TemplateInstruction& instruction, const TemplateOperand& operand, std::int32_t index) {
    for (Touchers& piece : touched(instruction, operand)) {
      if (operand.writes) {
        piece.writer = index;
        piece.readers.clear();
      } else {
        piece.readers.push_back(index);
      }
    }
  }

  StageTemplate& stage_;
  std::size_t kind_;
  std::vector<TemplateInstruction>& list_;
  std::int32_t received_;
  std::array<std::vector<Pieces>, 2> touchers_;  // [persistent], by buffer.
  std::vector<bool> waits_for_input_;            // By stream.
  std::int32_t last_compute_ = -1;
};

}  // namespace

void set_dependencies(StageTemplate& stage, bool blocking) {
  for (const PassKind pass :
       {PassKind::kForward, PassKind::kBackward, PassKind::kBackwardInput, PassKind::kBackwardWeight}) {
    if (!stage.lists[static_cast<std::size_t>(pass)].empty()) ListDependencies(stage, pass).run(blocking);
  }
}

}  // namespace orrery
