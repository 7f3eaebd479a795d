#include "planner/place_buffers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace orrery {

std::vector<MemoryPlan> place_buffers(Program& program) {
  std::vector<MemoryPlan> plans;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const RoleId role(static_cast<std::int64_t>(r));
    plans.push_back(plan_memory(program, role));
    const std::vector<std::string> faults = verify(plans.back(), program, role);
    if (!faults.empty()) {
      fail(ErrorKind::kRuntime, "the memory plan of {} is wrong, which is a fault of orrery: {}",
           program.roles[r].name, fmt::join(faults, "\n"));
    }
  }
  for (std::size_t r = 0; r < program.roles.size(); ++r) apply(plans[r], program.roles[r]);
  return plans;
}

}  // namespace orrery
