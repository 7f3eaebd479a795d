// The parameters' first values and their hash, as executor/runtime/state.cpp has them.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kStateThreads = 256;

// base/random.hpp's mix64, which isn't marked for the device.
__device__ __forceinline__ std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ std::int64_t sum_of_parts(std::uint64_t bits) {
  return static_cast<std::int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                                   (bits >> 48));
}

// Where element i stands: rows of `width`, `stride` apart; width 0: dense.
__device__ __forceinline__ std::int64_t place(std::int64_t i, std::int64_t width, std::int64_t stride) {
  return width == 0 ? i : i / width * stride + i % width;
}

template <class T>
__global__ void __launch_bounds__(kStateThreads)
    initial_values_kernel(T* to, std::int64_t count, std::int64_t width, std::int64_t stride,
                          std::uint64_t first_key, double scale, float constant) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStateThreads + threadIdx.x;
  if (i >= count) return;
  float value = constant;
  if (scale != 0) {
    const std::uint64_t key = first_key + 2 * static_cast<std::uint64_t>(i);
    const std::int64_t sum = sum_of_parts(mix(key)) + sum_of_parts(mix(key + 1));
    // The mean of eight numbers of 16 bits; a product that is not joined with the difference.
    value = static_cast<float>(__dmul_rn(static_cast<double>(sum) - 8 * 32767.5, scale));
  }
  to[place(i, width, stride)] = from_float<T>(value);
}

// B: bits of an element.
template <class B>
__global__ void __launch_bounds__(kStateThreads)
    hash_kernel(const B* from, std::int64_t count, std::int64_t width, std::int64_t stride,
                std::uint64_t first_name, unsigned long long* hash) {
  __shared__ std::uint64_t shared[kStateThreads / kWarp];
  std::uint64_t sums[2] = {0, 0};
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStateThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kStateThreads) {
    const std::uint64_t key = mix(first_name + static_cast<std::uint64_t>(i)) ^
                              static_cast<std::uint64_t>(from[place(i, width, stride)]);
    sums[0] += mix(key);
    sums[1] += mix(key ^ 0xd6e8feb86659fd93ull);
  }
  for (int part = 0; part < 2; ++part) {
    const std::uint64_t sum = block_sum<kStateThreads / kWarp>(sums[part], shared);
    if (threadIdx.x == 0) atomicAdd(hash + part, static_cast<unsigned long long>(sum));
  }
}

template <class B>
void launch_hash(const device::HashElements& h, Stream stream) {
  const std::int64_t wanted = divide_up(h.elements, kStateThreads), most = 16 * multiprocessors();
  const auto blocks = static_cast<unsigned>(wanted < most ? wanted : most);
  hash_kernel<B><<<blocks, kStateThreads, 0, stream>>>(typed<const B>(h.from.data), h.elements, h.width,
                                                       h.stride, h.name + static_cast<std::uint64_t>(h.first),
                                                       reinterpret_cast<unsigned long long*>(h.hash));
  check_launch("hash_elements");
}

}  // namespace

void launch(const device::InitialValues& v, const std::byte*, std::byte*, Stream stream) {
  if (v.elements == 0) return;
  with_type(v.to.dtype, "initial_values", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto blocks = static_cast<unsigned>(divide_up(v.elements, kStateThreads));
    initial_values_kernel<T><<<blocks, kStateThreads, 0, stream>>>(
        typed<T>(v.to.data), v.elements, v.width, v.stride, v.key + 2 * static_cast<std::uint64_t>(v.first),
        v.scale, v.constant);
  });
  check_launch("initial_values");
}

void launch(const device::HashElements& h, const std::byte*, std::byte*, Stream stream) {
  if (h.elements == 0) return;
  switch (size_bytes(h.from.dtype)) {
    case 1: return launch_hash<std::uint8_t>(h, stream);
    case 2: return launch_hash<std::uint16_t>(h, stream);
    case 4: return launch_hash<std::uint32_t>(h, stream);
    default: return launch_hash<std::uint64_t>(h, stream);
  }
}

}  // namespace orrery::cuda
