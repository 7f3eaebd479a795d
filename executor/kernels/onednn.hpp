#pragma once
// oneDNN's product of matrices, where the build found the library. Its include stays in onednn.cpp.

#include <cstddef>

#include "executor/kernels/gemm.hpp"

namespace orrery::host {

// As gemm. False where it does nothing: no library, or strides that it doesn't take.
bool onednn_gemm(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float* c,
                 std::size_t ldc, bool accumulate);

}  // namespace orrery::host
