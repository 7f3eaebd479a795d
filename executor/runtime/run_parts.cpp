#include "executor/runtime/run_parts.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace orrery::host {

RecordOptions record_options(const RunOptions& options) {
  return {options.steps, std::min(options.steps, options.recorded)};
}

launch::WatchdogOptions watchdog_options(const Program& program, const RunOptions& options) {
  launch::WatchdogOptions watchdog;
  watchdog.limit = options.watchdog;
  watchdog.instruction_name = [&program](int rank, std::int32_t instruction) {
    const Role& role = program.roles[program.role_of[static_cast<std::size_t>(rank)].index()];
    return instruction_name(program, role.instructions[static_cast<std::size_t>(instruction)]);
  };
  return watchdog;
}

// In pieces: an exchange has a limit.
void gather_records(const World& world, RankId self, const std::vector<RankId>& far,
                    launch::Rendezvous& rendezvous) {
  constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  std::int64_t longest = 0;
  for (const RankId rank : active_ranks(world.program()))
    longest = std::max(longest, world.layout(rank).arena);
  const std::string_view own(reinterpret_cast<const char*>(world.memory(self)),
                             static_cast<std::size_t>(world.layout(self).arena));
  for (std::int64_t begin = 0; begin < longest; begin += kPiece) {
    const std::size_t at = std::min(static_cast<std::size_t>(begin), own.size());
    const std::vector<std::string> all = rendezvous.all_gather(own.substr(at, kPiece));
    for (const RankId rank : far) {
      std::copy(all[rank.index()].begin(), all[rank.index()].end(),
                reinterpret_cast<char*>(world.memory(rank) + begin));
    }
  }
}

std::vector<RankId> active_ranks(const Program& program) {
  std::vector<RankId> ranks;
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    if (program.role_of[static_cast<std::size_t>(r)].valid()) ranks.emplace_back(r);
  }
  return ranks;
}

}  // namespace orrery::host
