#include "planner/memory.hpp"

#include <numeric>

namespace orrery {
namespace {

using Bytes = std::array<std::int64_t, kMemoryCategoryCount>;

std::int64_t sum(const Bytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

// Calls `visit` with what is live before the first instruction (as −1), then during each one.
template <class Visit>
void walk_live(const Role& role, const Visit& visit) {
  const std::vector<Lifetime> lives = lifetimes(role);
  Bytes live{};
  // What becomes live as an instruction starts, and what is free again after it.
  std::vector<Bytes> taken(role.instructions.size()), freed(role.instructions.size());
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    const auto category = static_cast<std::size_t>(buffer.category);
    if (buffer.persistent) {
      live[category] += buffer.bytes;
    } else if (lives[b].first >= 0) {
      taken[static_cast<std::size_t>(lives[b].first)][category] += buffer.bytes;
      freed[static_cast<std::size_t>(lives[b].last)][category] += buffer.bytes;
    }
  }
  visit(-1, live);
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    for (std::size_t c = 0; c < live.size(); ++c) live[c] += taken[i][c];
    visit(static_cast<std::int32_t>(i), live);
    for (std::size_t c = 0; c < live.size(); ++c) live[c] -= freed[i][c];
  }
}

}  // namespace

std::vector<std::size_t> memory_owners(const Role& role) {
  std::vector<std::size_t> owners(role.buffers.size());
  for (std::size_t b = 0; b < owners.size(); ++b) {
    const BufferId other = role.buffers[b].in_place_of;
    owners[b] = other.valid() ? owners[other.index()] : b;
  }
  return owners;
}

std::vector<Lifetime> lifetimes(const Role& role) {
  const std::vector<std::size_t> owners = memory_owners(role);
  std::vector<Lifetime> lives(role.buffers.size());
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Range operands = role.instructions[i].operands;
    for (std::int32_t o = operands.begin; o < operands.end; ++o) {
      Lifetime& lifetime = lives[owners[role.operands[static_cast<std::size_t>(o)].buffer.index()]];
      if (lifetime.first < 0) lifetime.first = static_cast<std::int32_t>(i);
      lifetime.last = static_cast<std::int32_t>(i);
    }
  }
  return lives;
}

PeakMemory peak_memory(const Role& role) {
  PeakMemory peak;
  walk_live(role, [&](std::int32_t instruction, const Bytes& live) {
    if (const std::int64_t total = sum(live); instruction < 0 || total > peak.bytes) {
      peak = {total, instruction, live};
    }
  });
  return peak;
}

RoleId fullest_role(const Program& program) {
  RoleId fullest(0);
  std::int64_t most = -1;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const std::int64_t bytes = peak_memory(program.roles[r]).bytes;
    if (bytes <= most) continue;
    most = bytes;
    fullest = RoleId(static_cast<std::int64_t>(r));
  }
  return fullest;
}

std::vector<MemoryPoint> memory_timeline(const Role& role, std::size_t most_points) {
  std::vector<MemoryPoint> points;
  walk_live(role, [&](std::int32_t instruction, const Bytes& live) {
    if (points.empty() || points.back().by_category != live) points.push_back({instruction, live});
  });
  if (most_points == 0 || points.size() <= most_points) return points;
  const std::size_t instructions = role.instructions.size() + 1;  // With the point before the first.
  std::vector<MemoryPoint> kept;
  std::size_t last_window = most_points;
  for (const MemoryPoint& point : points) {
    const std::size_t window = static_cast<std::size_t>(point.instruction + 1) * most_points / instructions;
    if (window != last_window) {
      kept.push_back(point);
      last_window = window;
    } else if (sum(point.by_category) > sum(kept.back().by_category)) {
      kept.back() = point;
    }
  }
  return kept;
}

}  // namespace orrery
