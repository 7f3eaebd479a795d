#pragma once
// Which part of a text each micro-batch of each step sees. The order is that of the whole job: it depends on
// the seed, the sequence and the place of a sequence in the global batch, never on how many ranks there are.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "executor/train/token_file.hpp"

namespace orrery {

struct BatchShape {
  std::int64_t sequence = 1;         // Tokens per sequence.
  std::int64_t microbatch_size = 1;  // Sequences.
  std::int64_t global_batch = 1;     // Sequences per step.
};

// The text is cut into windows of sequence + 1 tokens that overlap by one; each pass over the text takes all
// of them in another random order.
class SampleOrder {
 public:
  // THROWS Error(kInput) when the text is shorter than one window.
  SampleOrder(const TokenFile& tokens, std::int64_t sequence, std::uint64_t seed);

  std::int64_t windows() const { return windows_; }
  // Where the window of the n-th sequence of the run begins.
  std::int64_t begin(std::int64_t n) const;

 private:
  std::int64_t sequence_, windows_;
  std::uint64_t seed_;
};

// Reads ahead: a thread of its own prepares the steps to come while ranks work on one.
class Batches {
 public:
  Batches(const TokenFile& tokens, const BatchShape& shape, std::uint64_t seed, std::int64_t first_step,
          std::int64_t steps);
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // Token ids of a micro-batch, by its global index, or the tokens after each (labels): [microbatch size,
  // sequence]. Called by any thread. REQUIRES: no step more than one behind the latest that was asked for.
  void fill(std::int64_t step, std::int32_t microbatch, bool labels, std::span<std::int64_t> to);

 private:
  static constexpr std::int64_t kAhead = 4;  // Steps in memory: ranks may be one apart.
  void run();
  void prepare(std::int64_t step, std::vector<std::uint32_t>& windows) const;

  const TokenFile& tokens_;
  BatchShape shape_;
  SampleOrder order_;
  std::int64_t first_, end_;
  std::vector<std::vector<std::uint32_t>> steps_;  // By step modulo kAhead: windows one after the other.
  std::mutex lock_;
  std::condition_variable changed_;
  std::int64_t prepared_;   // All steps below.
  std::int64_t asked_ = 0;  // The latest step that somebody asked for.
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace orrery
