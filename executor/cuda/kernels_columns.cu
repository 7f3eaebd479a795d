// Sums over rows.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_columns.cuh"

namespace orrery::cuda {
namespace {

constexpr int kSumGroups = 32;  // Warps of a block, each with every 32nd partial row.

template <class G>
__global__ void __launch_bounds__(kSumGroups* kWarp)
    sum_partials_kernel(const float* __restrict__ partials, std::int64_t count, std::int64_t width, G* to,
                        bool accumulate) {
  __shared__ float sums[kSumGroups][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (std::int64_t row = group; row < count; row += kSumGroups) sum += partials[row * width + column];
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width) return;
#pragma unroll
  for (int i = 1; i < kSumGroups; ++i) sum += sums[i][lane];
  to[column] = from_float<G>(accumulate ? to_float(to[column]) + sum : sum);
}

template <class T>
struct RowsOp {
  const T* x;
  std::int64_t stride;
  template <int N>
  __device__ __forceinline__ Floats<N> value(std::int64_t row, std::int64_t column) const {
    return load<N>(x + row * stride + column);
  }
};

int columns_of_thread(const device::ColumnSum& c) {
  const auto n = static_cast<int>(16 / size_bytes(c.x.dtype));
  return all_aligned({c.x.data}) && c.width % n == 0 && c.x_stride % n == 0 ? n : 1;
}

}  // namespace

void sum_partials(const float* partials, std::int64_t count, std::int64_t width, const device::Array& to,
                  bool accumulate, Stream stream) {
  with_type(to.dtype, "sum_partials", [&](auto tag) {
    using G = typename decltype(tag)::Type;
    const auto blocks = static_cast<unsigned>(divide_up(width, kWarp));
    sum_partials_kernel<G>
        <<<blocks, kSumGroups * kWarp, 0, stream>>>(partials, count, width, typed<G>(to.data), accumulate);
  });
  check_launch("sum_partials");
}

std::int64_t workspace_bytes(const device::ColumnSum& c) {
  return column_chunks(c.rows, c.width, columns_of_thread(c)) * c.width * 4;
}

void launch(const device::ColumnSum& c, const std::byte*, std::byte* workspace, Stream stream) {
  if (c.width == 0) return;
  with_type(c.x.dtype, "column_sum", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const RowsOp<T> op = {typed<const T>(c.x.data), c.x_stride > 0 ? c.x_stride : c.width};
    auto* const partials = typed<float>(workspace);
    if (columns_of_thread(c) > 1) {
      sum_columns<kWide<T>>(op, c.rows, c.width, partials, c.to, c.accumulate, "column_sum", stream);
    } else {
      sum_columns<1>(op, c.rows, c.width, partials, c.to, c.accumulate, "column_sum", stream);
    }
  });
}

}  // namespace orrery::cuda
