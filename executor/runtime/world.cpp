#include "executor/runtime/world.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <climits>
#include <ctime>

namespace orrery::host {
namespace {

constexpr std::int64_t kPage = 4096;
// Memory plans round up every buffer, the last one too (MemoryPlanOptions::alignment_bytes).
constexpr std::int64_t kAlignment = 512;
// How long a wait looks again and again before it gives up its core: about what putting a thread to sleep and
// waking it costs on Linux, so that neither choice can cost more than twice the better one.
constexpr std::chrono::microseconds kSpin{20};
// A ring that is lost (its sender was killed between writing and ringing) delays a rank by this much.
constexpr long kSleepNs = 20'000'000;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

std::int32_t microbatches(const Role& role) {
  std::int32_t count = 0;
  for (const Instruction& instruction : role.instructions)
    count = std::max(count, instruction.microbatch + 1);
  for (const Buffer& buffer : role.buffers) count = std::max(count, buffer.microbatch + 1);
  return count;
}

// The word may lie in memory that several processes have mapped, so the futex isn't a private one.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec limit = {0, kSleepNs};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

RankLayout layout_of(const Role& role, const RecordOptions& record) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  RankLayout layout;
  layout.progress = round_up(sizeof(RankHeader), 64);
  layout.rows = layout.progress + round_up(std::ssize(role.instructions) * 8, 64);
  layout.row_size = static_cast<std::int64_t>(World::kFirstLoss) + microbatches(role);
  layout.stamps = layout.rows + round_up(record.steps * layout.row_size * 8, 64);
  const std::int64_t stamps = record.stamps * std::ssize(role.instructions);
  layout.arena = round_up(layout.stamps + stamps * static_cast<std::int64_t>(sizeof(Stamp)), kPage);
  for (const Buffer& buffer : role.buffers) {
    if (buffer.offset < 0) continue;
    layout.arena_bytes = std::max(layout.arena_bytes, round_up(buffer.offset + buffer.bytes, kAlignment));
  }
  layout.bytes = round_up(layout.arena + layout.arena_bytes, kPage);
  return layout;
}

World::World(const Program& program, std::vector<std::byte*> memory, const RecordOptions& record,
             std::vector<std::byte*> arenas)
    : program_(program), memory_(std::move(memory)), arenas_(std::move(arenas)), record_(record) {
  assert(std::ssize(memory_) == program.world_size());
  for (const Role& role : program.roles) layouts_.push_back(layout_of(role, record));
}

std::byte* World::arena(RankId rank) const {
  if (!arenas_.empty()) return arenas_[rank.index()];
  return memory_[rank.index()] + layouts_[program_.role_of[rank.index()].index()].arena;
}

std::span<double> World::row(RankId rank, std::int64_t step) const {
  const RankLayout& layout = layouts_[program_.role_of[rank.index()].index()];
  auto* const rows = reinterpret_cast<double*>(memory_[rank.index()] + layout.rows);
  return {rows + step * layout.row_size, static_cast<std::size_t>(layout.row_size)};
}

Stamp& World::stamp(RankId rank, std::int64_t step, std::int32_t instruction) const {
  const RankLayout& layout = layouts_[program_.role_of[rank.index()].index()];
  auto* const stamps = reinterpret_cast<Stamp*>(memory_[rank.index()] + layout.stamps);
  return stamps[step % record_.stamps * std::ssize(role(rank).instructions) + instruction];
}

std::atomic<std::uint64_t>& World::progress(RankId rank, std::int32_t instruction) const {
  const RankLayout& layout = layouts_[program_.role_of[rank.index()].index()];
  return reinterpret_cast<std::atomic<std::uint64_t>*>(memory_[rank.index()] + layout.progress)[instruction];
}

void World::ring(RankId rank) const {
  RankHeader& other = header(rank);
  other.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (other.asleep.load(std::memory_order_seq_cst) != 0) futex_wake(other.doorbell);
}

void World::wait(RankId self, std::uint32_t seen) const {
  RankHeader& own = header(self);
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (own.doorbell.load(std::memory_order_acquire) != seen) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  own.asleep.store(1, std::memory_order_seq_cst);
  if (own.doorbell.load(std::memory_order_seq_cst) == seen) futex_wait(own.doorbell, seen);
  own.asleep.store(0, std::memory_order_relaxed);
}

}  // namespace orrery::host
