// Rotary positions. A warp takes all heads of a token, so that its cosines and sines are read once.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kRopeThreads = 256;

template <class T>
struct RopeArrays {
  const T* x;
  T* y;
  const float2* turns;  // [sequence][pairs]: cosine and sine.
  std::int64_t tokens, sequence, x_stride, y_stride;
  int heads, width, pairs;
  float direction;
};

// N pairs at once. `lanes`: threads for one head, a power of two up to a warp; the others take further heads.
template <class T, int N>
__global__ void __launch_bounds__(kRopeThreads, 3) rope_kernel(const RopeArrays<T> a, int lanes) {
  const std::int64_t token =
      static_cast<std::int64_t>(blockIdx.x) * (kRopeThreads / kWarp) + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  const int thread = static_cast<int>(threadIdx.x) % kWarp;
  const int lane = thread % lanes, first_head = thread / lanes, head_step = kWarp / lanes;
  const float2* const turns = a.turns + token % a.sequence * a.pairs;
  const T* const x = a.x + token * a.x_stride;
  T* const y = a.y + token * a.y_stride;
  for (int pair = lane * N; pair < a.pairs; pair += lanes * N) {
    const Floats<2 * N> turn = load<2 * N>(reinterpret_cast<const float*>(turns + pair));
    float cosine[N], sine[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      cosine[i] = turn.at[2 * i];
      sine[i] = turn.at[2 * i + 1] * a.direction;
    }
    for (int head = first_head; head < a.heads; head += 2 * head_step) {  // Two heads' loads under way.
      Packed<T, N> low[2], high[2];
      const auto at = [&](int u) { return static_cast<std::int64_t>(head + u * head_step) * a.width + pair; };
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if (head + u * head_step >= a.heads) continue;
        low[u] = load_packed<N>(x + at(u));
        high[u] = load_packed<N>(x + at(u) + a.pairs);
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if (head + u * head_step >= a.heads) continue;
        const Floats<N> x1 = unpack<N>(low[u]), x2 = unpack<N>(high[u]);
        Floats<N> y1, y2;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          y1.at[i] = fmaf(x1.at[i], cosine[i], -(x2.at[i] * sine[i]));
          y2.at[i] = fmaf(x1.at[i], sine[i], x2.at[i] * cosine[i]);
        }
        store(y + at(u), y1);
        store(y + at(u) + a.pairs, y2);
      }
    }
  }
  const int rest = a.width - 2 * a.pairs;
  if (rest == 0 || a.x == a.y) return;
  for (int head = first_head; head < a.heads; head += head_step) {
    const std::int64_t at = static_cast<std::int64_t>(head) * a.width + 2 * a.pairs;
    for (int i = lane * N; i < rest; i += lanes * N) {
      store_packed<N>(y + at + i, load_packed<N>(x + at + i));
    }
  }
}

// Positions that only the device knows: as host::RopeTable, from the turns of position 1.
__global__ void __launch_bounds__(kRopeThreads) rope_turns(const std::int64_t* positions, const double* one,
                                                           std::int64_t sequence, int pairs, float2* turns) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kRopeThreads + threadIdx.x;
  if (i >= sequence * pairs) return;
  double sine = 0, cosine = 0;
  sincos(static_cast<double>(positions[i / pairs]) * one[i % pairs], &sine, &cosine);
  turns[i] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

template <class T, int N>
void launch_rope(RopeArrays<T> a, Stream stream) {
  const std::int64_t of_head = divide_up(a.pairs > 0 ? a.pairs : a.width, N);
  int lanes = 1;
  while (lanes < kWarp && lanes < of_head) lanes *= 2;
  const auto blocks = static_cast<unsigned>(divide_up(a.tokens, kRopeThreads / kWarp));
  rope_kernel<T, N><<<blocks, kRopeThreads, 0, stream>>>(a, lanes);
  check_launch("rope");
}

}  // namespace

void launch(const device::Rope& r, const std::byte* table, std::byte* workspace, Stream stream) {
  const std::int64_t pairs = r.rotated / 2, tokens = r.batch * r.sequence;
  if (tokens * r.heads * r.width == 0) return;
  const auto* turns = reinterpret_cast<const float2*>(table);
  if (r.positions != nullptr && pairs > 0) {
    auto* const made = reinterpret_cast<float2*>(workspace);
    const auto blocks = static_cast<unsigned>(divide_up(r.sequence * pairs, kRopeThreads));
    rope_turns<<<blocks, kRopeThreads, 0, stream>>>(r.positions, reinterpret_cast<const double*>(table),
                                                    r.sequence, static_cast<int>(pairs), made);
    check_launch("rope_turns");
    turns = made;
  }
  with_type(r.x.dtype, "rope", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const RopeArrays<T> a = {typed<const T>(r.x.data),
                             typed<T>(r.y.data),
                             turns,
                             tokens,
                             r.sequence,
                             r.x_stride > 0 ? r.x_stride : r.heads * r.width,
                             r.y_stride > 0 ? r.y_stride : r.heads * r.width,
                             static_cast<int>(r.heads),
                             static_cast<int>(r.width),
                             static_cast<int>(pairs),
                             r.back ? -1.0f : 1.0f};
    constexpr int N = kWide<T>;
    if (pairs % N == 0 && r.width % N == 0 && r.x_stride % N == 0 && r.y_stride % N == 0 &&
        all_aligned({r.x.data, r.y.data})) {
      launch_rope<T, N>(a, stream);
    } else {
      launch_rope<T, 1>(a, stream);
    }
  });
}

}  // namespace orrery::cuda
