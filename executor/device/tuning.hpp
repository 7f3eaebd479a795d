#pragma once
// What timing algorithms has found, and which of them is taken.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::device {

// Of algorithms that nobody has timed here yet. Quick: the library's offers, each for some milliseconds.
// Sustained: many more, the best of them in turns on a GPU that is as busy as it will be in training.
enum class Tuning : std::uint8_t { kQuick, kSustained };

struct AlgorithmTime {
  std::string algorithm;    // In words.
  double microseconds = 0;  // 0: it wasn't timed.
  double millijoules = 0;   // 0: not known.
};

struct ProductTime {
  std::string product;  // Sizes, types and layouts.
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  int candidates = 0;                    // Timed in this run; 0 with a time: it was kept from an earlier one.
  AlgorithmTime chosen, first;           // `first`: what the library's heuristic offers first.
  std::vector<AlgorithmTime> finalists;  // Timed under sustained load in this run.
};

// Under which a choice is kept: what a quick tuning took is good enough for quick ones alone.
std::string kept_key(const std::string& key, Tuning tuning);

// Index of the fastest; of those as fast within 0.3 %, the one that takes least energy where that is known.
// REQUIRES: at least one, all timed.
std::size_t best_of(std::span<const AlgorithmTime> times);

}  // namespace orrery::device
