#include "executor/cuda/kernels_tables.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "executor/cuda/kernels.hpp"

namespace orrery::cuda {
namespace {

template <class Arrays>
std::int64_t count_pieces(const Arrays& arrays, std::int64_t piece) {
  std::int64_t pieces = 0;
  for (const auto& array : arrays) pieces += divide_up(array.elements, piece);
  return pieces;
}

template <class Entry, class Arrays>
std::int64_t entries_bytes(const Arrays& arrays) {
  return align_part(static_cast<std::int64_t>(arrays.size() * sizeof(Entry)));
}

template <class Arrays>
void write_pieces(const Arrays& arrays, std::int64_t piece, std::byte* host) {
  for (std::size_t array = 0; array < arrays.size(); ++array) {
    const std::int64_t pieces = divide_up(arrays[array].elements, piece);
    for (std::int64_t index = 0; index < pieces; ++index) {
      const Piece entry = {static_cast<std::int32_t>(array), static_cast<std::int32_t>(index)};
      std::memcpy(host, &entry, sizeof(entry));
      host += sizeof(entry);
    }
  }
}

template <class Entry>
void write_entry(const Entry& entry, std::size_t at, std::byte* host) {
  std::memcpy(host + at * sizeof(entry), &entry, sizeof(entry));
}

bool is_fp32(DType type) { return type == DType::kFp32 || type == DType::kTf32; }

void require_type(const char* kernel, DType type) {
  if (!is_fp32(type) && type != DType::kBf16 && type != DType::kFp16) refuse_type(kernel, type);
}

UpdateEntry entry_of(const device::UpdateSegment& segment) {
  require_type("adamw", segment.gradient.dtype);
  UpdateEntry entry = {};
  entry.gradient = segment.gradient.data;
  entry.gradient_type =
      static_cast<std::int32_t>(is_fp32(segment.gradient.dtype) ? DType::kFp32 : segment.gradient.dtype);
  if (segment.weights && !is_fp32(segment.weights.dtype)) {
    require_type("adamw", segment.weights.dtype);
    entry.weights = segment.weights.data;
    entry.weights_type = static_cast<std::int32_t>(segment.weights.dtype);
  }
  entry.master = segment.master;
  entry.first_moment = segment.first_moment;
  entry.second_moment = segment.second_moment;
  // Weights of fp32 are their own master, which then need not be named a second time.
  if (entry.master == nullptr) entry.master = reinterpret_cast<float*>(segment.weights.data);
  entry.elements = segment.elements;
  entry.decays = segment.decays;
  const auto bytes_of_four = static_cast<std::uintptr_t>(4 * size_bytes(segment.gradient.dtype));
  entry.wide = all_aligned({entry.master, entry.first_moment, entry.second_moment}) &&
               all_aligned({entry.gradient}, bytes_of_four) && all_aligned({entry.weights}, 8);
  return entry;
}

// Angles in double, rounded once: as host::RopeTable has them.
std::vector<double> turns_of_one(const device::Rope& rope) {
  const std::int64_t pairs = rope.rotated / 2;
  std::vector<double> turns;
  for (std::int64_t i = 0; i < pairs; ++i) {
    turns.push_back(std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return turns;
}

}  // namespace

std::int64_t pieces_of(const device::AdamW& update) { return count_pieces(update.segments, kUpdatePiece); }
std::int64_t pieces_of(const device::SumSquares& sum) { return count_pieces(sum.parts, kSquaresPiece); }
std::int64_t pieces_offset(const device::AdamW& update) {
  return entries_bytes<UpdateEntry>(update.segments);
}
std::int64_t pieces_offset(const device::SumSquares& sum) { return entries_bytes<SquaresEntry>(sum.parts); }

std::int64_t table_bytes(const device::AdamW& update) {
  return pieces_offset(update) + pieces_of(update) * static_cast<std::int64_t>(sizeof(Piece));
}
std::int64_t table_bytes(const device::SumSquares& sum) {
  return pieces_offset(sum) + pieces_of(sum) * static_cast<std::int64_t>(sizeof(Piece));
}
std::int64_t table_bytes(const device::Rope& rope) {
  return rope.rotated / 2 * 8 * (rope.positions != nullptr ? 1 : rope.sequence);
}

void write_table(const device::AdamW& update, std::byte* host) {
  for (std::size_t i = 0; i < update.segments.size(); ++i) write_entry(entry_of(update.segments[i]), i, host);
  write_pieces(update.segments, kUpdatePiece, host + pieces_offset(update));
}

void write_table(const device::SumSquares& sum, std::byte* host) {
  for (std::size_t i = 0; i < sum.parts.size(); ++i) {
    const device::SumPart& part = sum.parts[i];
    require_type("sum_squares", part.array.dtype);
    SquaresEntry entry = {};
    entry.data = part.array.data;
    entry.elements = part.elements;
    entry.type = static_cast<std::int32_t>(is_fp32(part.array.dtype) ? DType::kFp32 : part.array.dtype);
    entry.wide = all_aligned({part.array.data});
    write_entry(entry, i, host);
  }
  write_pieces(sum.parts, kSquaresPiece, host + pieces_offset(sum));
}

void write_table(const device::Rope& rope, std::byte* host) {
  const std::vector<double> turns = turns_of_one(rope);
  if (rope.positions != nullptr) {
    std::memcpy(host, turns.data(), turns.size() * sizeof(double));
    return;
  }
  for (std::int64_t position = 0; position < rope.sequence; ++position) {
    for (const double turn : turns) {
      const double angle = static_cast<double>(position) * turn;
      const float entry[2] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
      std::memcpy(host, entry, sizeof(entry));
      host += sizeof(entry);
    }
  }
}

bool same_table(const device::Rope& a, const device::Rope& b) {
  const bool both_given = a.positions != nullptr && b.positions != nullptr;
  return a.rotated == b.rotated && a.theta == b.theta &&
         (both_given || (a.positions == b.positions && a.sequence == b.sequence));
}

std::int64_t workspace_bytes(const device::Rope& rope) {
  return rope.positions != nullptr ? rope.sequence * (rope.rotated / 2) * 8 : 0;
}

std::int64_t workspace_bytes(const device::SumSquares& sum) { return pieces_of(sum) * 8; }

}  // namespace orrery::cuda
