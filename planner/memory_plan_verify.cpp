// A sweep over two steps in the order in which buffers are begun, with the last owner of every address at
// hand: a buffer that begins must know that every owner it replaces has ended. That "has ended before"
// carries over from owner to owner is why the last one is enough.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/memory_plan.hpp"

namespace orrery {
namespace {

class PlanChecker {
 public:
  PlanChecker(const MemoryPlan& plan, const Program& program, RoleId role, std::int64_t alignment)
      : plan_(plan),
        program_(program),
        role_(program.roles[role.index()]),
        order_(program, role),
        alignment_(alignment),
        touchers_(role_.buffers.size()) {
    for (std::size_t i = 0; i < role_.instructions.size(); ++i) {
      const Range operands = role_.instructions[i].operands;
      for (std::int32_t o = operands.begin; o < operands.end; ++o) {
        touchers_[role_.operands[static_cast<std::size_t>(o)].buffer.index()].push_back(i);
      }
    }
  }

  std::vector<std::string> check() {
    std::vector<std::size_t> begun;
    for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
      if (!check_place(b) || role_.buffers[b].bytes == 0) continue;
      if (role_.buffers[b].persistent) {
        own(b, 0);
      } else {
        begun.push_back(b);
      }
    }
    std::stable_sort(begun.begin(), begun.end(), [&](std::size_t a, std::size_t b) {
      return touchers_[a].front() < touchers_[b].front();
    });
    for (const int step : {0, 1}) {
      for (const std::size_t b : begun) own(b, step);
    }
    return std::move(faults_);
  }

 private:
  std::string name(std::size_t buffer) const { return buffer_name(program_, role_.buffers[buffer]); }
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(
        fmt::format("role '{}': {}", role_.name, fmt::format(format, std::forward<Args>(args)...)));
  }

  // Whether it has memory, and may be looked at further.
  bool check_place(std::size_t b) {
    const Buffer& buffer = role_.buffers[b];
    const std::int64_t offset = plan_.offsets[b];
    const bool needed = buffer.persistent || !touchers_[b].empty();
    if (offset < 0) {
      if (needed) report("buffer {} has no offset", name(b));
      return false;
    }
    const std::int64_t begin = buffer.persistent ? 0 : plan_.persistent_bytes;
    const std::int64_t end = buffer.persistent ? plan_.persistent_bytes : plan_.arena_bytes;
    if (offset < begin || offset > end || buffer.bytes > end - offset) {
      report("buffer {} has {} bytes at {}, outside its region from {} to {}", name(b), buffer.bytes, offset,
             begin, end);
      return false;
    }
    if (offset % alignment_ != 0)
      report("buffer {} begins at {}, no multiple of {}", name(b), offset, alignment_);
    if (const BufferId other = buffer.in_place_of; other.valid() && offset != plan_.offsets[other.index()])
      report("buffer {} begins at {}, and not in place of {}", name(b), offset, name(other.index()));
    return needed;
  }

  struct Owner {
    std::int64_t end = 0;
    std::size_t buffer = 0;
    int step = 0;
  };

  void own(std::size_t b, int step) {
    const std::int64_t begin = plan_.offsets[b], end = begin + role_.buffers[b].bytes;
    auto at = owners_.upper_bound(begin);
    if (at != owners_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != owners_.end() && at->first < end) {
      const auto [first, owner] = *at;
      compare(owner, b, step);
      at = owners_.erase(at);
      if (first < begin) owners_[first] = {begin, owner.buffer, owner.step};
      if (owner.end > end) at = owners_.emplace(end, owner).first;
    }
    owners_[begin] = {end, b, step};
  }

  void compare(const Owner& owner, std::size_t b, int step) {
    if (role_.buffers[owner.buffer].persistent || role_.buffers[b].persistent) {
      return report("buffers {} and {} share bytes and one is persistent", name(owner.buffer), name(b));
    }
    if (reported_.contains({owner.buffer, b})) return;
    const bool previous_step = step != owner.step;
    const BufferId other = role_.buffers[b].in_place_of;
    const bool takes_over = !previous_step && other.valid() && other.index() == owner.buffer;
    for (const std::size_t i : touchers_[owner.buffer]) {
      const std::size_t stream = role_.instructions[i].stream.index();
      const std::int32_t count = order_.count(i) - (previous_step ? order_.length(stream) : 0);
      for (const std::size_t j : touchers_[b]) {
        if (order_.known(j)[stream] >= count || (takes_over && i == j)) continue;
        reported_.emplace(owner.buffer, b);
        const std::string ender = instruction_name(program_, role_.instructions[i]);
        const std::string beginner = instruction_name(program_, role_.instructions[j]);
        if (owner.buffer == b) {
          return report(
              "buffer {}: nothing says that {} of the step before has ended when {} begins; expected it "
              "to come after @prev {}",
              name(b), ender, beginner, ender);
        }
        return report("buffers {} and {} share bytes, and nothing says that {}{} has ended when {} begins",
                      name(owner.buffer), name(b), ender, previous_step ? " of the step before" : "",
                      beginner);
      }
    }
  }

  const MemoryPlan& plan_;
  const Program& program_;
  const Role& role_;
  ExecutionOrder order_;
  std::int64_t alignment_;
  std::vector<std::vector<std::size_t>> touchers_;  // By buffer: instructions.
  std::map<std::int64_t, Owner> owners_;            // By first byte: apart from each other.
  std::set<std::pair<std::size_t, std::size_t>> reported_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify(const MemoryPlan& plan, const Program& program, RoleId role,
                                const MemoryPlanOptions& options) {
  return PlanChecker(plan, program, role, options.alignment_bytes).check();
}

}  // namespace orrery
