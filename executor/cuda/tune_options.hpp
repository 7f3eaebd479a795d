#pragma once
// How algorithms are timed.

#include <functional>
#include <string_view>

#include "executor/device/tuning.hpp"

namespace orrery::cuda {

struct TuneOptions {
  device::Tuning tuning = device::Tuning::kSustained;
  int candidates = 120;       // Of a product, in bursts of a millisecond; quick: the heuristic's 24 at most.
  double keep_within = 0.04;  // Of the fastest burst: these go on to the final, …
  int finalists = 6;          // … at most so many, the heuristic's first among them.
  double warm_up_ms = 1500;   // Clocks settle in about a second.
  double turn_ms = 50;        // Finalists run in turns, …
  int rounds = 5;             // … so many each, of which the first doesn't count.
  std::function<void(std::string_view)> progress;  // Told what is being timed; may throw to end it.

  static TuneOptions of(device::Tuning tuning) {
    TuneOptions options;
    options.tuning = tuning;
    if (tuning == device::Tuning::kQuick) {
      options.warm_up_ms = 0;
      options.turn_ms = 10;
      options.rounds = 3;
    }
    return options;
  }
  bool sustained() const { return tuning == device::Tuning::kSustained; }
  void say(std::string_view what) const {
    if (progress) progress(what);
  }
};

}  // namespace orrery::cuda
