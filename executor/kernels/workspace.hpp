#pragma once
// Scratch memory of one rank's kernels, and how they are to run. A kernel takes what it needs inside a
// Scratch, which gives it all back at its end; once every kernel of a step has run, nothing is allocated any
// more.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/kernels/isa.hpp"

namespace orrery::host {

// Who multiplies matrices. kOneDnn is faster on some machines and promises no bits: another number of rows
// may give other roundings. Only where have_onednn().
enum class GemmBackend : std::uint8_t { kOwn, kOneDnn };

// The sines and cosines of rotary positions, kept from call to call.
struct RopeTable {
  double theta = 0;
  std::size_t pairs = 0;  // Rotated pairs of a head.
  std::vector<std::int64_t> positions;
  std::vector<float> cosines, sines;  // [position][pair].
};

// One per thread of a rank.
class Workspace {
 public:
  explicit Workspace(Isa with = best_isa(), GemmBackend by = GemmBackend::kOwn)
      : isa(with), gemm_backend(by) {}

  const Isa isa;
  const GemmBackend gemm_backend;

  // Of the last sixteen that were asked for; others are made again. Valid until the next call.
  const RopeTable& rope_table(double theta, std::size_t pairs, std::span<const std::int64_t> positions);

 private:
  friend class Scratch;
  static constexpr std::size_t kAlignmentBytes = 64;
  struct Free {
    void operator()(std::byte* data) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> data;
    std::size_t size_bytes = 0, used_bytes = 0;
  };
  void* take(std::size_t bytes);
  static Block new_block(std::size_t bytes);

  // One block; more only until the outermost Scratch that outgrew it ends.
  std::vector<Block> blocks_;
  std::size_t wanted_bytes_ = 0;  // Of the next first block.
  std::vector<RopeTable> rope_tables_;
  std::size_t next_table_ = 0;
};

// What was taken through it, and after it, is free again at its end.
class Scratch {
 public:
  explicit Scratch(Workspace& workspace);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Uninitialized, aligned to 64 bytes. T has no constructor.
  template <typename T>
  T* take(std::size_t count) {
    return static_cast<T*>(workspace_.take(count * sizeof(T)));
  }

 private:
  Workspace& workspace_;
  std::size_t blocks_, used_bytes_;
};

}  // namespace orrery::host
