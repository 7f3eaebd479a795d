#include "planner/memory.hpp"

#include <numeric>

namespace orrery {

PeakMemory peak_memory(const Role& role) {
  struct Lifetime {
    std::int32_t first = -1, last = -1;
  };
  std::vector<Lifetime> lifetimes(role.buffers.size());
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Range operands = role.instructions[i].operands;
    for (std::int32_t o = operands.begin; o < operands.end; ++o) {
      Lifetime& lifetime = lifetimes[role.operands[static_cast<std::size_t>(o)].buffer.index()];
      if (lifetime.first < 0) lifetime.first = static_cast<std::int32_t>(i);
      lifetime.last = static_cast<std::int32_t>(i);
    }
  }

  using Bytes = std::array<std::int64_t, kMemoryCategoryCount>;
  Bytes live{};
  // What becomes live as an instruction starts, and what is free again after it.
  std::vector<Bytes> taken(role.instructions.size()), freed(role.instructions.size());
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    const auto category = static_cast<std::size_t>(buffer.category);
    if (buffer.persistent) {
      live[category] += buffer.bytes;
    } else if (lifetimes[b].first >= 0) {
      taken[static_cast<std::size_t>(lifetimes[b].first)][category] += buffer.bytes;
      freed[static_cast<std::size_t>(lifetimes[b].last)][category] += buffer.bytes;
    }
  }

  const auto sum = [](const Bytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  PeakMemory peak{sum(live), -1, live};
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    for (std::size_t c = 0; c < live.size(); ++c) live[c] += taken[i][c];
    if (const std::int64_t total = sum(live); total > peak.bytes) {
      peak = {total, static_cast<std::int32_t>(i), live};
    }
    for (std::size_t c = 0; c < live.size(); ++c) live[c] -= freed[i][c];
  }
  return peak;
}

}  // namespace orrery
