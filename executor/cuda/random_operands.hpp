#pragma once
// What kernels are timed on.

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

namespace orrery::cuda {

// Fills device memory with bf16 numbers around 0, none of them 0; read as fp16, fp32 or fp8 they are finite
// too. The same ones every 4 MiB. Waits until it is done.
void fill_random(std::span<std::byte> memory, cudaStream_t stream);

}  // namespace orrery::cuda
