#include "simulator/compare_engines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>

namespace orrery {
namespace {

std::int64_t apart(SimTime a, SimTime b) { return std::abs((a - b).picoseconds); }

double relative(std::int64_t difference, SimTime a, SimTime b) {
  const std::int64_t whole = std::max({a.picoseconds, b.picoseconds, std::int64_t{1}});
  return static_cast<double>(difference) / static_cast<double>(whole);
}

}  // namespace

EngineDifference compare_engines(const Timeline& a, const Timeline& b) {
  assert(a.spans.size() == b.spans.size());
  EngineDifference difference;
  for (std::size_t s = 0; s < a.spans.size(); ++s) {
    const Span& in_a = a.spans[s];
    const Span& in_b = b.spans[s];
    assert(in_a.rank_class == in_b.rank_class && in_a.first == in_b.first);
    const std::int64_t largest = std::max({apart(in_a.start - a.step_start, in_b.start - b.step_start),
                                           apart(in_a.ready - a.step_start, in_b.ready - b.step_start),
                                           apart(in_a.end - a.step_start, in_b.end - b.step_start)});
    if (largest <= difference.largest.picoseconds) continue;
    difference.largest = {largest};
    difference.rank_class = in_a.rank_class;
    difference.instruction = in_a.first;
  }
  difference.relative = relative(difference.largest.picoseconds, a.step_time, b.step_time);
  difference.step_time = {apart(a.step_time, b.step_time)};
  difference.makespan = {apart(a.makespan, b.makespan)};
  difference.step_relative = std::max(relative(difference.step_time.picoseconds, a.step_time, b.step_time),
                                      relative(difference.makespan.picoseconds, a.makespan, b.makespan));
  return difference;
}

std::string to_text(const EngineDifference& difference, const Program& program, const Timeline& timeline) {
  std::string text = fmt::format("largest difference {} ps ({:.1e} of a step)",
                                 difference.largest.picoseconds, difference.relative);
  if (difference.rank_class < 0) return text;
  const RankClass& of = timeline.classes[static_cast<std::size_t>(difference.rank_class)];
  const Role& role = program.roles[of.role.index()];
  const Instruction& instruction = role.instructions[static_cast<std::size_t>(difference.instruction)];
  return text +
         fmt::format(" at '{}' of rank {}", instruction_name(program, instruction), of.ranks.front().value);
}

}  // namespace orrery
