#pragma once
// Calls of the CUDA runtime that must not fail.

#include <cuda_runtime_api.h>

#include <string_view>

namespace orrery::cuda {

// THROWS Error(kRuntime): what was being done, and CUDA's own words.
void check(cudaError_t status, std::string_view doing);

}  // namespace orrery::cuda
