#pragma once
// A Timeline seen rank by rank, so that a folded one can be held against an unfolded one.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "model/timeline.hpp"

namespace orrery::testing {

struct RankSpan {
  std::int32_t instruction = 0;
  SimTime start, ready, end;
  bool operator==(const RankSpan&) const = default;
};

// Of each rank, in the Timeline's order.
inline std::vector<std::vector<RankSpan>> by_rank(const Program& program, const Timeline& timeline) {
  std::vector<std::vector<RankSpan>> ranks(program.role_of.size());
  for (const Span& span : timeline.spans)
    for (const RankId rank : timeline.classes[static_cast<std::size_t>(span.rank_class)].ranks)
      ranks[rank.index()].push_back({span.first, span.start, span.ready, span.end});
  return ranks;
}

}  // namespace orrery::testing
