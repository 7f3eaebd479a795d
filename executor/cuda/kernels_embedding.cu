// Rows of a table, and the table's gradient. For the gradient tokens are sorted by id, without changing the
// order of equal ones, and cut into chunks of as many as a warp has threads. A run of equal ids that lies in
// one chunk is summed and added to the table's row there; one that crosses borders leaves a partial row in
// each chunk, which a second kernel sums in order. So an id that every token has takes no longer than one
// that few have.

#include <cub/device/device_radix_sort.cuh>

#include "executor/cuda/checks.hpp"
#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarp;

struct Ids {
  const void* data;
  bool int64;
  std::int64_t first_entry, entries;
  // The table's row, or −1.
  __device__ __forceinline__ std::int64_t row_of(std::int64_t token) const {
    const std::int64_t row = whole_at(data, int64, token) - first_entry;
    return row >= 0 && row < entries ? row : -1;
  }
};

Ids ids_of(const device::Array& ids, std::int64_t first_entry, std::int64_t entries) {
  if (ids.dtype != DType::kInt64 && ids.dtype != DType::kInt32) refuse_type("embedding's ids", ids.dtype);
  return {ids.data, ids.dtype == DType::kInt64, first_entry, entries};
}

// A warp to a token.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    embedding_kernel(Ids ids, const T* table, T* y, std::int64_t tokens, std::int64_t width) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kWarp;
  if (token >= tokens) return;
  constexpr int kUnroll = 4;
  constexpr std::int64_t kStride = kWarp * N;
  const std::int64_t row = ids.row_of(token);
  const T* const from = table + (row < 0 ? 0 : row) * width;
  T* const to = y + token * width;
  for (std::int64_t i = threadIdx.x % kWarp * N; i < width; i += kUnroll * kStride) {
    Packed<T, N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      x[u] = pack<T, N>(Floats<N>{});
      if (row >= 0 && i + u * kStride < width) x[u] = load_packed<N>(from + i + u * kStride);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * kStride < width) store_packed<N>(to + i + u * kStride, x[u]);
    }
  }
}

// ---- Gradient.

constexpr int kChunk = kWarp;  // Tokens of a chunk, sorted by id.

// Tokens outside of the table are sorted behind all others.
__global__ void __launch_bounds__(kRowThreads)
    embedding_keys(Ids ids, std::int64_t tokens, std::uint32_t* keys, std::int32_t* places) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (token >= tokens) return;
  const std::int64_t row = ids.row_of(token);
  keys[token] = static_cast<std::uint32_t>(row < 0 ? ids.entries : row);
  places[token] = static_cast<std::int32_t>(token);
}

template <int N, class G>
__device__ __forceinline__ void add_to_row(G* table, const Floats<N>& sum) {
  Floats<N> x = load<N>(table);
#pragma unroll
  for (int i = 0; i < N; ++i) x.at[i] += sum.at[i];
  store(table, x);
}

template <class T, class G>
struct GradRows {
  const std::uint32_t* keys;  // Sorted.
  const std::int32_t* places;
  const T* dy;
  G* table;
  // Partial rows by chunk: of the run that comes in from the chunk before, and of the one that begins here
  // and goes on.
  float *heads, *tails;
  std::int64_t tokens, width;
  std::uint32_t entries;
};

// A warp takes a chunk of tokens and kWarp · N columns.
template <class T, class G, int N>
__global__ void __launch_bounds__(kRowThreads) embedding_chunks(const GradRows<T, G> a, std::int64_t chunks) {
  constexpr int kUnroll = 4;
  const std::int64_t chunk = static_cast<std::int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kWarp;
  if (chunk >= chunks) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + lane) * N;
  const bool inside = column < a.width;
  const std::int64_t begin = chunk * kChunk;
  const int count = static_cast<int>(a.tokens - begin < kChunk ? a.tokens - begin : kChunk);
  const std::uint32_t mine = lane < count ? a.keys[begin + lane] : a.entries;
  const std::int32_t my_place = lane < count ? a.places[begin + lane] : 0;
  const std::uint32_t before = begin > 0 ? a.keys[begin - 1] : a.entries;
  const std::uint32_t after = begin + count < a.tokens ? a.keys[begin + count] : a.entries;

  const auto finish = [&](std::uint32_t key, int from, int to, const Floats<N>& sum) {
    if (!inside) return;
    if (from == 0 && key == before) {
      store(a.heads + chunk * a.width + column, sum);
    } else if (to == count && key == after) {
      store(a.tails + chunk * a.width + column, sum);
    } else {
      add_to_row<N>(a.table + key * a.width + column, sum);
    }
  };

  Floats<N> sum = {};
  int from = 0;
  std::uint32_t run = __shfl_sync(kAllLanes, mine, 0);
  for (int first = 0; first < count; first += kUnroll) {
    Packed<T, N> x[kUnroll];
    std::uint32_t keys[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {  // first + u is below kChunk, which is a multiple of kUnroll.
      keys[u] = __shfl_sync(kAllLanes, mine, first + u);
      const std::int64_t place = __shfl_sync(kAllLanes, my_place, first + u);
      if (inside && keys[u] < a.entries) x[u] = load_packed<N>(a.dy + place * a.width + column);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (keys[u] != run) {
        finish(run, from, first + u, sum);
        run = keys[u], from = first + u;
        sum = Floats<N>{};
      }
      if (run >= a.entries) return;  // The last of the table; what follows lies outside.
      if (!inside) continue;
      const Floats<N> v = unpack<N>(x[u]);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.at[i] += v.at[i];
    }
  }
  finish(run, from, count, sum);
}

// The first place at or behind `from` whose key is larger.
__device__ __forceinline__ std::int64_t end_of_run(const std::uint32_t* keys, std::int64_t from,
                                                   std::int64_t tokens, std::uint32_t key) {
  std::int64_t low = from, high = tokens;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (keys[middle] <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block adds up the run that begins in its chunk and goes on beyond, if there is one, in kWarp · N columns:
// its warps take every eighth partial row, and are summed in order.
template <class T, class G, int N>
__global__ void __launch_bounds__(kRowThreads) embedding_runs(const GradRows<T, G> a) {
  __shared__ float sums[kRowWarps][kWarp * N];
  const std::int64_t chunk = blockIdx.x, begin = chunk * kChunk, end = begin + kChunk;
  if (end >= a.tokens) return;
  const std::uint32_t key = a.keys[end - 1], key_behind = a.keys[end], first_key = a.keys[begin];
  const std::uint32_t key_before = begin == 0 ? a.entries : a.keys[begin - 1];
  const bool begins_here = first_key != key || key_before != key;
  if (key >= a.entries || key_behind != key || !begins_here) return;
  const std::int64_t last = (end_of_run(a.keys, end, a.tokens, key) - 1) / kChunk;  // Chunk where it ends.
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + lane) * N;
  const bool inside = column < a.width;
  Floats<N> sum = {};
  if (inside) {
    if (warp == 0) sum = load<N>(a.tails + chunk * a.width + column);
#pragma unroll 4
    for (std::int64_t c = chunk + 1 + warp; c <= last; c += kRowWarps) {
      const Floats<N> x = load<N>(a.heads + c * a.width + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.at[i] += x.at[i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[warp][i * kWarp + lane] = sum.at[i];
  __syncthreads();
  if (warp != 0 || !inside) return;
#pragma unroll
  for (int w = 1; w < kRowWarps; ++w) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum.at[i] += sums[w][i * kWarp + lane];
  }
  add_to_row<N>(a.table + key * a.width + column, sum);
}

// Bits that ids below `entries`, and `entries` itself, need.
int key_bits(std::int64_t entries) {
  int bits = 1;
  while (bits < 32 && (std::int64_t{1} << bits) <= entries) ++bits;
  return bits;
}

std::size_t sort_bytes(std::int64_t tokens, int bits) {
  std::size_t bytes = 0;
  const std::uint32_t* const keys = nullptr;
  const std::int32_t* const places = nullptr;
  const cudaError_t error =
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<std::uint32_t*>(nullptr), places,
                                      static_cast<std::int32_t*>(nullptr), static_cast<int>(tokens), 0, bits);
  check(error, "asking for the memory of a sort");
  return bytes;
}

// Where things lie in the workspace.
struct GradWorkspace {
  std::int64_t keys, sorted_keys, places, sorted_places, heads, tails, sort, bytes;
  std::size_t sort_bytes;
};
GradWorkspace workspace_of(const device::EmbeddingGrad& e) {
  GradWorkspace w = {};
  const std::int64_t chunks = divide_up(e.tokens, kChunk);
  std::int64_t at = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = at;
    at += align_part(bytes);
    return begin;
  };
  w.keys = take(e.tokens * 4);
  w.sorted_keys = take(e.tokens * 4);
  w.places = take(e.tokens * 4);
  w.sorted_places = take(e.tokens * 4);
  w.heads = take(chunks * e.width * 4);
  w.tails = take(chunks * e.width * 4);
  w.sort_bytes = sort_bytes(e.tokens, key_bits(e.entries));
  w.sort = take(static_cast<std::int64_t>(w.sort_bytes));
  w.bytes = at;
  return w;
}

template <class T, class G>
void launch_grad(const device::EmbeddingGrad& e, const GradRows<T, G>& rows, Stream stream) {
  constexpr int N = kWide<T>;
  const std::int64_t chunks = divide_up(e.tokens, kChunk);
  const auto grid = [&](int n) {
    return dim3(static_cast<unsigned>(divide_up(chunks, kRowWarps)),
                static_cast<unsigned>(divide_up(e.width, kWarp * n)));
  };
  const bool wide = e.width % N == 0 && all_aligned({rows.dy, rows.table});
  if (wide) {
    embedding_chunks<T, G, N><<<grid(N), kRowThreads, 0, stream>>>(rows, chunks);
  } else {
    embedding_chunks<T, G, 1><<<grid(1), kRowThreads, 0, stream>>>(rows, chunks);
  }
  check_launch("embedding_grad");
  if (chunks < 2) return;
  // Four columns of fp32 to a thread.
  const dim3 runs(static_cast<unsigned>(chunks),
                  static_cast<unsigned>(divide_up(e.width, kWarp * (wide ? 4 : 1))));
  if (wide) {
    embedding_runs<T, G, 4><<<runs, kRowThreads, 0, stream>>>(rows);
  } else {
    embedding_runs<T, G, 1><<<runs, kRowThreads, 0, stream>>>(rows);
  }
  check_launch("embedding_grad's runs");
}

}  // namespace

void launch(const device::Embedding& e, const std::byte*, std::byte*, Stream stream) {
  if (e.tokens == 0 || e.width == 0) return;
  const Ids ids = ids_of(e.ids, e.first_entry, e.entries);
  const auto blocks = static_cast<unsigned>(divide_up(e.tokens, kRowWarps));
  with_type(e.table.dtype, "embedding", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T* const table = typed<const T>(e.table.data);
    T* const y = typed<T>(e.y.data);
    if (e.width % kWide<T> == 0 && all_aligned({table, y})) {
      embedding_kernel<T, kWide<T>><<<blocks, kRowThreads, 0, stream>>>(ids, table, y, e.tokens, e.width);
    } else {
      embedding_kernel<T, 1><<<blocks, kRowThreads, 0, stream>>>(ids, table, y, e.tokens, e.width);
    }
  });
  check_launch("embedding");
}

std::int64_t workspace_bytes(const device::EmbeddingGrad& e) { return workspace_of(e).bytes; }

void launch(const device::EmbeddingGrad& e, const std::byte*, std::byte* workspace, Stream stream) {
  if (e.tokens == 0 || e.width == 0 || e.entries == 0) return;
  const GradWorkspace w = workspace_of(e);
  auto* const keys = typed<std::uint32_t>(workspace + w.keys);
  auto* const sorted_keys = typed<std::uint32_t>(workspace + w.sorted_keys);
  auto* const places = typed<std::int32_t>(workspace + w.places);
  auto* const sorted_places = typed<std::int32_t>(workspace + w.sorted_places);
  const auto blocks = static_cast<unsigned>(divide_up(e.tokens, kRowThreads));
  embedding_keys<<<blocks, kRowThreads, 0, stream>>>(ids_of(e.ids, e.first_entry, e.entries), e.tokens, keys,
                                                     places);
  check_launch("embedding_grad's keys");
  std::size_t bytes = w.sort_bytes;
  const cudaError_t error =
      cub::DeviceRadixSort::SortPairs(workspace + w.sort, bytes, keys, sorted_keys, places, sorted_places,
                                      static_cast<int>(e.tokens), 0, key_bits(e.entries), stream);
  check(error, "sorting an embedding's tokens");
  with_type(e.dy.dtype, "embedding_grad", [&](auto of_dy) {
    using T = typename decltype(of_dy)::Type;
    with_type(e.table.dtype, "embedding_grad", [&](auto of_table) {
      using G = typename decltype(of_table)::Type;
      launch_grad<T, G>(e,
                        {sorted_keys, sorted_places, typed<const T>(e.dy.data), typed<G>(e.table.data),
                         typed<float>(workspace + w.heads), typed<float>(workspace + w.tails), e.tokens,
                         e.width, static_cast<std::uint32_t>(e.entries)},
                        stream);
    });
  });
}

}  // namespace orrery::cuda
