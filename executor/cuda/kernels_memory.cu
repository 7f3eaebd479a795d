// Sums, roundings and copies of whole arrays.

#include <cuda_runtime.h>

#include "executor/cuda/checks.hpp"
#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

// Elements of a thread's access where types differ: four, which is 16 bytes of fp32; where all are narrow,
// eight.
template <class... Types>
inline constexpr int kMixed = (... || (sizeof(Types) == 4)) ? 4 : 8;

template <class... Types>
bool mixed_aligned(const Types*... addresses) {
  return (... && all_aligned({addresses}, sizeof(Types) * kMixed<Types...>));
}

template <class F, class T>
struct AccumulateOp {
  const F* from;
  T* to;
  template <int N>
  struct Loaded {
    Packed<F, N> from;
    Packed<T, N> to;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    return {load_packed<N>(from + i), load_packed<N>(to + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    const Floats<N> x = unpack<N>(in.from);
    Floats<N> sum = unpack<N>(in.to);
#pragma unroll
    for (int j = 0; j < N; ++j) sum.at[j] += x.at[j];
    store(to + i, sum);
  }
};

template <class F, class T>
struct ConvertOp {
  const F* from;
  T* to;
  template <int N>
  using Loaded = Packed<F, N>;
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    return load_packed<N>(from + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    store(to + i, unpack<N>(in));
  }
};

template <class T>
struct ScaleOp {
  const T* x;
  T* y;
  float scale;
  template <int N>
  using Loaded = Packed<T, N>;
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    return load_packed<N>(x + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    Floats<N> v = unpack<N>(in);
#pragma unroll
    for (int j = 0; j < N; ++j) v.at[j] *= scale;
    store(y + i, v);
  }
};

template <class T>
struct AddOp {
  const T *x, *addend;
  T* y;
  float scale;
  template <int N>
  struct Loaded {
    Packed<T, N> x, addend;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    return {load_packed<N>(x + i), load_packed<N>(addend + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    const Floats<N> a = unpack<N>(in.x);
    Floats<N> sum = unpack<N>(in.addend);
#pragma unroll
    for (int j = 0; j < N; ++j) sum.at[j] = fmaf(scale, a.at[j], sum.at[j]);
    store(y + i, sum);
  }
};

// ---- Three types that may all differ: asked for at each access.

struct AnyArray {
  std::byte* data;
  DType type;
  template <int N>
  __device__ __forceinline__ Floats<N> read(std::int64_t i) const {
    switch (type) {
      case DType::kBf16: return load<N>(reinterpret_cast<const Bf16*>(data) + i);
      case DType::kFp16: return load<N>(reinterpret_cast<const Fp16*>(data) + i);
      default: return load<N>(reinterpret_cast<const float*>(data) + i);
    }
  }
  template <int N>
  __device__ __forceinline__ void write(std::int64_t i, const Floats<N>& x) const {
    switch (type) {
      case DType::kBf16: return store(reinterpret_cast<Bf16*>(data) + i, x);
      case DType::kFp16: return store(reinterpret_cast<Fp16*>(data) + i, x);
      default: return store(reinterpret_cast<float*>(data) + i, x);
    }
  }
};

struct MixedAddOp {
  AnyArray x, addend, y;
  float scale;
  template <int N>
  struct Loaded {
    Floats<N> x, addend;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    Loaded<N> in = {x.read<N>(i), {}};
    if (addend.data != nullptr) in.addend = addend.read<N>(i);
    return in;
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    Floats<N> sum = in.addend;
#pragma unroll
    for (int j = 0; j < N; ++j) sum.at[j] = fmaf(scale, in.x.at[j], sum.at[j]);
    y.write(i, sum);
  }
};

AnyArray any(const device::Array& array) {
  if (array) with_type(array.dtype, "add_scaled", [](auto) {});
  return {array.data, array.dtype};
}

// Calls call(TypeTag<F>(), TypeTag<T>()).
template <class Call>
void with_types(DType from, DType to, const char* kernel, Call call) {
  with_type(from, kernel, [&](auto f) { with_type(to, kernel, [&](auto t) { call(f, t); }); });
}

}  // namespace

void launch(const device::AddScaled& a, const std::byte*, std::byte*, Stream stream) {
  const bool wide = all_aligned({a.x.data, a.addend.data, a.y.data});
  if (a.x.dtype != a.y.dtype || (a.addend && a.addend.dtype != a.y.dtype)) {
    const MixedAddOp op = {any(a.x), any(a.addend), any(a.y), a.scale};
    return launch_each<4>(op, a.elements, wide, "add_scaled", stream);
  }
  with_type(a.x.dtype, "add_scaled", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T* const x = typed<const T>(a.x.data);
    if (a.addend) {
      const AddOp<T> op = {x, typed<const T>(a.addend.data), typed<T>(a.y.data), a.scale};
      launch_each<kWide<T>, 2>(op, a.elements, wide, "add_scaled", stream);
    } else {
      launch_each<kWide<T>, 2>(ScaleOp<T>{x, typed<T>(a.y.data), a.scale}, a.elements, wide, "add_scaled",
                               stream);
    }
  });
}

void launch(const device::Accumulate& a, const std::byte*, std::byte*, Stream stream) {
  with_types(a.from.dtype, a.to.dtype, "accumulate", [&](auto f, auto t) {
    using F = typename decltype(f)::Type;
    using T = typename decltype(t)::Type;
    const AccumulateOp<F, T> op = {typed<const F>(a.from.data), typed<T>(a.to.data)};
    launch_each<kMixed<F, T>, 2>(op, a.elements, mixed_aligned(op.from, op.to), "accumulate", stream);
  });
}

void launch(const device::Convert& c, const std::byte*, std::byte*, Stream stream) {
  with_types(c.from.dtype, c.to.dtype, "convert", [&](auto f, auto t) {
    using F = typename decltype(f)::Type;
    using T = typename decltype(t)::Type;
    const ConvertOp<F, T> op = {typed<const F>(c.from.data), typed<T>(c.to.data)};
    launch_each<kMixed<F, T>, 2>(op, c.elements, mixed_aligned(op.from, op.to), "convert", stream);
  });
}

void launch(const device::Zero& z, const std::byte*, std::byte*, Stream stream) {
  if (z.bytes == 0) return;
  check(cudaMemsetAsync(z.to, 0, static_cast<std::size_t>(z.bytes), stream), "setting memory to zero");
}

void launch(const device::CopyBytes& c, const std::byte*, std::byte*, Stream stream) {
  if (c.bytes == 0 || c.to == c.from) return;
  check(cudaMemcpyAsync(c.to, c.from, static_cast<std::size_t>(c.bytes), cudaMemcpyDeviceToDevice, stream),
        "copying device memory");
}

void launch(const device::CopyRows& c, const std::byte*, std::byte*, Stream stream) {
  if (c.row_bytes == 0 || c.rows == 0) return;
  check(cudaMemcpy2DAsync(c.to, static_cast<std::size_t>(c.to_stride), c.from,
                          static_cast<std::size_t>(c.from_stride), static_cast<std::size_t>(c.row_bytes),
                          static_cast<std::size_t>(c.rows), cudaMemcpyDeviceToDevice, stream),
        "copying rows of device memory");
}

}  // namespace orrery::cuda
