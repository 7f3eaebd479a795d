// All-to-alls: every rank has a part of its payload for each other rank, and ends with a part of each.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "planner/collective_schedules.hpp"

namespace orrery::collective {
namespace {

// NCCL runs so many messages of a rank at a time on the channels of a batch (docs: 8 operations of one
// batch).
constexpr std::int32_t kAtATime = 8;

struct Round {
  std::int32_t groups_on = 0, local_on = 0;
};

// NCCL's rounds: the groups further on follow x(x + 1)/2 modulo the next power of two of their number, those
// past the end left out; in a group one place after the other. Every round is a permutation of the ranks.
std::vector<Round> rounds(std::int32_t groups, std::int32_t size) {
  const auto modulus = std::bit_ceil(static_cast<std::uint32_t>(groups));
  std::vector<Round> list;
  for (std::uint32_t x = 0, on = 0; x < modulus; on = (on + ++x) % modulus) {
    if (on >= static_cast<std::uint32_t>(groups)) continue;
    for (std::int32_t local = 0; local < size; ++local)
      list.push_back({static_cast<std::int32_t>(on), local});
  }
  return list;
}

// The cycles of a round's permutation: a rank sends to the next and receives from the one before.
std::vector<std::vector<RankId>> cycles(const Grid& grid, const Round& round) {
  std::vector<std::vector<RankId>> groups;
  std::vector<char> seen(static_cast<std::size_t>(grid.ranks), 0);
  for (std::int32_t first = 0; first < grid.ranks; ++first) {
    if (seen[static_cast<std::size_t>(first)]) continue;
    groups.emplace_back();
    for (std::int32_t rank = first; !seen[static_cast<std::size_t>(rank)];) {
      seen[static_cast<std::size_t>(rank)] = 1;
      groups.back().emplace_back(rank);
      rank = (grid.node(rank) + round.groups_on) % grid.nodes * grid.per_node +
             (grid.local(rank) + round.local_on) % grid.per_node;
    }
  }
  return groups;
}

Part result() { return {DataBuffer::kResult, {}}; }
Part staging() { return {DataBuffer::kStaging, {}}; }

}  // namespace

Schedule pairwise_schedule(Scribe& scribe, const Grid& grid) {
  std::vector<AxisId> axes;
  const std::vector<Round> list = rounds(grid.nodes, grid.per_node);
  for (const Round& round : list)
    if (round.groups_on != 0 || round.local_on != 0)
      axes.push_back(
          scribe.add_axis(fmt::format("to{}+{}", round.groups_on, round.local_on), cycles(grid, round)));
  const auto write = [=, &scribe](std::int32_t) {
    std::int32_t number = 0;
    for (const AxisId axis : axes) {
      const std::int32_t lane = number++ % kAtATime;
      scribe.send({axis, 1, 0, 1, 1, lane}, {Part{}.of_member(axis, 1, grid.ranks)});
      scribe.recv({axis, -1, 0, 1, 1, lane}, {result().of_member(axis, -1, grid.ranks)}, false);
    }
  };
  return {[](std::int32_t) { return std::string("member"); }, write};
}

// A part for GPU d of another node goes to GPU d of the own node first, which sends what it has for that rank
// in one message.
Schedule pxn_schedule(Scribe& scribe, const Grid& grid) {
  const AxisId local = add_local_axis(scribe, grid), rail = add_rail_axis(scribe, grid);
  const auto write = [=, &scribe](std::int32_t) {
    const auto part = [&](const Part& buffer, std::int32_t nodes_on, std::int32_t locals_on) {
      return buffer.of_member(rail, nodes_on, grid.nodes).of_member(local, locals_on, grid.per_node);
    };
    std::int32_t number = 0;
    const std::vector<Round> between = rounds(grid.nodes, 1);
    for (const Round& round : between) {
      const std::int32_t on = round.groups_on;
      for (std::int32_t shift = 1; shift < grid.per_node; ++shift) {
        const std::int32_t lane = number++ % kAtATime;
        scribe.send({local, shift, 0, 1, 1, lane}, {part({}, on, shift)});
        scribe.recv({local, -shift, 0, 1, 1, lane}, {part(on == 0 ? result() : staging(), on, -shift)},
                    false);
      }
      if (on == 0) continue;
      std::vector<Part> sent, received;
      for (std::int32_t shift = 0; shift < grid.per_node; ++shift) {
        sent.push_back(shift == 0 ? part({}, on, 0) : part(staging(), on, -shift));
        received.push_back(part(result(), -on, -shift));
      }
      scribe.send({rail, on, 1}, sent);
      scribe.recv({rail, -on, 1}, received, false);
    }
  };
  return {[](std::int32_t) { return std::string("member"); }, write};
}

}  // namespace orrery::collective
