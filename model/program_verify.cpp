// What makes a Program sound. Ranks are many and roles are few: whatever two ranks have to agree on is
// checked once per pair of roles and remembered.

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "base/random.hpp"
#include "model/program.hpp"
#include "model/program_verify_buffers.hpp"
#include "model/program_verify_ranks.hpp"

namespace orrery {
namespace {

using Faults = std::vector<std::string>;

template <class T>
bool within(const std::vector<T>& all, std::int32_t index) {
  return index >= 0 && static_cast<std::size_t>(index) < all.size();
}

template <class T>
bool within(const std::vector<T>& all, Range range) {
  return range.begin >= 0 && range.begin <= range.end && static_cast<std::size_t>(range.end) <= all.size();
}

// ---- Each part by itself.

// Names that occur a second time.
template <class Items, class NameOf>
void check_unique(const Items& items, std::string_view what, const NameOf& name_of, Faults& faults) {
  std::set<std::string_view> seen;
  for (const auto& item : items) {
    const std::string& name = name_of(item);
    if (!seen.insert(name).second) faults.push_back(fmt::format("{} '{}' appears twice", what, name));
  }
}

void check_kernels(const Program& program, Faults& faults) {
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel& kernel = program.kernels[i];
    if (!within(program.labels, kernel.label.value)) {
      faults.push_back(fmt::format("kernel {} has no label", i));
      continue;
    }
    const bool sizes = kernel.m >= 0 && kernel.n >= 0 && kernel.k >= 0 && kernel.batch >= 0 &&
                       kernel.read_bytes >= 0 && kernel.written_bytes >= 0 && kernel.fixed >= SimTime{};
    const bool arithmetic = std::isfinite(kernel.flops) && kernel.flops >= 0;
    if (!sizes || !arithmetic) {
      faults.push_back(fmt::format("kernel '{}' has a negative or infinite size, time or arithmetic",
                                   program.labels[kernel.label.index()]));
    }
  }
}

void check_ranks(const Program& program, Faults& faults) {
  if (program.device_of.size() != program.role_of.size()) {
    faults.push_back(fmt::format("{} devices for {} ranks; expected one per rank", program.device_of.size(),
                                 program.role_of.size()));
    return;
  }
  std::map<std::int32_t, std::size_t> rank_on;
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
    const RoleId role = program.role_of[rank];
    if (role.valid() && !within(program.roles, role.value)) {
      faults.push_back(fmt::format("rank {} plays role {}, and there are {} roles", rank, role.value,
                                   program.roles.size()));
    }
    const std::int32_t device = program.device_of[rank];
    if (device < -1 || (device < 0 && role.valid())) {
      faults.push_back(fmt::format("rank {} has no device; only an idle rank may be without", rank));
    }
    if (device < 0) continue;
    const auto [other, free] = rank_on.try_emplace(device, rank);
    if (!free) {
      faults.push_back(fmt::format("ranks {} and {} are both on device {}", other->second, rank, device));
    }
  }
}

void check_axes(const Program& program, Faults& faults) {
  for (const Axis& axis : program.axes) {
    std::vector<std::int32_t> group_of(program.role_of.size(), -1);
    for (std::size_t group = 0; group < axis.groups.size(); ++group) {
      if (axis.groups[group].empty()) {
        faults.push_back(fmt::format("axis '{}': group {} is empty", axis.name, group));
      }
      for (const RankId rank : axis.groups[group]) {
        if (!within(program.role_of, rank.value)) {
          faults.push_back(fmt::format("axis '{}': group {} names rank {}, and there are {} ranks", axis.name,
                                       group, rank.value, program.role_of.size()));
          continue;
        }
        std::int32_t& taken = group_of[rank.index()];
        if (taken >= 0) {
          faults.push_back(fmt::format("axis '{}': rank {} is in groups {} and {}; expected one", axis.name,
                                       rank.value, taken, group));
        }
        taken = static_cast<std::int32_t>(group);
      }
    }
  }
}

void check_placements(const Program& program, Faults& faults) {
  for (std::size_t p = 0; p < program.placements.size(); ++p) {
    for (const Split& split : program.placements[p].splits) {
      if (!within(program.axes, split.axis.value)) {
        faults.push_back(
            fmt::format("placement {} divides over axis {} of {}", p, split.axis.value, program.axes.size()));
      }
      if (!within(program.sizes, split.dim.value)) {
        faults.push_back(
            fmt::format("placement {} divides dimension {} of {}", p, split.dim.value, program.sizes.size()));
      }
    }
  }
  if (!program.first_microbatch.empty() && program.first_microbatch.size() != program.role_of.size()) {
    faults.push_back(fmt::format("{} first micro-batches for {} ranks; expected one per rank",
                                 program.first_microbatch.size(), program.role_of.size()));
  }
}

// ---- Each role by itself.

struct NameHash {
  std::size_t operator()(const std::tuple<std::int32_t, std::int32_t, std::int32_t>& name) const noexcept {
    const auto [label, layer, microbatch] = name;
    const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(layer)) << 32U;
    return mix64(mix64(high | static_cast<std::uint32_t>(label)) + static_cast<std::uint32_t>(microbatch));
  }
};
using NameSet = std::unordered_set<std::tuple<std::int32_t, std::int32_t, std::int32_t>, NameHash>;

class RoleChecker {
 public:
  RoleChecker(const Program& program, const Role& role, Faults& faults)
      : program_(program), role_(role), faults_(faults) {}

  void check() {
    check_unique(
        role_.streams, fmt::format("role '{}': stream", role_.name),
        [](const Stream& stream) -> const std::string& { return stream.name; }, faults_);
    for (std::size_t b = 0; b < role_.buffers.size(); ++b) check_buffer(b);
    for (std::size_t i = 0; i < role_.instructions.size(); ++i)
      check_instruction(static_cast<std::int32_t>(i));
  }

 private:
  template <class... Args>
  void report(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(
        fmt::format("role '{}': {}: {}", role_.name, name, fmt::format(format, std::forward<Args>(args)...)));
  }

  void check_buffer(std::size_t index) {
    const Buffer& buffer = role_.buffers[index];
    if (!within(program_.labels, buffer.label.value)) return report("a buffer", "has no label");
    const auto name = [&] { return "buffer " + buffer_name(program_, buffer); };
    if (!buffers_.insert({buffer.label.value, buffer.layer, buffer.microbatch}).second) {
      report(name(), "the name appears twice");
    }
    if (buffer.layer < -1 || buffer.microbatch < -1) report(name(), "negative layer or micro-batch");
    if (buffer.bytes < 0 || buffer.offset < -1) report(name(), "negative size or offset");
    if (buffer.placement.valid() && !within(program_.placements, buffer.placement.value)) {
      report(name(), "placement {} of {}", buffer.placement.value, program_.placements.size());
    }
    if (!buffer.behind.valid()) return;
    if (buffer.behind.value < 0 || buffer.behind.index() >= index) {
      return report(name(), "is behind buffer {}, which isn't declared before it", buffer.behind.value);
    }
    const Buffer& before = role_.buffers[buffer.behind.index()];
    if (before.category != buffer.category || before.persistent != buffer.persistent) {
      report(name(), "is behind a buffer of another category or lifetime");
    }
    if (!followed_.insert(buffer.behind.value).second)
      report(name(), "another buffer is behind the same one");
  }

  void check_instruction(std::int32_t index) {
    const Instruction& instruction = role_.instructions[static_cast<std::size_t>(index)];
    if (!within(program_.labels, instruction.label.value)) {
      return report(fmt::format("instruction {}", index), "has no label");
    }
    const auto name = [&] { return instruction_name(program_, instruction); };
    if (!names_.insert({instruction.label.value, instruction.layer, instruction.microbatch}).second) {
      report(name(), "the name appears twice");
    }
    if (instruction.layer < -1 || instruction.microbatch < -1)
      report(name(), "negative layer or micro-batch");
    if (!within(role_.streams, instruction.stream.value)) {
      report(name(), "stream {} of {}", instruction.stream.value, role_.streams.size());
    }
    check_edges(index, instruction);
    check_operands(instruction);
    check_work(instruction);
  }

  // In issue order a dependency can only point backward, and streams run in issue order: so nothing can be
  // in a cycle.
  void check_edges(std::int32_t index, const Instruction& instruction) {
    if (!within(role_.edges, instruction.after)) {
      return report(instruction_name(program_, instruction), "its dependencies lie outside the role's edges");
    }
    for (std::int32_t i = instruction.after.begin; i < instruction.after.end; ++i) {
      const Edge edge = role_.edges[static_cast<std::size_t>(i)];
      if (!within(role_.instructions, edge.instruction)) {
        report(instruction_name(program_, instruction), "waits for instruction {} of {}", edge.instruction,
               role_.instructions.size());
      } else if (!edge.previous_step && edge.instruction >= index) {
        const Instruction& later = role_.instructions[static_cast<std::size_t>(edge.instruction)];
        const bool labelled = within(program_.labels, later.label.value);
        report(
            instruction_name(program_, instruction),
            "waits for {}, which comes no earlier; expected an earlier instruction or the previous step",
            labelled ? instruction_name(program_, later) : fmt::format("instruction {}", edge.instruction));
      }
    }
  }

  void check_operands(const Instruction& instruction) {
    if (!within(role_.operands, instruction.operands)) {
      return report(instruction_name(program_, instruction), "its operands lie outside the role's operands");
    }
    for (std::int32_t i = instruction.operands.begin; i < instruction.operands.end; ++i) {
      const BufferId buffer = role_.operands[static_cast<std::size_t>(i)].buffer;
      if (within(role_.buffers, buffer.value)) continue;
      report(instruction_name(program_, instruction), "touches buffer {} of {}", buffer.value,
             role_.buffers.size());
    }
    if (!within(role_.ops, instruction.ops)) {
      report(instruction_name(program_, instruction), "its ops lie outside the role's ops");
    }
  }

  void check_work(const Instruction& instruction) {
    const auto name = [&] { return instruction_name(program_, instruction); };
    const auto check_axis = [&](AxisId axis) {
      if (!within(program_.axes, axis.value)) {
        report(name(), "axis {} of {}", axis.value, program_.axes.size());
      }
    };
    if (const auto* const compute = std::get_if<Compute>(&instruction.work)) {
      if (!within(program_.kernels, compute->kernel.value)) {
        report(name(), "kernel {} of {}", compute->kernel.value, program_.kernels.size());
      }
    } else if (const auto* const send = std::get_if<Send>(&instruction.work)) {
      check_axis(send->axis);
      if (send->bytes < 0) report(name(), "sends {} bytes", send->bytes);
    } else if (const auto* const recv = std::get_if<Recv>(&instruction.work)) {
      check_axis(recv->axis);
      if (recv->bytes < 0) report(name(), "receives {} bytes", recv->bytes);
    } else if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
      check_axis(collective->axis);
      if (collective->bytes <= 0) {
        report(name(), "{} of {} bytes; expected at least one, or no collective at all",
               to_string(collective->kind), collective->bytes);
      }
    } else if (std::get<Copy>(instruction.work).bytes < 0) {
      report(name(), "copies {} bytes", std::get<Copy>(instruction.work).bytes);
    }
  }

  const Program& program_;
  const Role& role_;
  Faults& faults_;
  NameSet names_;
  NameSet buffers_;
  std::set<std::int64_t> followed_;  // Buffers that another one is behind.
};

}  // namespace

std::vector<std::string> verify(const Program& program) {
  Faults faults;
  const auto named = [](const auto& item) -> const std::string& { return item.name; };
  check_unique(
      program.labels, "label", [](const std::string& label) -> const std::string& { return label; }, faults);
  check_unique(program.roles, "role", named, faults);
  check_unique(program.axes, "axis", named, faults);
  check_kernels(program, faults);
  check_ranks(program, faults);
  check_axes(program, faults);
  check_placements(program, faults);
  for (const Role& role : program.roles) RoleChecker(program, role, faults).check();
  // What follows can only be asked of a program whose parts exist.
  if (!faults.empty()) return faults;
  for (const Role& role : program.roles) {
    for (std::string& fault : verify_in_place(program, role)) faults.push_back(std::move(fault));
  }
  if (faults.empty()) faults = verify_communication(program);
  return faults;
}

}  // namespace orrery
