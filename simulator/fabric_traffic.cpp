#include "simulator/fabric_traffic.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.hpp"

namespace orrery {
namespace {

// A random cycle through all places (S. Sattolo, 1986), so that nobody sends to itself.
std::vector<std::size_t> random_cycle(std::size_t size, Random& random) {
  std::vector<std::size_t> next(size);
  std::iota(next.begin(), next.end(), std::size_t{0});
  for (std::size_t i = size; i-- > 1;)
    std::swap(next[i], next[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  return next;
}

}  // namespace

std::string_view to_string(TrafficPattern pattern) {
  switch (pattern) {
    case TrafficPattern::kRing: return "ring";
    case TrafficPattern::kPermutation: return "permutation";
    case TrafficPattern::kAllToAll: break;
  }
  return "all-to-all";
}

std::vector<FabricFlow> traffic(TrafficPattern pattern, std::span<const std::int32_t> nodes,
                                std::int32_t nics, std::uint64_t seed, std::int32_t job) {
  std::vector<FabricFlow> flows;
  const std::size_t size = nodes.size();
  if (size < 2) return flows;
  Random random(mix64(seed ^ mix64(static_cast<std::uint64_t>(job))));
  for (std::int32_t nic = 0; nic < nics; ++nic) {
    const auto add = [&](std::size_t from, std::size_t to) {
      flows.push_back({{nodes[from], nic}, {nodes[to], nic}, job});
    };
    switch (pattern) {
      case TrafficPattern::kRing:
        for (std::size_t i = 0; i < size; ++i) add(i, (i + 1) % size);
        break;
      case TrafficPattern::kPermutation: {
        const std::vector<std::size_t> next = random_cycle(size, random);
        for (std::size_t i = 0; i < size; ++i) add(i, next[i]);
        break;
      }
      case TrafficPattern::kAllToAll:
        for (std::size_t i = 0; i < size; ++i)
          for (std::size_t k = 1; k < size; ++k) add(i, (i + k) % size);
        break;
    }
  }
  return flows;
}

std::vector<std::vector<std::int32_t>> place_jobs(std::int32_t jobs, std::int32_t nodes_per_job,
                                                  bool interleaved) {
  std::vector<std::vector<std::int32_t>> placed(static_cast<std::size_t>(jobs));
  for (std::int32_t job = 0; job < jobs; ++job)
    for (std::int32_t i = 0; i < nodes_per_job; ++i)
      placed[static_cast<std::size_t>(job)].push_back(interleaved ? i * jobs + job : job * nodes_per_job + i);
  return placed;
}

}  // namespace orrery
