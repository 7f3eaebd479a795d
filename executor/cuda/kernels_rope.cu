// Rotary positions.

#include <algorithm>

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
  std::int64_t tokens, x_stride, y_stride;
  unsigned sequence;
  int heads, width, pairs;
  float direction;
};

// A thread takes N pairs at once of two heads, whose cosines and sines are the same; `lanes` threads side by
// side take a head, and all heads' threads a token. All that a thread reads is under way before it waits.
template <class T, int N>
__global__ void __launch_bounds__(kRopeThreads, 4)
    rope_kernel(const RopeArrays<T> a, int lanes, int block_tokens) {
  const int half = (a.heads + 1) / 2, of_token = half * lanes;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * block_tokens;
  for (int i = static_cast<int>(threadIdx.x); i < block_tokens * of_token; i += kRopeThreads) {
    const std::int64_t token = first + i / of_token;
    if (token >= a.tokens) return;
    const int head = i % of_token / lanes, lane = i % lanes, pair = lane * N;
    const int count = head + half < a.heads ? 2 : 1;
    const T* const x = a.x + token * a.x_stride + head * a.width;
    T* const y = a.y + token * a.y_stride + head * a.width;
    if (pair < a.pairs) {
      Packed<T, N> low[2], high[2];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if (u >= count) continue;
        low[u] = load_packed<N>(x + u * half * a.width + pair);
        high[u] = load_packed<N>(x + u * half * a.width + pair + a.pairs);
      }
      const unsigned position = static_cast<unsigned>(token) % a.sequence;
      const float2* const turns = a.turns + static_cast<std::int64_t>(position) * a.pairs + pair;
      const Floats<2 * N> turn = load<2 * N>(reinterpret_cast<const float*>(turns));
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if (u >= count) continue;
        const Floats<N> x1 = unpack<N>(low[u]), x2 = unpack<N>(high[u]);
        Floats<N> y1, y2;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float cosine = turn.at[2 * n], sine = turn.at[2 * n + 1] * a.direction;
          y1.at[n] = fmaf(x1.at[n], cosine, -(x2.at[n] * sine));
          y2.at[n] = fmaf(x1.at[n], sine, x2.at[n] * cosine);
        }
        store(y + u * half * a.width + pair, y1);
        store(y + u * half * a.width + pair + a.pairs, y2);
      }
    }
    if (a.x == a.y) continue;
    for (int u = 0; u < count; ++u) {
      for (int c = 2 * a.pairs + lane * N; c < a.width; c += lanes * N) {
        store_packed<N>(y + u * half * a.width + c, load_packed<N>(x + u * half * a.width + c));
      }
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
  const auto lanes = static_cast<int>(divide_up(a.pairs > 0 ? a.pairs : a.width, N));
  const int of_token = (a.heads + 1) / 2 * lanes;
  const int block_tokens = std::max(kRopeThreads / of_token, 1);
  const auto blocks = static_cast<unsigned>(divide_up(a.tokens, block_tokens));
  rope_kernel<T, N><<<blocks, kRopeThreads, 0, stream>>>(a, lanes, block_tokens);
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
                             r.x_stride > 0 ? r.x_stride : r.heads * r.width,
                             r.y_stride > 0 ? r.y_stride : r.heads * r.width,
                             static_cast<unsigned>(r.sequence),
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
