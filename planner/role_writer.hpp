#pragma once
// Appends instructions to a role: the shared arrays' bookkeeping in one place.

#include <string>

#include "model/program.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

class RoleWriter {
 public:
  explicit RoleWriter(SymbolTable& symbols);

  // An instruction is opened, gets its dependencies and operands, and is closed; one at a time.
  Instruction& open(const std::string& label, LoweredStream stream, Purpose purpose);
  Instruction& open(const TemplateInstruction& planned, std::int32_t microbatch);
  void after(std::int32_t instruction);  // −1: nothing.
  void after_previous_step(std::int32_t instruction) { role.edges.push_back({instruction, true}); }
  void touch(std::int32_t buffer, bool writes) { role.operands.push_back({BufferId(buffer), writes}); }
  std::int32_t close();

  std::int32_t last_compute() const { return last_compute_; }

  Role role;
  SymbolTable& symbols;

 private:
  Instruction instruction_;
  std::int32_t last_compute_ = -1;
};

}  // namespace orrery
