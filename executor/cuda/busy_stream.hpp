#pragma once
// Timing on a GPU that never rests: under its power limit clocks follow from what ran in the second before,
// and one that pauses between measurements ranks algorithms otherwise than a training step does.

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/cuda/memory.hpp"
#include "executor/cuda/nvml.hpp"

namespace orrery::cuda {

// Launched on the stream over and over.
struct Work {
  std::function<void()> launch;
  double ms = 0;  // What one launch takes, about.
};

struct TurnTime {
  double ms = 0;      // Of one launch.
  double joules = 0;  // Of one launch; 0: not known.
};

// Not for several threads at once. All THROW Error(kRuntime) where CUDA fails.
class BusyStream {
 public:
  explicit BusyStream(cudaStream_t stream);

  // Runs wherever the stream would run dry from now on; without a launch: nothing does.
  void fill_with(Work filler) { filler_ = std::move(filler); }
  // Filler, so that the stream is busy for so long about, while the host is.
  void keep_busy(double ms);

  // Milliseconds of one launch out of `times` in a row; nothing is said of the stream before them.
  double time(const Work& work, int times);
  // All in turns A B C, B C A, … without a pause, each turn about so long; the first round only settles
  // clocks. The time is the median of a work's turns. REQUIRES: at least 2 rounds.
  std::vector<TurnTime> compete(std::span<const Work> works, double turn_ms, int rounds);

 private:
  using Clock = std::chrono::steady_clock;
  void queued(double ms);

  const cudaStream_t stream_;
  const Nvml nvml_;
  std::string pci_bus_id_;
  const Event begin_{true}, end_{true};
  Work filler_;
  Clock::time_point busy_until_ = Clock::now();  // As far as the host can tell.
};

}  // namespace orrery::cuda
