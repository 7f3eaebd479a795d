#include "model/program_verify_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery {
namespace {

class InPlaceChecker {
 public:
  InPlaceChecker(const Program& program, const Role& role) : program_(program), role_(role) {}

  std::vector<std::string> check() {
    const bool any = std::any_of(role_.buffers.begin(), role_.buffers.end(),
                                 [](const Buffer& buffer) { return buffer.in_place_of.valid(); });
    if (!any) return {};
    find_uses();
    for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
      if (role_.buffers[b].in_place_of.valid()) check(b);
    }
    return std::move(faults_);
  }

 private:
  // Instructions that touch a buffer; −1: none does.
  struct Use {
    std::int32_t first = -1, last = -1;
    bool begins_by_writing = false;
  };

  void find_uses() {
    uses_.resize(role_.buffers.size());
    for (std::size_t i = 0; i < role_.instructions.size(); ++i) {
      const Range operands = role_.instructions[i].operands;
      for (std::int32_t o = operands.begin; o < operands.end; ++o) {
        const Operand& operand = role_.operands[static_cast<std::size_t>(o)];
        Use& use = uses_[operand.buffer.index()];
        use.last = static_cast<std::int32_t>(i);
        if (use.first < 0) use.first = use.last;
        if (use.first == use.last && operand.writes) use.begins_by_writing = true;
      }
    }
  }

  template <class... Args>
  void report(const Buffer& buffer, fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format("role '{}': buffer {}: {}", role_.name, buffer_name(program_, buffer),
                                  fmt::format(format, std::forward<Args>(args)...)));
  }
  std::string instruction(std::int32_t index) const {
    return instruction_name(program_, role_.instructions[static_cast<std::size_t>(index)]);
  }

  void check(std::size_t index) {
    const Buffer& buffer = role_.buffers[index];
    if (buffer.in_place_of.index() >= index) {
      return report(buffer, "is in place of buffer {}, which isn't declared before it",
                    buffer.in_place_of.value);
    }
    const Buffer& other = role_.buffers[buffer.in_place_of.index()];
    if (other.bytes != buffer.bytes || other.category != buffer.category) {
      report(buffer, "is in place of a buffer of another size or category");
    }
    if (other.persistent || buffer.persistent) {
      report(buffer, "is in place of another, and persistent buffers keep their memory");
    }
    if (!taken_.insert(buffer.in_place_of.value).second) {
      report(buffer, "another buffer is in place of the same one");
    }
    const Use& use = uses_[index];
    const Use& before = uses_[buffer.in_place_of.index()];
    if (use.first < 0)
      return report(buffer, "nothing touches it, in place of {}", buffer_name(program_, other));
    if (!use.begins_by_writing) {
      report(buffer, "{} is the first to touch it and doesn't write it, in place of {}",
             instruction(use.first), buffer_name(program_, other));
    }
    if (before.last > use.first) {
      report(buffer, "{} touches {} after {} has begun this one in its place", instruction(before.last),
             buffer_name(program_, other), instruction(use.first));
    }
  }

  const Program& program_;
  const Role& role_;
  std::vector<Use> uses_;         // By buffer.
  std::set<std::int64_t> taken_;  // Buffers that another one is in place of.
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify_in_place(const Program& program, const Role& role) {
  return InPlaceChecker(program, role).check();
}

}  // namespace orrery
