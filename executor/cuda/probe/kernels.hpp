#pragma once
// Launchers of the probe's kernels. They return at once; the work is ordered by the stream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace orrery::cuda {

// Does nothing: what is left is the cost of a launch.
void launch_empty(cudaStream_t stream);

// Copies `bytes`, a multiple of 16, in 16-byte loads and stores that fill the device.
void launch_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

// `count` bf16 numbers, roughly normal with mean 0 and variance 1. Matrix units draw less power and clock
// higher on zeros, so nothing is timed on those.
void launch_fill_bf16(void* to, std::size_t count, std::uint32_t seed, cudaStream_t stream);

}  // namespace orrery::cuda
