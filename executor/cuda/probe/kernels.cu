#include <cuda_bf16.h>

#include "executor/cuda/probe/kernels.hpp"

namespace orrery::cuda {
namespace {

__global__ void empty_kernel() {}

__global__ void copy_kernel(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    to[i] = from[i];
  }
}

// Finalizer of MurmurHash3: neighbouring counters give unrelated words.
__device__ std::uint32_t mixed(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85ebca6bU;
  x ^= x >> 13;
  x *= 0xc2b2ae35U;
  return x ^ (x >> 16);
}

__global__ void fill_kernel(__nv_bfloat16* to, std::size_t count, std::uint32_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    // The sum of four uniform numbers has variance 4/12.
    const std::uint32_t word = mixed(static_cast<std::uint32_t>(i) ^ mixed(seed));
    const float sum =
        static_cast<float>((word & 255U) + ((word >> 8) & 255U) + ((word >> 16) & 255U) + (word >> 24));
    to[i] = __float2bfloat16((sum / 255.0F - 2.0F) * 1.7320508F);
  }
}

// Enough blocks for every multiprocessor of the GPUs of today, several times over.
constexpr int kBlocks = 2048;
constexpr int kThreads = 512;

}  // namespace

void launch_empty(cudaStream_t stream) { empty_kernel<<<1, 32, 0, stream>>>(); }

void launch_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  copy_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from),
                                                bytes / sizeof(uint4));
}

void launch_fill_bf16(void* to, std::size_t count, std::uint32_t seed, cudaStream_t stream) {
  fill_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(to), count, seed);
}

}  // namespace orrery::cuda
