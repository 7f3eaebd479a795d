#pragma once
// Products of matrices in single precision. By construction an element's bits depend on its own row of a, its
// own column of b and what it starts from, and on nothing else: it is one chain of fused multiply-adds over k
// in ascending order, so rows and columns may be divided over calls and ranks as one likes, and a product
// that goes on where another ended (accumulate) has the bits of both in one.

#include <cstddef>

#include "executor/kernels/workspace.hpp"

namespace orrery::host {

// An operand as it lies in memory: element (i, j) at data[i · row_stride + j · column_stride]. Row-major has
// a column stride of 1; its transpose a row stride of 1. Others work, slowly.
struct Matrix {
  const float* data = nullptr;
  std::size_t row_stride = 0, column_stride = 1;
};
inline Matrix transposed(const Matrix& m) { return {m.data, m.column_stride, m.row_stride}; }

// c[m, n] = a[m, k] · b[k, n], or += ; rows of c stand ldc apart. c must not overlap a or b.
// kOneDnn of the workspace applies here (where a and b have a stride of 1), and its bits may differ with m
// and n.
void gemm(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float* c,
          std::size_t ldc, bool accumulate, Workspace& workspace);

// b packed once for several products: [k][32] for each 32 columns, one after the other; columns beyond are 0.
struct PackedMatrix {
  const float* data = nullptr;
  std::size_t k = 0, columns = 0;
};
std::size_t packed_elements(std::size_t k, std::size_t columns);
PackedMatrix pack(std::size_t k, std::size_t columns, const Matrix& b, float* into, Isa isa);

// The part of a packed matrix that a product uses. REQUIRES: first_column is a multiple of 32.
struct PackedRange {
  std::size_t first_row = 0, rows = 0, first_column = 0, columns = 0;
};
// c[m, range.columns] = a[m, range.rows] · that part of b, or +=.
void gemm_packed(std::size_t m, const Matrix& a, const PackedMatrix& b, const PackedRange& range, float* c,
                 std::size_t ldc, bool accumulate, Workspace& workspace);

// Whether this build found oneDNN.
bool have_onednn();

}  // namespace orrery::host
