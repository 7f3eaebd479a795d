#pragma once
// How much memory a Program needs on each role, and when.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct GpuType;

struct PeakMemory {
  std::int64_t bytes = 0;  // The most that is live at once, in issue order: what a perfect packing needs.
  std::int32_t instruction = -1;  // Where the peak is; −1: nothing transient is live.
  std::array<std::int64_t, kMemoryCategoryCount> by_category{};  // At the peak; sums to `bytes`.
};

PeakMemory peak_memory(const Role& role);
// The role whose peak is highest; the first of equals. REQUIRES: there is one.
RoleId fullest_role(const Program& program);

// By buffer: the one whose memory it has. Its own, or what it takes over (Buffer::in_place_of) and that one's
// in turn. REQUIRES here and above: verify(program) is empty of faults in the role.
std::vector<std::size_t> memory_owners(const Role& role);

// The first and the last instruction to touch a buffer's memory, in issue order; −1: nothing does, or it has
// another's.
struct Lifetime {
  std::int32_t first = -1, last = -1;
};
std::vector<Lifetime> lifetimes(const Role& role);  // By buffer.

// What is live while `instruction` is the one that was issued last, and until the next point.
struct MemoryPoint {
  std::int32_t instruction = -1;  // −1: before the first, when only persistent buffers are live.
  std::array<std::int64_t, kMemoryCategoryCount> by_category{};
};

// What is live, in issue order, as a staircase: a point wherever it changes. Of more than `most_points` (0:
// as many as there are) only the highest of each of `most_points` equal windows of instructions is kept, so
// that the peak of peak_memory survives.
std::vector<MemoryPoint> memory_timeline(const Role& role, std::size_t most_points = 0);

// Which roles need more than the GPU has, by how much and for what, and what the plan leaves untried; empty
// when everything fits.
std::string memory_fault(const Program& program, const Plan& plan, const GpuType& gpu);

}  // namespace orrery
