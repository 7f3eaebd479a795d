#pragma once
// Random programs that cannot deadlock: all roles do the same rounds.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "model/program.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery::testing {

// What one round of a random program does, the same for all roles, so that it can't deadlock.
struct Round {
  std::int64_t kind = 0;  // 0, 1: compute; 2: collective; 3: everyone sends on; 4: copy.
  AxisId axis;
  std::int32_t offset = 1;
  std::int64_t bytes = 0;
  CollectiveKind collective = CollectiveKind::kAllReduce;
};

inline std::vector<Round> random_rounds(Random& random, const Grid& grid) {
  const std::int32_t sizes[] = {grid.tp, grid.pp, grid.dp};
  std::vector<Round> rounds;
  for (std::int64_t n = random.between(3, 14); n-- > 0;) {
    Round round{random.between(0, 4), AxisId(random.between(0, 2)), 1, random.between(1, 4'000'000),
                static_cast<CollectiveKind>(random.between(0, 4))};
    const std::int32_t size = sizes[round.axis.index()];
    if (round.kind == 3 && size == 1) continue;
    if (round.kind == 3) round.offset = static_cast<std::int32_t>(random.between(1, size - 1));
    rounds.push_back(round);
  }
  return rounds;
}

inline Program random_program(Random& random, const Grid& grid) {
  Program program;
  program.name = "random";
  add_axes(program, grid);
  // Ranks sit anywhere on the machine.
  const bool shuffled = random.between(0, 1) == 1;
  for (std::size_t i = program.device_of.size(); shuffled && i > 1; --i)
    std::swap(
        program.device_of[i - 1],
        program.device_of[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  std::vector<KernelId> kernels;
  for (int k = 0; k < 4; ++k)
    kernels.push_back(fixed_kernel(program, SimTime{random.between(1, 60'000'000)}));
  const std::vector<Round> rounds = random_rounds(random, grid);
  for (std::int32_t stage = 0; stage < grid.pp; ++stage) {
    RoleWriter role(program, "stage" + std::to_string(stage),
                    {{"a", 0}, {"b", 1}, {"c", 0}, {"s", 0}, {"r", 0}, {"copy", 0}});
    std::vector<std::int32_t> done;
    const auto after = [&] {
      std::vector<std::int32_t> some;
      if (!done.empty() && random.between(0, 2) > 0)
        some.push_back(
            done[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(done.size()) - 1))]);
      return some;
    };
    const auto add = [&](std::int32_t stream, Work work, const std::vector<std::int32_t>& edges) {
      done.push_back(role.add("i" + std::to_string(done.size()), stream, work, -1, -1, edges));
    };
    for (const Round& round : rounds) {
      if (round.kind <= 1)
        add(static_cast<std::int32_t>(round.kind),
            Compute{kernels[static_cast<std::size_t>(random.between(0, 3))]}, after());
      if (round.kind == 2) add(2, Collective{round.collective, round.axis, round.bytes}, after());
      if (round.kind == 3) {
        // A receive that waited for its own rank's send would close a circle around the group.
        const std::vector<std::int32_t> ready = after();
        add(3, Send{round.axis, round.offset, round.bytes}, ready);
        add(4, Recv{round.axis, -round.offset, round.bytes}, ready);
      }
      if (round.kind == 4) add(5, Copy{round.bytes % 2 == 0, round.bytes}, after());
    }
    program.roles.push_back(role.take());
  }
  return program;
}

}  // namespace orrery::testing
