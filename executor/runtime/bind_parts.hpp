#pragma once
// The parts of binding; for the sources beside this file.

#include <string>
#include <vector>

#include "executor/runtime/bound.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::host {

// Memory of one launch, laid out before it exists: offsets become addresses once the largest is known.
class LaunchScratch {
 public:
  void begin() { used_ = 0; }
  // A view whose data is an offset; resolve() makes it an address.
  TensorView take(DType dtype, std::int64_t elements);
  std::int64_t bytes() const { return largest_; }

 private:
  std::int64_t used_ = 0, largest_ = 0;
};

// What the instruction does by itself. `begun`: by buffer, whether an earlier instruction has written it in
// this step; kept up to date.
std::vector<Action> bind_compute(Tables& tables, RankId rank, std::int32_t instruction, std::byte* scratch,
                                 LaunchScratch& layout, std::vector<bool>& begun);

// THROWS Error(kRuntime): the Program asks for something that can't be done as it stands.
[[noreturn]] void refuse(const Tables& tables, RankId rank, const Instruction& instruction,
                         const std::string& what);

Exchange bind_exchange(Tables& tables, RankId rank, std::int32_t instruction);

}  // namespace orrery::host
