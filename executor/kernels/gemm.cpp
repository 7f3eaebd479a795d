#include "executor/kernels/gemm.hpp"

#include <algorithm>
#include <cassert>

#include "executor/kernels/loops.hpp"
#include "executor/kernels/onednn.hpp"

namespace orrery::host {
namespace {

// A 32 × 256 panel of b (32 KiB) stays in the first cache while 128 × 256 of a (128 KiB) pass by from the
// second, where 256 × 1024 of b (1 MiB) wait (Goto & van de Geijn 2008). Only speed hangs on these.
constexpr std::size_t kBlockK = 256, kBlockRows = 128, kBlockColumns = 1024;

std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

Matrix moved(const Matrix& m, std::size_t rows, std::size_t columns) {
  return {m.data + rows * m.row_stride + columns * m.column_stride, m.row_stride, m.column_stride};
}

// Panels of b, `panel_elements` apart, of which k rows count.
struct Panels {
  const float* data = nullptr;
  std::size_t panel_elements = 0;
};

void multiply_tile(const Loops& loop, std::size_t k, const float* a, const float* b, float* c,
                   std::size_t ldc, std::size_t rows, std::size_t columns, bool accumulate) {
  if (rows == kTileRows && columns == kTileColumns) return loop.tile(k, a, b, c, ldc, accumulate);
  // At the edges a whole tile is made elsewhere, and what belongs to c copied.
  float whole[kTileRows * kTileColumns] = {};
  for (std::size_t i = 0; accumulate && i < rows; ++i) {
    std::copy_n(c + i * ldc, columns, whole + i * kTileColumns);
  }
  loop.tile(k, a, b, whole, kTileColumns, accumulate);
  for (std::size_t i = 0; i < rows; ++i) std::copy_n(whole + i * kTileColumns, columns, c + i * ldc);
}

// k <= kBlockK, so that it is one block.
void multiply_block(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Panels& b, float* c,
                    std::size_t ldc, bool accumulate, Workspace& workspace) {
  const Loops& loop = loops(workspace.isa);
  Scratch scratch(workspace);
  float* packed = scratch.take<float>(round_up(std::min(m, kBlockRows), kTileRows) * k);
  for (std::size_t i0 = 0; i0 < m; i0 += kBlockRows) {
    const std::size_t block = std::min(kBlockRows, m - i0);
    for (std::size_t i = 0; i < block; i += kTileRows) {
      const Matrix rows = moved(a, i0 + i, 0);
      loop.pack(rows.data, rows.row_stride, rows.column_stride, std::min(kTileRows, block - i), k, kTileRows,
                packed + i * k);
    }
    for (std::size_t j = 0; j < n; j += kTileColumns) {
      const float* panel = b.data + j / kTileColumns * b.panel_elements;
      for (std::size_t i = 0; i < block; i += kTileRows) {
        multiply_tile(loop, k, packed + i * k, panel, c + (i0 + i) * ldc + j, ldc,
                      std::min(kTileRows, block - i), std::min(kTileColumns, n - j), accumulate);
      }
    }
  }
}

void clear(std::size_t m, std::size_t n, float* c, std::size_t ldc) {
  for (std::size_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
}

}  // namespace

std::size_t packed_elements(std::size_t k, std::size_t columns) {
  return k * round_up(columns, kTileColumns);
}

PackedMatrix pack(std::size_t k, std::size_t columns, const Matrix& b, float* into, Isa isa) {
  for (std::size_t j = 0; j < columns; j += kTileColumns) {
    const Matrix part = moved(b, 0, j);
    loops(isa).pack(part.data, part.column_stride, part.row_stride, std::min(kTileColumns, columns - j), k,
                    kTileColumns, into + j * k);
  }
  return {into, k, columns};
}

void gemm_packed(std::size_t m, const Matrix& a, const PackedMatrix& b, const PackedRange& range, float* c,
                 std::size_t ldc, bool accumulate, Workspace& workspace) {
  assert(range.first_column % kTileColumns == 0 && range.first_row + range.rows <= b.k);
  if (range.rows == 0 && !accumulate) clear(m, range.columns, c, ldc);
  for (std::size_t k0 = 0; k0 < range.rows; k0 += kBlockK) {
    const Panels panels = {b.data + range.first_column * b.k + (range.first_row + k0) * kTileColumns,
                           b.k * kTileColumns};
    multiply_block(m, range.columns, std::min(kBlockK, range.rows - k0), moved(a, 0, k0), panels, c, ldc,
                   accumulate || k0 > 0, workspace);
  }
}

void gemm(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float* c,
          std::size_t ldc, bool accumulate, Workspace& workspace) {
  if (k == 0 && !accumulate) clear(m, n, c, ldc);
  if (m == 0 || n == 0 || k == 0) return;
  if (workspace.gemm_backend == GemmBackend::kOneDnn && onednn_gemm(m, n, k, a, b, c, ldc, accumulate))
    return;
  Scratch scratch(workspace);
  float* packed = scratch.take<float>(packed_elements(std::min(k, kBlockK), std::min(n, kBlockColumns)));
  for (std::size_t j = 0; j < n; j += kBlockColumns) {
    const std::size_t columns = std::min(kBlockColumns, n - j);
    for (std::size_t k0 = 0; k0 < k; k0 += kBlockK) {
      const std::size_t depth = std::min(kBlockK, k - k0);
      pack(depth, columns, moved(b, k0, j), packed, workspace.isa);
      multiply_block(m, columns, depth, moved(a, 0, k0), {packed, depth * kTileColumns}, c + j, ldc,
                     accumulate || k0 > 0, workspace);
    }
  }
}

}  // namespace orrery::host
