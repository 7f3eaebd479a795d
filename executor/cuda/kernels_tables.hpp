#pragma once
// What the tables of launches look like on the device (kernels.hpp: table_bytes, write_table).

#include <cstddef>
#include <cstdint>

#include "executor/device/launch.hpp"

namespace orrery::cuda {

// A launch over many arrays is cut into pieces, one for a block.
struct Piece {
  std::int32_t array = 0;  // Which.
  std::int32_t index = 0;  // Of the array's pieces.
};

// AdamW: the segments, then the pieces.
inline constexpr std::int64_t kUpdatePiece = 8192;
struct UpdateEntry {
  const void* gradient;
  void* weights;  // Null: the master weights are what the model computes with.
  float *master, *first_moment, *second_moment;
  std::int64_t elements;
  std::int32_t gradient_type, weights_type;  // DType
  bool decays, wide;                         // wide: for accesses of four elements.
};

// Sum of squares: the parts, then the pieces.
inline constexpr std::int64_t kSquaresPiece = 32768;
struct SquaresEntry {
  const void* data;
  std::int64_t elements;
  std::int32_t type;  // DType
  bool wide;          // For accesses of 16 bytes.
};

std::int64_t pieces_of(const device::AdamW&);
std::int64_t pieces_of(const device::SumSquares&);
// Where the pieces begin in the table, in bytes.
std::int64_t pieces_offset(const device::AdamW&);
std::int64_t pieces_offset(const device::SumSquares&);

}  // namespace orrery::cuda
