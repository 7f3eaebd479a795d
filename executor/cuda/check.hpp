#pragma once
// The CUDA runtime's answers as Errors.

#include <cuda_runtime.h>

#include "base/error.hpp"

namespace orrery::cuda {

// THROWS Error(kRuntime): what was to be done, and what CUDA says.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fail(ErrorKind::kRuntime, "can't {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace orrery::cuda
