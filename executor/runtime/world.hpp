#pragma once
// What the ranks of a run share: each one's arena, how far each of its instructions has come, and a doorbell
// to wake it. A rank writes only its own entries; the others read them. Ranks are threads, or processes that
// have mapped the same memory: nothing here holds a pointer.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "executor/kernels/exact_sum.hpp"
#include "model/program.hpp"

namespace orrery::host {

// The first bytes of a rank's memory.
struct alignas(64) RankHeader {
  std::atomic<std::uint32_t> doorbell{0};  // Rung by others; a futex.
  std::atomic<std::uint32_t> asleep{0};
  ExactSum norm;                     // Sum of squares of the gradient elements that this rank counts.
  std::int64_t workspace_bytes = 0;  // What ops of one launch pass on without a buffer.
  double norm_squared = 0;           // Of all ranks, once they have exchanged it.
  static constexpr double kNoNorm = -1;
  std::array<std::uint64_t, 2> parameter_hash = {};  // Of the parameters that this rank counts.
};

// When an instruction began, when all others it meets had come, when it ended: CLOCK_MONOTONIC.
struct Stamp {
  std::int64_t start_ns = 0, ready_ns = 0, end_ns = 0;
};

// How much of a run is kept.
struct RecordOptions {
  std::int64_t steps = 1;   // Losses, norms and ends of steps: of all.
  std::int64_t stamps = 1;  // Stamps of every instruction: of the last so many steps.
};

// Where the parts of a rank's memory lie, in bytes from its beginning.
struct RankLayout {
  std::int64_t progress = 0;  // One counter by instruction.
  std::int64_t rows = 0;      // One by step.
  std::int64_t row_size = 0;  // Numbers.
  std::int64_t stamps = 0;    // By recorded step, by instruction.
  std::int64_t arena = 0;     // As the memory plan has it.
  std::int64_t arena_bytes = 0;
  std::int64_t bytes = 0;
};
// REQUIRES: a memory plan has placed the role's buffers.
RankLayout layout_of(const Role& role, const RecordOptions& record);

class World {
 public:
  // `memory`: by rank, mapped and zeroed, of at least layout_of().bytes; null for ranks that idle.
  // `arenas`: by rank, of ranks on devices, whose memory ends where its arena would begin; null: part of
  // `memory`.
  World(const Program& program, std::vector<std::byte*> memory, const RecordOptions& record,
        std::vector<std::byte*> arenas = {});

  const Program& program() const { return program_; }
  const Role& role(RankId rank) const { return program_.roles[program_.role_of[rank.index()].index()]; }
  RankHeader& header(RankId rank) const { return *reinterpret_cast<RankHeader*>(memory_[rank.index()]); }
  std::byte* memory(RankId rank) const { return memory_[rank.index()]; }
  const RankLayout& layout(RankId rank) const { return layouts_[program_.role_of[rank.index()].index()]; }
  std::byte* arena(RankId rank) const;
  // What came out of a step: when it ended (ns), the gradients' norm (negative: nobody asked for it), and by
  // micro-batch of the rank its loss (NaN: not of this rank).
  std::span<double> row(RankId rank, std::int64_t step) const;
  static constexpr std::size_t kStepEnd = 0, kNorm = 1, kFirstLoss = 2;
  Stamp& stamp(RankId rank, std::int64_t step, std::int32_t instruction) const;
  const RecordOptions& record() const { return record_; }
  // Counts up: `step · kPhases + phase`, see rank_loop.cpp.
  std::atomic<std::uint64_t>& progress(RankId rank, std::int32_t instruction) const;

  // Wakes a rank that waits.
  void ring(RankId rank) const;
  // Comes back when the doorbell of `self` was rung after it stood at `seen`, or after a while: spins
  // briefly, then sleeps.
  void wait(RankId self, std::uint32_t seen) const;
  std::uint32_t doorbell(RankId self) const { return header(self).doorbell.load(std::memory_order_acquire); }

 private:
  const Program& program_;
  std::vector<std::byte*> memory_;
  std::vector<std::byte*> arenas_;
  RecordOptions record_;
  std::vector<RankLayout> layouts_;  // By role.
};

}  // namespace orrery::host
