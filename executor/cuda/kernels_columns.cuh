#pragma once
// Sums over rows, column by column, in two stages: blocks sum chunks of rows into partial rows of fp32, then
// the partial rows are summed in order.

#include "executor/cuda/kernels_device.cuh"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// to[width] (+)= Σ partials[count][width]
void sum_partials(const float* partials, std::int64_t count, std::int64_t width, const device::Array& to,
                  bool accumulate, Stream stream);

inline constexpr int kColumnWarps = 8;

// N: columns of a thread.
inline std::int64_t column_tiles(std::int64_t width, int n) { return divide_up(width, kWarp * n); }

// Chunks of rows: some blocks for each multiprocessor, and no fewer than four rows for a warp.
inline std::int64_t column_chunks(std::int64_t rows, std::int64_t width, int n) {
  const std::int64_t wanted =
      divide_up(4 * static_cast<std::int64_t>(multiprocessors()), column_tiles(width, n));
  const std::int64_t most = divide_up(rows, 4 * kColumnWarps);
  return wanted < most ? wanted : (most > 0 ? most : 1);
}

// partials[chunk][width] = Σ op.value<N>(row, column) over the chunk's rows.
template <int N, class Op>
__global__ void __launch_bounds__(kColumnWarps* kWarp)
    column_partials(const Op op, std::int64_t rows, std::int64_t width, std::int64_t chunk_rows,
                    float* partials) {
  __shared__ float sums[kColumnWarps][kWarp * N];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kWarp * N;
  const std::int64_t column = tile + lane * N;
  const std::int64_t first = blockIdx.y * chunk_rows;
  const std::int64_t last = first + chunk_rows < rows ? first + chunk_rows : rows;
  Floats<N> sum = {};
  if (column < width) {
#pragma unroll 4
    for (std::int64_t row = first + warp; row < last; row += kColumnWarps) {
      const Floats<N> x = op.template value<N>(row, column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.at[i] += x.at[i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[warp][i * kWarp + lane] = sum.at[i];  // No bank twice.
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kWarp * N; i += kColumnWarps * kWarp) {
    const std::int64_t to = tile + i % kWarp * N + i / kWarp;
    if (to >= width) continue;
    float all = sums[0][i];
#pragma unroll
    for (int w = 1; w < kColumnWarps; ++w) all += sums[w][i];
    partials[blockIdx.y * width + to] = all;
  }
}

// `partials`: column_chunks() · width floats. REQUIRES: width is a multiple of N.
template <int N, class Op>
void sum_columns(const Op& op, std::int64_t rows, std::int64_t width, float* partials,
                 const device::Array& to, bool accumulate, const char* name, Stream stream) {
  const std::int64_t chunks = column_chunks(rows, width, N);
  const dim3 grid(static_cast<unsigned>(column_tiles(width, N)), static_cast<unsigned>(chunks));
  column_partials<N>
      <<<grid, kColumnWarps * kWarp, 0, stream>>>(op, rows, width, divide_up(rows, chunks), partials);
  check_launch(name);
  sum_partials(partials, chunks, width, to, accumulate, stream);
}

}  // namespace orrery::cuda
