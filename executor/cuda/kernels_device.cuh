#pragma once
// What the kernels share on the device: types to floats and back, 16-byte accesses, sums of a warp and of a
// block, and the loop of everything that goes element by element. And on the host: types as template
// arguments.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"
#include "executor/cuda/kernels_host.hpp"

namespace orrery::cuda {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// ---- Types.

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(Fp16 x) { return __half2float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ Fp16 from_float<Fp16>(float x) {
  return __float2half_rn(x);
}
// As another kernel would read it back.
template <class T>
__device__ __forceinline__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

// ---- N elements at once, as floats or as they lie in memory.

template <int N>
struct Floats {
  float at[N];
};

// As many as fit into a register pair's or quad's load: 16 bytes at most, more are several loads.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Packed {
  T at[N];
};

// Elements of a 16-byte access.
template <class T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));

template <int N, class T>
__device__ __forceinline__ Packed<T, N> load_packed(const T* from) {
  return *reinterpret_cast<const Packed<T, N>*>(from);
}
template <int N, class T>
__device__ __forceinline__ void store_packed(T* to, const Packed<T, N>& x) {
  *reinterpret_cast<Packed<T, N>*>(to) = x;
}

template <int N>
__device__ __forceinline__ Floats<N> unpack(const Packed<float, N>& x) {
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = x.at[i];
  return y;
}

template <int N>
__device__ __forceinline__ Floats<N> unpack(const Packed<Bf16, N>& x) {
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = __bfloat162float(x.at[i]);
  return y;
}
template <int N>
__device__ __forceinline__ Floats<N> unpack(const Packed<Fp16, N>& x) {
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = __half2float(x.at[i]);
  return y;
}
template <class T, int N>
__device__ __forceinline__ Packed<T, N> pack(const Floats<N>& x) {
  Packed<T, N> y;
  if constexpr (std::is_same_v<T, Bf16> && N % 2 == 0) {
    auto* const pairs = reinterpret_cast<__nv_bfloat162*>(y.at);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pairs[i] = __floats2bfloat162_rn(x.at[2 * i], x.at[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y.at[i] = from_float<T>(x.at[i]);
  }
  return y;
}

// REQUIRES: `from` is aligned to min(16, N · sizeof(T)).
template <int N, class T>
__device__ __forceinline__ Floats<N> load(const T* from) {
  return unpack<N>(load_packed<N>(from));
}
template <int N, class T>
__device__ __forceinline__ void store(T* to, const Floats<N>& x) {
  store_packed<N>(to, pack<T, N>(x));
}

// Keeps the compiler from holding what was made of these bytes, as floats in twice the registers, until it is
// made of them again.
template <class Vector>
__device__ __forceinline__ void make_again(Vector& vector) {
  static_assert(sizeof(Vector) == sizeof(uint4));
  uint4& words = reinterpret_cast<uint4&>(vector);
  asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
}

// An id, label or place of either type.
__device__ __forceinline__ std::int64_t whole_at(const void* from, bool is_int64, std::int64_t i) {
  return is_int64 ? static_cast<const std::int64_t*>(from)[i] : static_cast<const std::int32_t*>(from)[i];
}

// ---- Arithmetic.

inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x by the special function unit: two units in the last place (CUDA's programming guide, on ex2.approx).
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * kLog2E); }
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + exp_fast(-x)); }

// ---- Sums in a fixed order.

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lane));
  return x;
}

// All threads of the block get the sum. `shared`: kWarps values that the block's other sums may use as well.
// REQUIRES: kWarps full warps, all of which come here.
template <int kWarps, class T>
__device__ __forceinline__ T block_sum(T x, T* shared) {
  x = warp_sum(x);
  if constexpr (kWarps > 1) {
    __syncthreads();  // Whoever used `shared` before has read it.
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) x += shared[warp];
  }
  return x;
}
template <int kWarps>
__device__ __forceinline__ float block_max(float x, float* shared) {
  x = warp_max(x);
  if constexpr (kWarps > 1) {
    __syncthreads();
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) x = fmaxf(x, shared[warp]);
  }
  return x;
}

// Raises *largest to the block's, as T rounds it. No order of blocks changes it: bits of numbers that aren't
// negative are in the numbers' order. `shared` as of block_max.
template <class T, int kWarps>
__device__ __forceinline__ void raise_largest(float most, float* shared, float* largest) {
  most = block_max<kWarps>(most, shared);
  if (threadIdx.x % (kWarps * kWarp) != 0) return;
  Packed<T, 1> rounded = pack<T, 1>(Floats<1>{{most}});
  most = unpack<1>(rounded).at[0];
  if (most > *static_cast<volatile float*>(largest))
    atomicMax(reinterpret_cast<unsigned*>(largest), __float_as_uint(most));
}

// ---- Element by element.
//
// An Op has `template <int N> struct Loaded`, `load<N>(i)`, which reads what elements [i, i + N) need, and
// `finish<N>(i, loaded)`, which works them out and writes them. All loads of a thread are under way before
// its first store. Elements may be written over what they were made from, as each is read and written by one
// thread. Where finish returns the largest element that it wrote, of type Op::Written, op.largest is raised to
// that of all, or null.

inline constexpr int kEachThreads = 256;

template <int N>
struct Width {
  static constexpr int value = N;
};

template <int N, int kUnroll, class Op, class Finish>
__device__ __forceinline__ void for_each(const Op& op, std::int64_t count, Finish finish) {
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kEachThreads) * N;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kUnroll * kStride;
  const std::int64_t first = block + static_cast<std::int64_t>(threadIdx.x) * N;
  if (block + kUnroll * kStride <= count) {
    typename Op::template Loaded<N> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) in[u] = op.template load<N>(first + u * kStride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) finish(Width<N>(), first + u * kStride, in[u]);
    return;
  }
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kStride;
    if (i + N <= count) {
      finish(Width<N>(), i, op.template load<N>(i));
    } else {
      for (std::int64_t j = i; j < count; ++j) finish(Width<1>(), j, op.template load<1>(j));
    }
  }
}

template <int N, int kUnroll, class Op>
__global__ void __launch_bounds__(kEachThreads) each_kernel(const Op op, std::int64_t count) {
  if constexpr (std::is_void_v<decltype(op.template finish<N>(0, op.template load<N>(0)))>) {
    for_each<N, kUnroll>(op, count, [&](auto width, std::int64_t i, const auto& in) {
      op.template finish<decltype(width)::value>(i, in);
    });
  } else {
    float most = 0;
    for_each<N, kUnroll>(op, count, [&](auto width, std::int64_t i, const auto& in) {
      most = fmaxf(most, op.template finish<decltype(width)::value>(i, in));
    });
    if (op.largest == nullptr) return;
    __shared__ float shared[kEachThreads / kWarp];
    raise_largest<typename Op::Written, kEachThreads / kWarp>(most, shared, op.largest);
  }
}

// N: elements of a thread's access where `wide`, else 1.
template <int N, int kUnroll = 1, class Op>
void launch_each(const Op& op, std::int64_t count, bool wide, const char* name, Stream stream) {
  if (count == 0) return;
  const auto blocks = [&](std::int64_t elements) {
    return static_cast<unsigned>(divide_up(count, elements * kUnroll * kEachThreads));
  };
  if (wide) {
    each_kernel<N, kUnroll><<<blocks(N), kEachThreads, 0, stream>>>(op, count);
  } else {
    each_kernel<1, kUnroll><<<blocks(1), kEachThreads, 0, stream>>>(op, count);
  }
  check_launch(name);
}

// ---- Types as template arguments.

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls call(TypeTag<T>()) for bf16, fp16 or fp32. THROWS for others, naming the kernel.
template <class Call>
void with_type(DType type, const char* kernel, Call call) {
  switch (type) {
    case DType::kBf16: return call(TypeTag<Bf16>());
    case DType::kFp16: return call(TypeTag<Fp16>());
    case DType::kFp32:
    case DType::kTf32: return call(TypeTag<float>());
    default: refuse_type(kernel, type);
  }
}

template <class T>
T* typed(std::byte* data) {
  return reinterpret_cast<T*>(data);
}
template <class T>
const T* typed(const std::byte* data) {
  return reinterpret_cast<const T*>(data);
}

}  // namespace orrery::cuda
