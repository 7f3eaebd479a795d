#pragma once
// What kernels that make FP8 copies share.

#include <cuda_fp8.h>

#include <cstdint>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {

inline constexpr int kQuantizeThreads = 256;

// Of matrices of zeros; keeps factors finite.
inline constexpr float kLeastLargest = 0x1p-100f;
inline constexpr float kLargestE4m3 = 448, kLargestE5m2 = 57344;

struct Fp8Kind {
  __nv_fp8_interpretation_t kind;
  float largest;
};
inline Fp8Kind fp8_kind(const device::Quantize& q) {
  return q.e5m2 ? Fp8Kind{__NV_E5M2, kLargestE5m2} : Fp8Kind{__NV_E4M3, kLargestE4m3};
}

// Where a matrix's largest element stands, in parts, and where it and the scale go.
struct Largest {
  const float* parts;
  int count;
  float *scale, *to;  // to: or none.
};

// What elements are multiplied by; all threads of the block get it, and the grid's first block writes its
// inverse.
__device__ __forceinline__ float factor_of(const Largest& largest, const Fp8Kind& fp8) {
  constexpr int kWarps = kQuantizeThreads / kWarp;
  __shared__ float shared[kWarps];
  float most = kLeastLargest;
  for (int i = static_cast<int>(threadIdx.x); i < largest.count; i += kQuantizeThreads)
    most = fmaxf(most, largest.parts[i]);
  most = block_max<kWarps>(most, shared);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    *largest.scale = most / fp8.largest;
    if (largest.to != nullptr) *largest.to = most;
  }
  return fp8.largest / most;
}

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

// Copies that are turned, or whose scales are of blocks; those have no `largest`.
void quantize_tiles(const device::Quantize& q, const Largest& largest, Stream stream);

}  // namespace orrery::cuda
