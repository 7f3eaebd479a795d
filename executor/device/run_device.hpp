#pragma once
// Runs a Program on devices, one process a rank.

#include "executor/device/device.hpp"
#include "executor/launch/rendezvous.hpp"
#include "executor/runtime/run.hpp"

namespace orrery::device {

struct DeviceRunOptions {
  bool capture = true;
  bool deterministic = false;  // Attention's gradient sums in a fixed order too, with more memory.
  std::string algorithm_cache;
  Tuning tuning = Tuning::kSustained;               // Of algorithms that the cache doesn't have.
  std::function<void(std::string_view)> preparing;  // Told what is being prepared where that takes seconds.
  bool trace_kernels = false;                       // Of the last step, on the first rank.
  std::int64_t time_launches_ms = 0;  // After the run: each kind of launch alone, for so long; 0: none.
};

// The rank `self` on this device, and the others wherever they are. `rendezvous`: null where there are no
// others. THROWS Error(kRuntime) as host::run_joined, and what the device refuses.
host::RunResult run_on_device(const Graph& graph, const Program& program, const host::RunOptions& options,
                              const DeviceRunOptions& device_options, Device& device, RankId self,
                              launch::Rendezvous* rendezvous);

}  // namespace orrery::device
