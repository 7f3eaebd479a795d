#pragma once
// Tiles of a product of matrices, and what packs their operands. Part of loops_body.hpp.

#include "executor/kernels/lanes.hpp"
#include "executor/kernels/loops.hpp"

namespace orrery::host {
namespace {

// One rows × parts block of a tile, in as many registers.
template <std::size_t kRows, std::size_t kColumnParts>
ORRERY_INLINE void tile_block(std::size_t k, const float* a, const float* b, float* c, std::size_t ldc,
                              bool accumulate) {
  Part sum[kRows][kColumnParts];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) {
      sum[i][j] = accumulate ? part_load(c + i * ldc + j * kPartLanes) : part_all(0.0f);
    }
  }
  for (std::size_t step = 0; step < k; ++step, a += kTileRows, b += kTileColumns) {
    Part column[kColumnParts];
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) column[j] = part_load(b + j * kPartLanes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      const Part row = part_all(a[i]);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kColumnParts; ++j) sum[i][j] = fma(row, column[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) part_store(c + i * ldc + j * kPartLanes, sum[i][j]);
  }
}

void tile(std::size_t k, const float* a, const float* b, float* c, std::size_t ldc, bool accumulate) {
  // AVX-512 has registers for all of it, the others for 4 rows of 2 at a time.
  constexpr std::size_t kRows = kPartLanes == 16 ? 8 : 4, kColumns = 2 * kPartLanes;
  for (std::size_t j = 0; j < kTileColumns; j += kColumns) {
    for (std::size_t i = 0; i < kTileRows; i += kRows) {
      tile_block<kRows, 2>(k, a + i, b + j, c + i * ldc + j, ldc, accumulate);
    }
  }
}

#if ORRERY_ISA > 0 && defined(__AVX2__)
// 8 × 8 with a row stride to [8][panel].
ORRERY_INLINE void transpose_eight(const float* x, std::size_t row_stride, float* out, std::size_t panel) {
  __m256 r[8], s[8];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(x + i * row_stride);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (std::size_t i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * panel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * panel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#else
ORRERY_INLINE void transpose_eight(const float* x, std::size_t row_stride, float* out, std::size_t panel) {
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) out[j * panel + i] = x[i * row_stride + j];
  }
}
#endif

void pack(const float* x, std::size_t row_stride, std::size_t k_stride, std::size_t rows, std::size_t k,
          std::size_t panel, float* out) {
  std::size_t eights = 0, whole = 0;  // What went through transposes: that many rows, over that many k.
  if (k_stride == 1) {
    eights = rows / 8 * 8;
    whole = k / 8 * 8;
    for (std::size_t i = 0; i < eights; i += 8) {
      for (std::size_t step = 0; step < whole; step += 8) {
        transpose_eight(x + i * row_stride + step, row_stride, out + step * panel + i, panel);
      }
    }
  } else if (row_stride == 1 && rows == panel) {
    for (std::size_t step = 0; step < k; ++step) {
      for (std::size_t i = 0; i < panel; ++i) out[step * panel + i] = x[step * k_stride + i];
    }
    return;
  }
  for (std::size_t step = 0; step < k; ++step) {
    for (std::size_t i = step < whole ? eights : 0; i < panel; ++i) {
      out[step * panel + i] = i < rows ? x[i * row_stride + step * k_stride] : 0.0f;
    }
  }
}

}  // namespace
}  // namespace orrery::host
