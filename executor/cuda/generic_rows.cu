// What goes row by row: sums of ring attention, heads side by side, tables of positions, gates, dropout.

#include "executor/cuda/generic_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

unsigned blocks_of(std::int64_t rows, std::int64_t rows_of_block = 1) {
  return static_cast<unsigned>(divide_up(rows, rows_of_block));
}

// ---- Ring attention. A warp has a row of one head.

template <class T, int N>
__global__ __launch_bounds__(kThreads) void merge_kernel(device::AttentionMerge a, std::int64_t rows) {
  const std::int64_t row = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (row >= rows) return;
  const std::int64_t head = row % a.heads, query = row / a.heads % a.queries,
                     batch = row / a.heads / a.queries;
  const std::int64_t at = (batch * a.heads + head) * a.queries + query;
  const float lse = a.lse[at], block = a.lse_block[at], largest = fmaxf(lse, block);
  const bool none = largest == -INFINITY;
  // Shares of the sum of exponentials, relative to the larger one.
  const float shares[2] = {none ? 0 : expf(lse - largest), none ? 0 : expf(block - largest)};
  const float sum = shares[0] + shares[1];
  const float first = none ? 0 : shares[0] / sum, second = none ? 0 : shares[1] / sum;
  for (std::int64_t c = row * a.e + threadIdx.x % kWarp * N; c < (row + 1) * a.e; c += kWarp * N) {
    Floats<N> x = load<N>(elements_of<const T>(a.o) + c);
    const Floats<N> y = load<N>(elements_of<const T>(a.o_block) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] = fmaf(second, y.at[i], __fmul_rn(first, x.at[i]));
    store<N>(elements_of<T>(a.o_to) + c, x);
  }
  __syncwarp();  // lse_to may be lse, which every lane has to have read.
  if (threadIdx.x % kWarp == 0) a.lse_to[at] = none ? largest : largest + logf(sum);
}

// ---- Heads side by side. A warp has a head of a token; Unit is what divides both of its parts.

template <class Unit, bool kBack>
__global__ __launch_bounds__(kThreads) void head_concat_kernel(Unit* x, Unit* y, Unit* z, std::int64_t rows,
                                                               std::int64_t share, std::int64_t c,
                                                               std::int64_t e) {
  const std::int64_t row = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (row >= rows) return;
  for (std::int64_t i = threadIdx.x % kWarp; i < c + e; i += kWarp) {
    Unit& whole = z[row * (c + e) + i];
    if (!kBack) {
      whole = i < c ? x[row * c + i] : y[row / share * e + i - c];
    } else if (i < c) {
      x[row * c + i] = whole;
    } else if (share == 1) {
      y[row * e + i - c] = whole;
    }
  }
}

// y = the sum of z's second parts over the heads that share it. A block has a token.
template <class T>
__global__ __launch_bounds__(kThreads) void shared_part_kernel(device::HeadConcat a) {
  const std::int64_t share = a.heads / a.shared, token = blockIdx.x, width = a.c + a.e;
  for (std::int64_t at = threadIdx.x; at < a.shared * a.e; at += kThreads) {
    const T* z = elements_of<const T>(a.z) + (token * a.heads + at / a.e * share) * width + a.c + at % a.e;
    float sum = 0;
    for (std::int64_t head = 0; head < share; ++head) sum += to_float(z[head * width]);
    elements_of<T>(a.y)[token * a.shared * a.e + at] = from_float<T>(sum);
  }
}

template <class Unit>
void launch_head_concat(const device::HeadConcat& a, Stream stream) {
  const std::int64_t rows = a.tokens * a.heads, share = a.heads / a.shared;
  const std::int64_t of_unit = static_cast<std::int64_t>(sizeof(Unit)) / size_bytes(a.z.dtype);
  Unit *const x = elements_of<Unit>(a.x), *const y = elements_of<Unit>(a.y),
              *const z = elements_of<Unit>(a.z);
  const auto kernel = a.back ? head_concat_kernel<Unit, true> : head_concat_kernel<Unit, false>;
  kernel<<<blocks_of(rows, kWarps), kThreads, 0, stream>>>(x, y, z, rows, share, a.c / of_unit,
                                                           a.e / of_unit);
}

// ---- Tables of positions. Position p uses row p of the table. A block has a row.

__device__ std::int64_t position_of(const std::int64_t* positions, std::int64_t place) {
  return positions != nullptr ? positions[place] : place;
}

__global__ __launch_bounds__(kThreads) void add_positions_kernel(device::AddPositions a) {
  const std::int64_t row = blockIdx.x, entry = position_of(a.positions, row % a.sequence);
  for (std::int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    const float sum = read_float(a.x, row * a.width + c) + read_float(a.table, entry * a.width + c);
    write_float(a.y, row * a.width + c, sum);
  }
}

// A block has a place of the sequence, and adds what each of the batch has there.
__global__ __launch_bounds__(kThreads) void add_positions_grad_kernel(device::AddPositionsGrad a) {
  const std::int64_t place = blockIdx.x, entry = position_of(a.positions, place);
  for (std::int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    float sum = read_float(a.table, entry * a.width + c);
    for (std::int64_t b = 0; b < a.batch; ++b) {
      sum += read_float(a.dy, (b * a.sequence + place) * a.width + c);
    }
    write_float(a.table, entry * a.width + c, sum);
  }
}

// ---- Gates. A block has a row.

__device__ float opening(const Array& gate, std::int64_t row) {
  return 1 / (1 + expf(-read_float(gate, row)));
}

template <class T, int N>
__global__ __launch_bounds__(kThreads) void row_gate_kernel(device::RowGate a) {
  const std::int64_t row = blockIdx.x;
  const float open = opening(a.gate, row);
  for (std::int64_t c = row * a.width + threadIdx.x * N; c < (row + 1) * a.width; c += kThreads * N) {
    Floats<N> x = load<N>(elements_of<const T>(a.x) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] *= open;
    store<N>(elements_of<T>(a.y) + c, x);
  }
}

template <class T, int N>
__global__ __launch_bounds__(kThreads) void row_gate_grad_kernel(device::RowGateGrad a) {
  __shared__ float parts[kWarps];
  const std::int64_t row = blockIdx.x;
  const float open = opening(a.gate, row);
  float sum = 0;
  for (std::int64_t c = row * a.width + threadIdx.x * N; c < (row + 1) * a.width; c += kThreads * N) {
    const Floats<N> x = load<N>(elements_of<const T>(a.x) + c);
    Floats<N> dy = load<N>(elements_of<const T>(a.dy) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum = fmaf(x.at[i], dy.at[i], sum);
      dy.at[i] *= open;
    }
    store<N>(elements_of<T>(a.dx) + c, dy);
  }
  sum = block_sum<kWarps>(sum, parts);
  if (threadIdx.x == 0) write_float(a.dgate, row, open * (1 - open) * sum);
}

// ---- Dropout.

// A block has a row.
__global__ __launch_bounds__(kThreads) void dropout_kernel(device::Dropout a) {
  const std::int64_t row = blockIdx.x, position = position_of(a.positions, row % a.sequence);
  const int turn = static_cast<int>(position % 3);
  for (std::int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    const std::int64_t at = row * a.width + c;
    const float kept = (turn + static_cast<int>(c % 3)) % 3 == 1 ? 0 : 1;
    float y = a.keep_scale * read_float(a.x, at) * kept;
    if (a.addend.data != nullptr) y += read_float(a.addend, at);
    write_float(a.y, at, y);
    write_float(a.mask, at, kept);
  }
}

__global__ __launch_bounds__(kThreads) void dropout_grad_kernel(device::DropoutGrad a) {
  const std::int64_t at = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (at >= a.elements) return;
  write_float(a.dx, at, a.keep_scale * read_float(a.dy, at) * read_float(a.mask, at));
}

}  // namespace

void launch(const device::AttentionMerge& x, const std::byte*, std::byte*, Stream stream) {
  const std::int64_t rows = x.batch * x.queries * x.heads;
  if (rows == 0) return;
  with_pack(x.o.dtype, x.e, {x.o, x.o_block, x.o_to}, "attention merge", [&](auto tag, auto count) {
    using T = typename decltype(tag)::Type;
    merge_kernel<T, count><<<blocks_of(rows, kWarps), kThreads, 0, stream>>>(x, rows);
  });
  check_launch("attention merge");
}

void launch(const device::HeadConcat& x, const std::byte*, std::byte*, Stream stream) {
  if (x.tokens == 0) return;
  const std::int64_t element = size_bytes(x.z.dtype), of_wide = 16 / element;
  const bool wide = x.c % of_wide == 0 && x.e % of_wide == 0 && all_aligned({x.x.data, x.y.data, x.z.data});
  if (wide) {
    launch_head_concat<uint4>(x, stream);
  } else if (element == 4) {
    launch_head_concat<std::uint32_t>(x, stream);
  } else {
    launch_head_concat<std::uint16_t>(x, stream);
  }
  check_launch("head concat");
  if (!x.back || x.shared == x.heads) return;
  with_type(x.z.dtype, "head concat", [&](auto tag) {
    shared_part_kernel<typename decltype(tag)::Type><<<blocks_of(x.tokens), kThreads, 0, stream>>>(x);
  });
  check_launch("head concat, shared part");
}

void launch(const device::AddPositions& x, const std::byte*, std::byte*, Stream stream) {
  if (x.batch * x.sequence == 0) return;
  add_positions_kernel<<<blocks_of(x.batch * x.sequence), kThreads, 0, stream>>>(x);
  check_launch("add positions");
}

void launch(const device::AddPositionsGrad& x, const std::byte*, std::byte*, Stream stream) {
  if (x.sequence == 0) return;
  add_positions_grad_kernel<<<blocks_of(x.sequence), kThreads, 0, stream>>>(x);
  check_launch("add positions gradient");
}

void launch(const device::RowGate& x, const std::byte*, std::byte*, Stream stream) {
  if (x.rows == 0) return;
  with_pack(x.x.dtype, x.width, {x.x, x.y}, "row gate", [&](auto tag, auto count) {
    row_gate_kernel<typename decltype(tag)::Type, count><<<blocks_of(x.rows), kThreads, 0, stream>>>(x);
  });
  check_launch("row gate");
}

void launch(const device::RowGateGrad& x, const std::byte*, std::byte*, Stream stream) {
  if (x.rows == 0) return;
  with_pack(x.x.dtype, x.width, {x.x, x.dy, x.dx}, "row gate gradient", [&](auto tag, auto count) {
    row_gate_grad_kernel<typename decltype(tag)::Type, count><<<blocks_of(x.rows), kThreads, 0, stream>>>(x);
  });
  check_launch("row gate gradient");
}

void launch(const device::Dropout& x, const std::byte*, std::byte*, Stream stream) {
  if (x.batch * x.sequence == 0) return;
  dropout_kernel<<<blocks_of(x.batch * x.sequence), kThreads, 0, stream>>>(x);
  check_launch("dropout");
}

void launch(const device::DropoutGrad& x, const std::byte*, std::byte*, Stream stream) {
  if (x.elements == 0) return;
  dropout_grad_kernel<<<blocks_of(x.elements, kThreads), kThreads, 0, stream>>>(x);
  check_launch("dropout gradient");
}

}  // namespace orrery::cuda
