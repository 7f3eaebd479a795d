#pragma once
// What kernels that make FP8 copies share.

#include <cuda_fp8.h>

#include <cstdint>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {

// Of matrices of zeros; keeps factors finite.
inline constexpr float kLeastLargest = 0x1p-100f;
inline constexpr float kLargestE4m3 = 448, kLargestE5m2 = 57344;

// Two of them, the first in the lower byte. Beyond the largest number of the format it is that number.
__device__ __forceinline__ std::uint32_t pair_of(float first, float second, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, kind);
}

// Rows of four bytes, as its columns.
__device__ __forceinline__ void turn(std::uint32_t (&rows)[4]) {
  const std::uint32_t low = __byte_perm(rows[0], rows[1], 0x5140),
                      high = __byte_perm(rows[0], rows[1], 0x7362);
  const std::uint32_t low2 = __byte_perm(rows[2], rows[3], 0x5140),
                      high2 = __byte_perm(rows[2], rows[3], 0x7362);
  rows[0] = __byte_perm(low, low2, 0x5410), rows[1] = __byte_perm(low, low2, 0x7632);
  rows[2] = __byte_perm(high, high2, 0x5410), rows[3] = __byte_perm(high, high2, 0x7632);
}

struct alignas(16) Sixteen {
  std::uint32_t word[4];
};

// Copies whose scales are of blocks.
void quantize_blocks(const device::Quantize& q, Stream stream);

}  // namespace orrery::cuda
