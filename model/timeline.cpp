#include "model/timeline.hpp"

#include <fmt/format.h>

#include "base/units.hpp"

namespace orrery {

std::string to_text(const Program& program, const Timeline& timeline) {
  std::vector<std::int32_t> classes_of(program.roles.size());
  for (const RankClass& one : timeline.classes) ++classes_of[one.role.index()];
  std::string text;
  for (const Span& span : timeline.spans) {
    const RankClass& of = timeline.classes[static_cast<std::size_t>(span.rank_class)];
    const Role& role = program.roles[of.role.index()];
    text += instruction_name(program, role.instructions[static_cast<std::size_t>(span.first)]);
    if (span.last != span.first) {
      text += ".." + instruction_name(program, role.instructions[static_cast<std::size_t>(span.last)]);
    }
    if (classes_of[of.role.index()] > 1) text += fmt::format(" (rank {})", of.ranks.front().value);
    text += fmt::format(" {}..{}\n", exact_time(span.start), exact_time(span.end));
  }
  return text;
}

}  // namespace orrery
