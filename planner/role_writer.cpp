#include "planner/role_writer.hpp"

namespace orrery {

RoleWriter::RoleWriter(SymbolTable& table) : symbols(table) { role.streams = lowered_streams(); }

Instruction& RoleWriter::open(const std::string& label, LoweredStream stream, Purpose purpose) {
  instruction_ = {};
  instruction_.label = symbols.label(label);
  instruction_.stream = StreamId(stream);
  instruction_.purpose = purpose;
  instruction_.after.begin = static_cast<std::int32_t>(role.edges.size());
  instruction_.operands.begin = static_cast<std::int32_t>(role.operands.size());
  return instruction_;
}

Instruction& RoleWriter::open(const TemplateInstruction& planned, std::int32_t microbatch) {
  instruction_ = {};
  instruction_.label = planned.label;
  instruction_.layer = planned.layer;
  instruction_.microbatch = microbatch;
  instruction_.stream = StreamId(planned.stream);
  instruction_.purpose = planned.purpose;
  instruction_.work = planned.work;
  instruction_.part = planned.part;
  instruction_.piece = planned.piece;
  instruction_.ops.begin = static_cast<std::int32_t>(role.ops.size());
  role.ops.insert(role.ops.end(), planned.ops.begin(), planned.ops.end());
  instruction_.ops.end = static_cast<std::int32_t>(role.ops.size());
  instruction_.after.begin = static_cast<std::int32_t>(role.edges.size());
  instruction_.operands.begin = static_cast<std::int32_t>(role.operands.size());
  return instruction_;
}

void RoleWriter::after(std::int32_t instruction) {
  if (instruction >= 0) role.edges.push_back({instruction, false});
}

std::int32_t RoleWriter::close() {
  instruction_.after.end = static_cast<std::int32_t>(role.edges.size());
  instruction_.operands.end = static_cast<std::int32_t>(role.operands.size());
  const auto index = static_cast<std::int32_t>(role.instructions.size());
  if (instruction_.stream.value == kComputeStream) last_compute_ = index;
  role.instructions.push_back(instruction_);
  return index;
}

}  // namespace orrery
