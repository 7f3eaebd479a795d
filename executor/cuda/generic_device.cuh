#pragma once
// What the generic kernels share beside kernels_device.cuh: elements of types that are known at run time
// only, and the choice of how many elements to move at once.

#include <cuda_runtime.h>

#include <initializer_list>
#include <type_traits>

#include "executor/cuda/generic.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {

using device::Array;

template <class T>
__host__ __device__ __forceinline__ T* elements_of(const Array& array) {
  return reinterpret_cast<T*>(array.data);
}

__device__ __forceinline__ float read_float(const Array& from, std::int64_t i) {
  switch (from.dtype) {
    case DType::kBf16: return to_float(elements_of<Bf16>(from)[i]);
    case DType::kFp16: return to_float(elements_of<Fp16>(from)[i]);
    case DType::kInt64: return static_cast<float>(elements_of<std::int64_t>(from)[i]);
    case DType::kInt32: return static_cast<float>(elements_of<std::int32_t>(from)[i]);
    case DType::kUint8: return static_cast<float>(elements_of<std::uint8_t>(from)[i]);
    default: return elements_of<float>(from)[i];
  }
}
__device__ __forceinline__ void write_float(const Array& to, std::int64_t i, float x) {
  switch (to.dtype) {
    case DType::kBf16: elements_of<Bf16>(to)[i] = from_float<Bf16>(x); return;
    case DType::kFp16: elements_of<Fp16>(to)[i] = from_float<Fp16>(x); return;
    case DType::kInt64: elements_of<std::int64_t>(to)[i] = static_cast<std::int64_t>(x); return;
    case DType::kInt32: elements_of<std::int32_t>(to)[i] = static_cast<std::int32_t>(x); return;
    case DType::kUint8: elements_of<std::uint8_t>(to)[i] = static_cast<std::uint8_t>(x); return;
    default: elements_of<float>(to)[i] = x;
  }
}
// Ids, labels, picks, places: also what a float doesn't hold.
__device__ __forceinline__ std::int64_t read_whole(const Array& from, std::int64_t i) {
  switch (from.dtype) {
    case DType::kInt64: return elements_of<std::int64_t>(from)[i];
    case DType::kUint8: return elements_of<std::uint8_t>(from)[i];
    default: return elements_of<std::int32_t>(from)[i];
  }
}
__device__ __forceinline__ void write_whole(const Array& to, std::int64_t i, std::int64_t x) {
  switch (to.dtype) {
    case DType::kInt64: elements_of<std::int64_t>(to)[i] = x; return;
    case DType::kUint8: elements_of<std::uint8_t>(to)[i] = static_cast<std::uint8_t>(x); return;
    default: elements_of<std::int32_t>(to)[i] = static_cast<std::int32_t>(x);
  }
}

// Calls call(TypeTag<T>(), std::integral_constant<int, N>()): N elements of T are 16 bytes where rows of
// `width` of them begin at multiples of that in all arrays, else N is 1.
template <class Call>
void with_pack(DType type, std::int64_t width, std::initializer_list<Array> arrays, const char* kernel,
               Call call) {
  with_type(type, kernel, [&](auto tag) {
    constexpr int kCount = kWide<typename decltype(tag)::Type>;
    bool wide = width % kCount == 0;
    for (const Array& array : arrays) wide = wide && all_aligned({array.data});
    if (wide) {
      call(tag, std::integral_constant<int, kCount>());
    } else {
      call(tag, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace orrery::cuda
