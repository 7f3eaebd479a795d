// Gradients of norms, in one pass over memory. A block on each multiprocessor goes over rows and keeps their
// sums for the weight and the bias in registers. So many registers leave few threads, too few for loads of
// their own to keep memory busy; so rows come by asynchronous copies into a ring in shared memory, some rows
// ahead of the one that is worked on. Rows that don't fit are left to kernels_norm_grad_read.cu.

#include "executor/cuda/kernels_norm_grad.cuh"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_columns.cuh"

namespace orrery::cuda {
namespace {

// Threads of a block; kGroup of them, full warps, take a row, with kVectors accesses each.
constexpr int kHeldThreads = 512;

// Rows of a group in the ring: 144 KB in all, of which 72 or more are on their way while a row is worked on.
template <int kVectors>
inline constexpr int kStages = 6 / kVectors;
enum Part { kX, kDy, kResidual, kParts };
template <int kVectors>
inline constexpr int kRingBytes = kStages<kVectors> * kParts * kVectors * 16 * kHeldThreads;

// What a row's gradient needs of its sums.
struct RowFactors {
  float mean, scale, level, along;  // dx = scale · (w dy − level − along · (x − mean) · scale)
};

constexpr int kMostSums = 4;  // One 16-byte access.
using Places = float[kHeldThreads / kWarp][kMostSums];

// kCount sums over a group. `places` changes from call to call between two, so that one barrier is enough:
// who writes a place again has been through the barrier of the other.
template <int kGroup, int kCount>
__device__ __forceinline__ void group_sums(float (&x)[kCount], Places& places) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = warp_sum(x[i]);
  if constexpr (kGroup > kWarp) {
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) places[threadIdx.x / kWarp][i] = x[i];
    }
    const unsigned group = threadIdx.x / kGroup;
    __barrier_sync_count(group + 1, kGroup);  // 0 is __syncthreads().
    const auto* const of_group = &places[group * (kGroup / kWarp)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = of_group[0][i];
#pragma unroll
    for (int warp = 1; warp < kGroup / kWarp; ++warp) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] += of_group[warp][i];
    }
  }
}

template <class T, int kGroup, int kVectors, bool kLayer>
class HeldGrad {
 public:
  static constexpr int N = kWide<T>;

  __device__ __forceinline__ HeldGrad(const GradArrays<T>& arrays, float4* ring)
      : a(arrays),
        lane(static_cast<int>(threadIdx.x) % kGroup),
        slots(reinterpret_cast<Packed<T, N>*>(ring) + threadIdx.x) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < N; ++i) weight[v].at[i] = from_float<T>(1);
      if (inside(v) && a.weight != nullptr) weight[v] = load_packed<N>(a.weight + column(v));
    }
  }

  // A stage of the ring asks for a row; rows past the last count as asked for too.
  __device__ __forceinline__ void fetch(int stage, std::int64_t row) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v) || row >= a.rows) continue;
      const std::int64_t from = row * a.width + column(v);
      __pipeline_memcpy_async(&slot(stage, kX, v), a.x + from, 16);
      __pipeline_memcpy_async(&slot(stage, kDy, v), a.dy + from, 16);
      if (a.residual != nullptr) __pipeline_memcpy_async(&slot(stage, kResidual, v), a.residual + from, 16);
    }
    __pipeline_commit();
  }

  // The row that a stage holds. A thread reads only what it copied itself, so that no one else is waited for.
  __device__ __forceinline__ void work(int stage, std::int64_t row, Places (&places)[2]) {
    __pipeline_wait_prior(kStages<kVectors> - 1);
    const RowFactors f = factors(stage, places);
    asm volatile("" ::: "memory");  // The row is read again, not kept in registers, of which there are few.
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v)) continue;
      const Floats<N> in = unpack<N>(slot(stage, kX, v)), d = unpack<N>(slot(stage, kDy, v)),
                      w = unpack<N>(weight[v]);
      Floats<N> result = {};
      if (a.residual != nullptr) result = unpack<N>(slot(stage, kResidual, v));
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normed = (in.at[i] - f.mean) * f.scale;
        dweight[v].at[i] = fmaf(d.at[i], normed, dweight[v].at[i]);
        if constexpr (kLayer) dbias[v].at[i] += d.at[i];
        const float whole = fmaf(-normed, f.along, d.at[i] * w.at[i] - f.level);
        result.at[i] = fmaf(f.scale, whole, result.at[i]);
      }
      store(a.dx + row * a.width + column(v), result);
    }
  }

  // Adds up a column's sums of all groups, in order, into the block's row of `partials`, if any. `sums`: the
  // ring, which must be through.
  __device__ __forceinline__ void finish(const Floats<N> (&mine)[kVectors], float* partials,
                                         float* sums) const {
    if (partials == nullptr) return;
    constexpr int kPlane = kHeldThreads + kWarp / N;  // No bank twice, for writing and for reading.
    static_assert(kVectors * N * kPlane * 4 <= kRingBytes<kVectors>);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums[(v * N + i) * kPlane + threadIdx.x] = mine[v].at[i];
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < a.width; c += kHeldThreads) {
      const int vector = c / N;
      const float* const from = sums + (vector / kGroup * N + c % N) * kPlane + vector % kGroup;
      float sum = from[0];
#pragma unroll
      for (int thread = kGroup; thread < kHeldThreads; thread += kGroup) sum += from[thread];
      partials[static_cast<std::int64_t>(blockIdx.x) * a.width + c] = sum;
    }
  }

  Floats<N> dweight[kVectors] = {}, dbias[kVectors] = {};

 private:
  __device__ __forceinline__ int column(int v) const { return (v * kGroup + lane) * N; }
  __device__ __forceinline__ bool inside(int v) const { return column(v) < a.width; }
  __device__ __forceinline__ Packed<T, N>& slot(int stage, Part part, int v) const {
    return slots[((stage * kParts + part) * kVectors + v) * kHeldThreads];
  }

  __device__ __forceinline__ RowFactors factors(int stage, Places (&places)[2]) {
    const float count = static_cast<float>(a.width);
    float mean = 0;
    if constexpr (kLayer) {
      float sums[1] = {0};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!inside(v)) continue;
        const Floats<N> in = unpack<N>(slot(stage, kX, v));
#pragma unroll
        for (int i = 0; i < N; ++i) sums[0] += in.at[i];
      }
      group_sums<kGroup>(sums, places[turn ^= 1]);
      mean = sums[0] / count;
    }
    float sums[kLayer ? 3 : 2] = {};  // (x − mean)², w dy (x − mean), w dy
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v)) continue;
      const Floats<N> in = unpack<N>(slot(stage, kX, v)), d = unpack<N>(slot(stage, kDy, v)),
                      w = unpack<N>(weight[v]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float off = in.at[i] - mean, scaled = d.at[i] * w.at[i];
        sums[0] = fmaf(off, off, sums[0]);
        sums[1] = fmaf(scaled, off, sums[1]);
        if constexpr (kLayer) sums[2] += scaled;
      }
    }
    group_sums<kGroup>(sums, places[turn ^= 1]);
    const float scale = rsqrtf(sums[0] / count + a.epsilon);
    float level = 0;
    if constexpr (kLayer) level = sums[2] / count;
    return {mean, scale, level, sums[1] * scale / count};
  }

  const GradArrays<T>& a;
  const int lane;
  Packed<T, N>* const slots;
  Packed<T, N> weight[kVectors];
  int turn = 0;  // Of the places.
};

template <class T, int kGroup, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kHeldThreads, 1)
    norm_grad_held(const GradArrays<T> a, float* dweight, float* dbias) {
  extern __shared__ float4 ring[];
  __shared__ alignas(16) Places places[2];
  HeldGrad<T, kGroup, kVectors, kLayer> held(a, ring);
  // Groups of one block are gridDim.x rows apart: the last round is everyone's.
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * (kHeldThreads / kGroup);
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x / kGroup) * gridDim.x + blockIdx.x;
  constexpr int kAhead = kStages<kVectors>;
#pragma unroll
  for (int stage = 0; stage < kAhead; ++stage) held.fetch(stage, first + stage * stride);
  int stage = 0;
  for (std::int64_t row = first; row < a.rows; row += stride) {
    held.work(stage, row, places);
    held.fetch(stage, row + kAhead * stride);
    stage = stage + 1 < kAhead ? stage + 1 : 0;
  }
  held.finish(held.dweight, dweight, reinterpret_cast<float*>(ring));
  if constexpr (kLayer) held.finish(held.dbias, dbias, reinterpret_cast<float*>(ring));
}

template <class T, int kGroup, int kVectors, bool kLayer>
void launch_kind(const GradArrays<T>& a, float* dweight, float* dbias, std::int64_t blocks, Stream stream) {
  const auto kernel = norm_grad_held<T, kGroup, kVectors, kLayer>;
  constexpr int kBytes = kRingBytes<kVectors>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<static_cast<unsigned>(blocks), kHeldThreads, kBytes, stream>>>(a, dweight, dbias);
  check_launch("norm_grad");
}

// Blocks for rows that are held by so many threads each.
std::int64_t held_blocks(std::int64_t rows, int group) {
  return std::min<std::int64_t>(divide_up(rows, kHeldThreads / group), multiprocessors());
}

template <class T, int kGroup, int kVectors>
void launch_held(const device::NormGrad& n, std::byte* workspace, Stream stream) {
  const std::int64_t blocks = held_blocks(n.rows, kGroup);
  float* const dweight = n.dweight ? typed<float>(workspace) : nullptr;
  float* const dbias = n.dbias ? typed<float>(workspace) + blocks * n.width : nullptr;
  if (n.kind == device::NormKind::kLayer) {
    launch_kind<T, kGroup, kVectors, true>(grad_arrays<T>(n), dweight, dbias, blocks, stream);
  } else {
    launch_kind<T, kGroup, kVectors, false>(grad_arrays<T>(n), dweight, dbias, blocks, stream);
  }
  if (n.dweight) sum_partials(dweight, blocks, n.width, n.dweight, n.accumulate, stream);
  if (n.dbias) sum_partials(dbias, blocks, n.width, n.dbias, n.accumulate, stream);
}

int elements_of_access(const device::NormGrad& n) {
  const auto wide = static_cast<int>(16 / size_bytes(n.x.dtype));
  const bool aligned = all_aligned({n.x.data, n.weight.data, n.dy.data, n.residual.data, n.dx.data});
  return aligned && n.width % wide == 0 ? wide : 1;
}

// Threads that hold a row, with two accesses each; a warp's are up to three. 0: it isn't held.
int group_of(const device::NormGrad& n) {
  const int in_access = elements_of_access(n);
  const std::int64_t vectors = n.width / in_access;
  const bool bias_alone = n.dbias && n.kind == device::NormKind::kRms;  // Of no use to hold.
  if (in_access == 1 || bias_alone || vectors > 2 * kHeldThreads) return 0;
  if (vectors <= 3 * kWarp) return kWarp;
  int group = 2 * kWarp;
  while (2 * group < vectors) group *= 2;
  return group;
}

template <class T>
void launch_grad(const device::NormGrad& n, std::byte* workspace, Stream stream) {
  switch (group_of(n)) {
    case 0: return launch_read(n, elements_of_access(n), workspace, stream);
    case 32: {
      const auto vectors = divide_up(n.width, kWide<T> * kWarp);
      if (vectors == 1) return launch_held<T, 32, 1>(n, workspace, stream);
      if (vectors == 2) return launch_held<T, 32, 2>(n, workspace, stream);
      return launch_held<T, 32, 3>(n, workspace, stream);
    }
    case 64: return launch_held<T, 64, 2>(n, workspace, stream);
    case 128: return launch_held<T, 128, 2>(n, workspace, stream);
    case 256: return launch_held<T, 256, 2>(n, workspace, stream);
    default: return launch_held<T, 512, 2>(n, workspace, stream);
  }
}

}  // namespace

std::int64_t workspace_bytes(const device::NormGrad& n) {
  const int group = group_of(n);
  if (group == 0) return read_workspace_bytes(n, elements_of_access(n));
  return 2 * held_blocks(n.rows, group) * n.width * 4;
}

void launch(const device::NormGrad& n, const std::byte*, std::byte* workspace, Stream stream) {
  if (n.width == 0) return;
  if (n.rows == 0) {
    if (n.dweight) sum_partials(nullptr, 0, n.width, n.dweight, n.accumulate, stream);
    if (n.dbias) sum_partials(nullptr, 0, n.width, n.dbias, n.accumulate, stream);
    return;
  }
  with_type(n.x.dtype, "norm_grad",
            [&](auto tag) { launch_grad<typename decltype(tag)::Type>(n, workspace, stream); });
}

}  // namespace orrery::cuda
