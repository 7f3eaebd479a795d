// Activations and gates. Formulas as executor/kernels/loops_activations.hpp has them.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

using device::Activation;

// 1 + erf(x): absolute error 1e-7. Far below zero little of it is right, where what it is multiplied into is
// smaller than that too.
__device__ __forceinline__ float one_plus_erf(float x) { return 1.0f + erff(x); }

template <Activation kKind>
__device__ __forceinline__ float activate(float limit, float x) {
  if constexpr (kKind == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kKind == Activation::kGelu) return 0.5f * x * one_plus_erf(x * 0.70710678118654752f);
  if constexpr (kKind == Activation::kRelu) return fmaxf(x, 0.0f);
  if constexpr (kKind == Activation::kTanhCap) return limit * tanhf(x / limit);
  return 0;
}

template <Activation kKind>
__device__ __forceinline__ float slope(float limit, float x) {
  if constexpr (kKind == Activation::kSilu) {
    const float s = sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
  }
  if constexpr (kKind == Activation::kGelu) {
    const float density = exp_fast(x * x * -0.5f) * 0.39894228040143268f;  // 1/√2π
    return fmaf(x, density, 0.5f * one_plus_erf(x * 0.70710678118654752f));
  }
  if constexpr (kKind == Activation::kRelu) return x > 0.0f ? 1.0f : 0.0f;
  if constexpr (kKind == Activation::kTanhCap) {
    const float t = tanhf(x / limit);
    return 1.0f - t * t;
  }
  return 0;
}

// g · sigmoid(1.702 g) · (up + 1) of a clamped gate and a clamped up.
struct Clamped {
  float g, up, open;
};
__device__ __forceinline__ Clamped clamped(float limit, float gate, float up) {
  const float g = fminf(gate, limit);
  return {g, fmaxf(fminf(up, limit), -limit) + 1.0f, sigmoid(1.702f * g)};
}

template <Activation kKind>
__device__ __forceinline__ float gated(float limit, float gate, float up) {
  if constexpr (kKind == Activation::kClampedSilu) {
    const Clamped c = clamped(limit, gate, up);
    return c.g * c.open * c.up;
  } else {
    return activate<kKind>(limit, gate) * up;
  }
}

struct GateSlopes {
  float gate, up;
};
template <Activation kKind>
__device__ __forceinline__ GateSlopes gated_grad(float limit, float gate, float up, float dy) {
  if constexpr (kKind == Activation::kClampedSilu) {
    const Clamped c = clamped(limit, gate, up);
    const float through = c.open * fmaf(1.702f * c.g, 1.0f - c.open, 1.0f) * c.up * dy;
    return {c.g < limit ? through : 0.0f, fabsf(up) < limit ? c.g * c.open * dy : 0.0f};
  } else if constexpr (kKind == Activation::kSilu) {
    const float s = sigmoid(gate);  // Once for both.
    return {s * fmaf(gate, 1.0f - s, 1.0f) * up * dy, gate * s * dy};
  } else {
    return {slope<kKind>(limit, gate) * up * dy, activate<kKind>(limit, gate) * dy};
  }
}

template <class T, Activation kKind>
struct UnaryOp {
  const T* x;
  T* y;
  float limit;

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
    for (int j = 0; j < N; ++j) v.at[j] = activate<kKind>(limit, v.at[j]);
    store(y + i, v);
  }
};

template <class T, Activation kKind>
struct UnaryGradOp {
  const T *x, *dy;
  T* dx;
  float limit;

  template <int N>
  struct Loaded {
    Packed<T, N> x, dy;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    return {load_packed<N>(x + i), load_packed<N>(dy + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Loaded<N>& in) const {
    const Floats<N> v = unpack<N>(in.x), d = unpack<N>(in.dy);
    Floats<N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.at[j] = slope<kKind>(limit, v.at[j]) * d.at[j];
    store(dx + i, result);
  }
};

// Where element i of a tensor stands whose rows are `more` elements further apart than they are wide.
struct Rows {
  std::int64_t width, more;
  __device__ __forceinline__ std::int64_t place(std::int64_t i) const {
    if (more == 0) return i;
    const std::int64_t row = i >> 32 == 0 && width >> 32 == 0
                                 ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(width)
                                 : i / width;
    return i + row * more;
  }
};
Rows rows_of(std::int64_t width, std::int64_t stride) { return {width, stride > 0 ? stride - width : 0}; }
bool aligned_rows(std::int64_t width, std::int64_t stride, DType type) {
  const std::int64_t elements = 16 / size_bytes(type);
  return stride == 0 || (width % elements == 0 && stride % elements == 0);
}

template <int N>
__device__ __forceinline__ float largest_of(const Floats<N>& x) {
  float most = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) most = fmaxf(most, fabsf(x.at[j]));
  return most;
}

template <class T, Activation kKind>
struct GatedOp {
  using Written = T;
  const T *gate, *up;
  T* y;
  float limit;
  Rows rows;
  float* largest;

  template <int N>
  struct Loaded {
    Packed<T, N> gate, up;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    const std::int64_t at = rows.place(i);
    return {load_packed<N>(gate + at), load_packed<N>(up + at)};
  }
  template <int N>
  __device__ __forceinline__ float finish(std::int64_t i, const Loaded<N>& in) const {
    const Floats<N> g = unpack<N>(in.gate), u = unpack<N>(in.up);
    Floats<N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.at[j] = gated<kKind>(limit, g.at[j], u.at[j]);
    store(y + i, result);
    return largest_of<N>(result);
  }
};

template <class T, Activation kKind>
struct GatedGradOp {
  using Written = T;
  const T *gate, *up, *dy;
  T *dgate, *dup;
  float limit;
  Rows rows, gradient_rows;
  float* largest;

  template <int N>
  struct Loaded {
    Packed<T, N> gate, up, dy;
  };
  template <int N>
  __device__ __forceinline__ Loaded<N> load(std::int64_t i) const {
    const std::int64_t at = rows.place(i);
    return {load_packed<N>(gate + at), load_packed<N>(up + at), load_packed<N>(dy + i)};
  }
  template <int N>
  __device__ __forceinline__ float finish(std::int64_t i, const Loaded<N>& in) const {
    const Floats<N> g = unpack<N>(in.gate), u = unpack<N>(in.up), d = unpack<N>(in.dy);
    Floats<N> to_gate, to_up;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const GateSlopes slopes = gated_grad<kKind>(limit, g.at[j], u.at[j], d.at[j]);
      to_gate.at[j] = slopes.gate;
      to_up.at[j] = slopes.up;
    }
    const std::int64_t at = gradient_rows.place(i);
    store(dgate + at, to_gate);
    store(dup + at, to_up);
    return fmaxf(largest_of<N>(to_gate), largest_of<N>(to_up));
  }
};

// Accesses of a thread that are under way at once: two where registers allow it.
template <Activation kKind>
inline constexpr int kAccesses = kKind == Activation::kGelu || kKind == Activation::kTanhCap ? 1 : 2;

template <Activation kKind>
struct KindTag {
  static constexpr Activation value = kKind;
};

template <class Call>
void with_activation(Activation kind, Call call) {
  switch (kind) {
    case Activation::kSilu: return call(KindTag<Activation::kSilu>());
    case Activation::kGelu: return call(KindTag<Activation::kGelu>());
    case Activation::kRelu: return call(KindTag<Activation::kRelu>());
    case Activation::kTanhCap: return call(KindTag<Activation::kTanhCap>());
    case Activation::kClampedSilu: return call(KindTag<Activation::kClampedSilu>());
  }
}

// Calls call(TypeTag<T>(), KindTag<…>()).
template <class Call>
void with_both(DType type, Activation kind, const char* kernel, Call call) {
  with_type(type, kernel, [&](auto tag) { with_activation(kind, [&](auto of) { call(tag, of); }); });
}

}  // namespace

void launch(const device::Unary& u, const std::byte*, std::byte*, Stream stream) {
  const bool wide = all_aligned({u.x.data, u.dy.data, u.y.data});
  with_both(u.x.dtype, u.activation, "unary", [&](auto tag, auto kind) {
    using T = typename decltype(tag)::Type;
    constexpr Activation kKind = decltype(kind)::value;
    if (u.dy) {
      const UnaryGradOp<T, kKind> op = {typed<const T>(u.x.data), typed<const T>(u.dy.data),
                                        typed<T>(u.y.data), u.limit};
      launch_each<kWide<T>>(op, u.elements, wide, "unary_grad", stream);
    } else {
      const UnaryOp<T, kKind> op = {typed<const T>(u.x.data), typed<T>(u.y.data), u.limit};
      launch_each<kWide<T>, kAccesses<kKind>>(op, u.elements, wide, "unary", stream);
    }
  });
}

void launch(const device::Gated& g, const std::byte*, std::byte*, Stream stream) {
  const bool wide =
      all_aligned({g.gate.data, g.up.data, g.y.data}) && aligned_rows(g.width, g.stride, g.gate.dtype);
  with_both(g.gate.dtype, g.activation, "gated", [&](auto tag, auto kind) {
    using T = typename decltype(tag)::Type;
    const GatedOp<T, decltype(kind)::value> op = {typed<const T>(g.gate.data), typed<const T>(g.up.data),
                                                  typed<T>(g.y.data),          g.limit,
                                                  rows_of(g.width, g.stride),  g.largest};
    launch_each<kWide<T>, kAccesses<decltype(kind)::value>>(op, g.elements, wide, "gated", stream);
  });
}

void launch(const device::GatedGrad& g, const std::byte*, std::byte*, Stream stream) {
  const bool wide = all_aligned({g.gate.data, g.up.data, g.dy.data, g.dgate.data, g.dup.data}) &&
                    aligned_rows(g.width, g.stride, g.gate.dtype) &&
                    aligned_rows(g.width, g.gradient_stride, g.gate.dtype);
  with_both(g.gate.dtype, g.activation, "gated_grad", [&](auto tag, auto kind) {
    using T = typename decltype(tag)::Type;
    const GatedGradOp<T, decltype(kind)::value> op = {typed<const T>(g.gate.data),
                                                      typed<const T>(g.up.data),
                                                      typed<const T>(g.dy.data),
                                                      typed<T>(g.dgate.data),
                                                      typed<T>(g.dup.data),
                                                      g.limit,
                                                      rows_of(g.width, g.stride),
                                                      rows_of(g.width, g.gradient_stride),
                                                      g.largest};
    launch_each<kWide<T>>(op, g.elements, wide, "gated_grad", stream);
  });
}

}  // namespace orrery::cuda
