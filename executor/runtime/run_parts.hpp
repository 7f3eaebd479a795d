#pragma once
// What runs have in common, whatever their ranks run on.

#include <vector>

#include "executor/launch/watchdog.hpp"
#include "executor/runtime/run.hpp"

namespace orrery::host {

RecordOptions record_options(const RunOptions& options);
launch::WatchdogOptions watchdog_options(const Program& program, const RunOptions& options);
// What ranks have recorded, for those whose memory isn't shared; all of them call it.
void gather_records(const World& world, RankId self, const std::vector<RankId>& far,
                    launch::Rendezvous& rendezvous);

}  // namespace orrery::host
