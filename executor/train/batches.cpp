#include "executor/train/batches.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery {
namespace {

// A permutation of 0 … size − 1 that takes no memory: a Feistel network over the next even power of two,
// repeated while it leads outside ("cycle walking", Black & Rogaway 2002).
std::int64_t permuted(std::int64_t index, std::int64_t size, std::uint64_t key) {
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  auto at = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = at >> bits, right = at & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (mix64(key + round * 0x100000000ull + right) & mask);
      left = right;
      right = next;
    }
    at = left << bits | right;
  } while (at >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(at);
}

}  // namespace

SampleOrder::SampleOrder(const TokenFile& tokens, std::int64_t sequence, std::uint64_t seed)
    : sequence_(sequence), windows_((tokens.size() - 1) / sequence), seed_(seed) {
  if (windows_ < 1) {
    fail(ErrorKind::kInput, "{}: has {} tokens; a sequence and the token after it take {}",
         tokens.path().string(), tokens.size(), sequence + 1);
  }
}

std::int64_t SampleOrder::begin(std::int64_t n) const {
  const auto epoch = static_cast<std::uint64_t>(n / windows_);
  return permuted(n % windows_, windows_, mix64(seed_) ^ mix64(epoch + 1)) * sequence_;
}

Batches::Batches(const TokenFile& tokens, const BatchShape& shape, std::uint64_t seed,
                 std::int64_t first_step, std::int64_t steps)
    : tokens_(tokens),
      shape_(shape),
      order_(tokens, shape.sequence, seed),
      first_(first_step),
      end_(first_step + steps),
      steps_(kAhead),
      prepared_(first_step),
      asked_(first_step) {
  thread_ = std::thread([this] { run(); });
}

Batches::~Batches() {
  {
    const std::lock_guard guard(lock_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Batches::run() {
  for (std::int64_t step = first_; step < end_; ++step) {
    {
      // What lies in this place is no longer needed once a step is asked for that is two later.
      std::unique_lock guard(lock_);
      changed_.wait(guard, [&] { return ends_ || step < asked_ + kAhead - 1; });
      if (ends_) return;
    }
    prepare(step, steps_[static_cast<std::size_t>(step % kAhead)]);
    {
      const std::lock_guard guard(lock_);
      prepared_ = step + 1;
    }
    changed_.notify_all();
  }
}

void Batches::prepare(std::int64_t step, std::vector<std::uint32_t>& windows) const {
  windows.clear();
  for (std::int64_t s = 0; s < shape_.global_batch; ++s) {
    const std::int64_t begin = order_.begin(step * shape_.global_batch + s);
    for (std::int64_t i = 0; i <= shape_.sequence; ++i) {
      windows.push_back(static_cast<std::uint32_t>(tokens_[begin + i]));
    }
  }
}

void Batches::fill(std::int64_t step, std::int32_t microbatch, bool labels, std::span<std::int64_t> to) {
  {
    std::unique_lock guard(lock_);
    assert(step >= asked_ - 1 && step >= first_ && step < end_);
    if (step > asked_) {
      asked_ = step;
      changed_.notify_all();
    }
    changed_.wait(guard, [&] { return prepared_ > step; });
  }
  const std::vector<std::uint32_t>& windows = steps_[static_cast<std::size_t>(step % kAhead)];
  for (std::int64_t i = 0; i < std::ssize(to); ++i) {
    const std::int64_t window = microbatch * shape_.microbatch_size + i / shape_.sequence;
    const std::int64_t at = window * (shape_.sequence + 1) + i % shape_.sequence + (labels ? 1 : 0);
    to[static_cast<std::size_t>(i)] = windows[static_cast<std::size_t>(at)];
  }
}

}  // namespace orrery
