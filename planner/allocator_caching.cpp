#include "planner/allocator_caching.hpp"

#include <cassert>

namespace orrery {
namespace {

constexpr std::int64_t kLeastBlock = 512;
constexpr std::int64_t kMostSmall = std::int64_t{1} << 20;
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;
constexpr std::int64_t kLargeSegment = std::int64_t{20} << 20;
constexpr std::int64_t kLeastOwnSegment = std::int64_t{10} << 20;
constexpr std::int64_t kSegmentRounding = std::int64_t{2} << 20;

std::int64_t rounded(std::int64_t bytes, std::int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

CachingAllocator::Block CachingAllocator::allocate(std::int64_t bytes) {
  assert(bytes > 0);
  const std::int64_t size = rounded(bytes, kLeastBlock);
  const bool small = size <= kMostSmall;
  const Pool& from = small ? small_ : large_;
  const auto found = from.lower_bound({size, 0, 0});
  const std::size_t piece = found != from.end() ? std::get<2>(*found) : reserve(size, small);
  set_free(piece, false);
  split(piece, size);
  return piece;
}

void CachingAllocator::free(Block block) {
  assert(!blocks_[block].is_free);
  set_free(block, true);
  join_with_next(block);
  if (const std::size_t previous = blocks_[block].previous; previous != kNone) join_with_next(previous);
}

std::size_t CachingAllocator::add_piece(const Piece& piece) {
  if (unused_.empty()) {
    blocks_.push_back(piece);
    return blocks_.size() - 1;
  }
  const std::size_t at = unused_.back();
  unused_.pop_back();
  blocks_[at] = piece;
  return at;
}

std::size_t CachingAllocator::reserve(std::int64_t bytes, bool small) {
  Piece segment;
  segment.begin = reserved_bytes_;
  segment.bytes = small                      ? kSmallSegment
                  : bytes < kLeastOwnSegment ? kLargeSegment
                                             : rounded(bytes, kSegmentRounding);
  segment.small = small;
  reserved_bytes_ += segment.bytes;
  ++device_calls_;
  const std::size_t piece = add_piece(segment);
  set_free(piece, true);
  return piece;
}

// Leaves `bytes` to the piece where the rest is worth a block.
void CachingAllocator::split(std::size_t piece, std::int64_t bytes) {
  const Piece whole = blocks_[piece];
  const std::int64_t left = whole.bytes - bytes;
  if (whole.small ? left < kLeastBlock : left <= kMostSmall) return;
  Piece rest = whole;
  rest.begin += bytes;
  rest.bytes = left;
  rest.previous = piece;
  const std::size_t at = add_piece(rest);
  if (rest.next != kNone) blocks_[rest.next].previous = at;
  blocks_[piece].bytes = bytes;
  blocks_[piece].next = at;
  set_free(at, true);
}

void CachingAllocator::join_with_next(std::size_t piece) {
  const std::size_t next = blocks_[piece].next;
  if (next == kNone || !blocks_[piece].is_free || !blocks_[next].is_free) return;
  set_free(piece, false);
  set_free(next, false);
  blocks_[piece].bytes += blocks_[next].bytes;
  blocks_[piece].next = blocks_[next].next;
  if (blocks_[piece].next != kNone) blocks_[blocks_[piece].next].previous = piece;
  unused_.push_back(next);
  set_free(piece, true);
}

void CachingAllocator::set_free(std::size_t piece, bool is_free) {
  Piece& its = blocks_[piece];
  if (its.is_free == is_free) return;
  its.is_free = is_free;
  const auto key = std::tuple(its.bytes, its.begin, piece);
  if (is_free) {
    pool(its).insert(key);
  } else {
    pool(its).erase(key);
  }
}

}  // namespace orrery
