#include "planner/schedule_diagram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr std::string_view kUpper = "FBIW", kLower = "fbiw", kFill = "-=~'";

void draw(std::string& line, const Pass& pass, std::size_t from, std::size_t to) {
  const auto kind = static_cast<std::size_t>(pass.kind);
  const std::string text = (pass.chunk % 2 == 0 ? kUpper : kLower)[kind] + std::to_string(pass.microbatch);
  for (std::size_t column = from; column < to; ++column) {
    line[column] = column - from < text.size() ? text[column - from] : kFill[kind];
  }
  // Where the number doesn't fit, its last digits tell more.
  const std::size_t room = to - from;
  if (room > 1 && room < text.size()) {
    std::copy(text.end() - static_cast<std::ptrdiff_t>(room - 1), text.end(),
              line.begin() + static_cast<std::ptrdiff_t>(from + 1));
  }
}

}  // namespace

std::string pipeline_diagram(const Schedule& schedule, const ScheduleTiming& timing, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 20));
  const double scale = timing.makespan > 0 ? static_cast<double>(columns) / timing.makespan : 0;
  const auto column = [&](double time) {
    return std::min(columns, static_cast<std::size_t>(std::lround(time * scale)));
  };
  const std::size_t digits = std::to_string(schedule.shape.ranks - 1).size();
  std::string text;
  for (std::size_t rank = 0; rank < schedule.passes.size(); ++rank) {
    std::string line(columns, '.');
    const std::vector<Pass>& passes = schedule.passes[rank];
    for (std::size_t i = 0; i < passes.size(); ++i) {
      PassSpan span = timing.spans[rank][i];
      const auto same = [&](std::size_t other) {
        return timing.spans[rank][other].start == span.start && timing.spans[rank][other].end == span.end;
      };
      const double middle = (span.start + span.end) / 2;
      if (passes[i].overlaps_next && i + 1 < passes.size() && same(i + 1))
        span.end = middle;
      else if (i > 0 && passes[i - 1].overlaps_next && same(i - 1))
        span.start = middle;
      draw(line, passes[i], column(span.start), column(span.end));
    }
    text += fmt::format("rank {:{}} |{}|\n", rank, digits, line);
  }
  return text;
}

}  // namespace orrery
