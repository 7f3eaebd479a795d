#pragma once
// The rules of PyTorch's CUDA allocator with its default settings (c10/cuda/CUDACachingAllocator.cpp;
// constants in CUDAAllocatorConfig.h): without memory limits, garbage collection and expandable segments.
//
//   - Sizes are rounded up to 512 bytes. Up to 1 MiB they come from the small pool, else from the large one.
//   - The smallest free block of the pool that is large enough is taken, at the lowest address among equals.
//   What is
//     left of it becomes a free block where it is at least 512 bytes (small pool) or more than 1 MiB (large).
//   - Where none is large enough, the device gives a segment: 2 MiB for the small pool; for the large one 20
//   MiB below
//     10 MiB, else the size rounded up to 2 MiB. Segments are kept.
//   - A freed block is joined with free neighbours of its segment.

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace orrery {

class CachingAllocator {
 public:
  using Block = std::size_t;
  // REQUIRES: 0 < bytes < 2⁶².
  Block allocate(std::int64_t bytes);
  // REQUIRES: the block was allocated and not yet freed.
  void free(Block block);

  std::int64_t address(Block block) const { return blocks_[block].begin; }  // Segments follow each other.
  std::int64_t block_bytes(Block block) const { return blocks_[block].bytes; }
  std::int64_t reserved_bytes() const { return reserved_bytes_; }
  std::int64_t device_calls() const { return device_calls_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Piece {
    std::int64_t begin = 0, bytes = 0;
    std::size_t previous = kNone, next = kNone;  // In its segment.
    bool small = false, is_free = false;
  };
  // By size, then address.
  using Pool = std::set<std::tuple<std::int64_t, std::int64_t, std::size_t>>;

  Pool& pool(const Piece& piece) { return piece.small ? small_ : large_; }
  std::size_t add_piece(const Piece& piece);
  std::size_t reserve(std::int64_t bytes, bool small);
  void split(std::size_t piece, std::int64_t bytes);
  void join_with_next(std::size_t piece);
  void set_free(std::size_t piece, bool is_free);

  std::vector<Piece> blocks_;
  std::vector<std::size_t> unused_;  // Of blocks_, joined to others.
  Pool small_, large_;
  std::int64_t reserved_bytes_ = 0, device_calls_ = 0;
};

}  // namespace orrery
