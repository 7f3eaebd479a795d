// Attention by products of matrices: for each head, tiles of queries against all keys that any of them sees.
// A query's result doesn't hang on its tile: keys that it doesn't see have a probability of 0, whose products
// change nothing.

#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/gemm.hpp"
#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {
namespace {

// Queries at a time: their scores against 4,096 keys are 1 MiB, half of a second cache.
constexpr std::size_t kTileQueries = 64;

std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

// Positions of the keys that a query sees.
struct Seen {
  std::int32_t low = 0, high = 0;
};

Seen seen_by(const OpAttributes& attributes, std::int64_t query) {
  std::int64_t low = 0;
  if (attributes.window > 0) low = std::max(low, query - attributes.window + 1);
  if (attributes.chunk > 0) low = std::max(low, query / attributes.chunk * attributes.chunk);
  return {static_cast<std::int32_t>(low),
          attributes.causal ? static_cast<std::int32_t>(query) : std::numeric_limits<std::int32_t>::max()};
}

// Queries [first, first + rows) and the keys [begin, end) that they see; begin is where a panel begins.
struct Tile {
  std::size_t first = 0, rows = 0, begin = 0, end = 0;
  // As many as the sums run over.
  std::size_t width() const { return round_up(end - begin, kTileColumns); }
};

}  // namespace

struct KernelOp::Heads {
  std::size_t batch, s, a, d, keys, g, e;
  const float* sink;              // Null: none, or it counts with other keys.
  const std::int32_t* positions;  // Of keys, and −1 as often as a panel may go on beyond them.
  const Seen* seen;               // By query.
  const Tile* tiles;
  std::size_t tile_count, widest;  // Keys of the widest tile.
  SoftmaxRow row;

  std::size_t query(std::size_t b, std::size_t i, std::size_t h) const { return (b * s + i) * a + h; }
  std::size_t pair(std::size_t b, std::size_t j, std::size_t group) const {
    return (b * keys + j) * g + group;
  }
  SoftmaxRow row_of(const Tile& tile, std::size_t i) const {
    SoftmaxRow made = row;
    made.positions = positions + tile.begin;
    made.low = seen[tile.first + i].low;
    made.high = seen[tile.first + i].high;
    return made;
  }
};

KernelOp::Heads KernelOp::heads() {
  const Shape& q = in_shape(0);
  Heads x = {};
  x.batch = size(q[0]), x.s = size(q[1]), x.a = size(q[2]), x.d = size(q[3]);
  x.keys = view_.key_positions.empty() ? x.s : view_.key_positions.size();
  x.g = size(in_shape(1)[2]), x.e = size(in_shape(2)[3]);
  const std::size_t operands = op_.kind == OpKind::kAttention ? op_.inputs.size() : op_.inputs.size() - 3;
  x.sink = operands == 4 && view_.first_keys ? in(3) : nullptr;
  const OpAttributes& attributes = op_.attributes;
  x.row.scale = static_cast<float>(attributes.score_scale > 0 ? attributes.score_scale
                                                              : 1 / std::sqrt(static_cast<double>(x.d)));
  x.row.cap = static_cast<float>(attributes.softcap);

  const std::size_t padded = round_up(x.keys, kTileColumns);
  auto* positions = scratch_.take<std::int32_t>(padded);
  for (std::size_t j = 0; j < padded; ++j) {
    positions[j] = j < x.keys ? static_cast<std::int32_t>(key_position(j)) : -1;
  }
  auto* seen = scratch_.take<Seen>(x.s);
  for (std::size_t i = 0; i < x.s; ++i) seen[i] = seen_by(attributes, position(i));
  x.tile_count = (x.s + kTileQueries - 1) / kTileQueries;
  auto* tiles = scratch_.take<Tile>(x.tile_count);
  for (std::size_t t = 0; t < x.tile_count; ++t) {
    Tile tile;
    tile.first = t * kTileQueries;
    tile.rows = std::min(kTileQueries, x.s - tile.first);
    Seen any = seen[tile.first];
    for (std::size_t i = tile.first; i < tile.first + tile.rows; ++i) {
      any = {std::min(any.low, seen[i].low), std::max(any.high, seen[i].high)};
    }
    const auto sees = [&](std::int32_t key) { return key >= any.low && key <= any.high; };
    const auto first =
        static_cast<std::size_t>(std::find_if(positions, positions + x.keys, sees) - positions);
    tile.begin = first / kTileColumns * kTileColumns;
    tile.end = x.keys;
    while (tile.end > first && !sees(positions[tile.end - 1])) --tile.end;
    tile.end = std::max(tile.end, tile.begin);
    x.widest = std::max(x.widest, tile.width());
    tiles[t] = tile;
  }
  x.positions = positions;
  x.seen = seen;
  x.tiles = tiles;
  return x;
}

void KernelOp::attention() {
  const Heads x = heads();
  float* packed_k = scratch_.take<float>(packed_elements(x.d, x.keys));
  float* packed_v = scratch_.take<float>(packed_elements(x.keys, x.e));
  float* scores = scratch_.take<float>(kTileQueries * x.widest);
  const std::size_t share = x.a / x.g;
  for (std::size_t at = 0; at < x.batch * x.a; ++at) {
    const std::size_t b = at / x.a, h = at % x.a, group = h / share;
    const Matrix k = {in(1) + x.pair(b, 0, group) * x.d, x.g * x.d, 1};
    const Matrix v = {in(2) + x.pair(b, 0, group) * x.e, x.g * x.e, 1};
    if (h % share == 0) {
      pack(x.d, x.keys, transposed(k), packed_k, workspace_.isa);
      pack(x.keys, x.e, v, packed_v, workspace_.isa);
    }
    for (std::size_t t = 0; t < x.tile_count; ++t) {
      const Tile& tile = x.tiles[t];
      const std::size_t width = tile.width(), first = x.query(b, tile.first, h);
      gemm_packed(tile.rows, {in(0) + first * x.d, x.a * x.d, 1}, {packed_k, x.d, x.keys},
                  {0, x.d, tile.begin, width}, scores, width, false, workspace_);
      float totals[kTileQueries];
      for (std::size_t i = 0; i < tile.rows; ++i) {
        float largest = x.sink != nullptr ? x.sink[h] : -std::numeric_limits<float>::infinity();
        totals[i] = loop_.softmax(x.row_of(tile, i), scores + i * width, width, &largest);
        if (x.sink != nullptr) {
          float own = x.sink[h] - largest;
          loop_.exp(&own, &own, 1);
          totals[i] += own;
        }
        out(1)[first + i * x.a] =
            static_cast<float>(static_cast<double>(largest) + std::log(static_cast<double>(totals[i])));
      }
      gemm_packed(tile.rows, {scores, width, 1}, {packed_v, x.keys, x.e},
                  {tile.begin, tile.end - tile.begin, 0, x.e}, out(0) + first * x.e, x.a * x.e, false,
                  workspace_);
      for (std::size_t i = 0; i < tile.rows; ++i) {
        float* o = out(0) + (first + i * x.a) * x.e;
        loop_.scale(totals[i] > 0 ? 1 / totals[i] : 0, o, o, x.e);
      }
    }
  }
}

void KernelOp::attention_grad() {
  const Heads x = heads();
  const std::size_t operands = op_.inputs.size() - 3;
  const float *context = in(operands), *log_sums = in(operands + 1), *dy = in(operands + 2);
  float *dk = cleared(1), *dv = cleared(2);
  float* dsink = x.sink != nullptr ? cleared(3) : nullptr;
  float* packed_k = scratch_.take<float>(packed_elements(x.d, x.keys));
  float* packed_rows = scratch_.take<float>(packed_elements(x.keys, x.d));
  float* packed_v = scratch_.take<float>(packed_elements(x.e, x.keys));
  float* scores = scratch_.take<float>(kTileQueries * x.widest);
  float* dscores = scratch_.take<float>(kTileQueries * x.widest);
  const std::size_t share = x.a / x.g;
  for (std::size_t at = 0; at < x.batch * x.a; ++at) {
    const std::size_t b = at / x.a, h = at % x.a, group = h / share;
    const Matrix k = {in(1) + x.pair(b, 0, group) * x.d, x.g * x.d, 1};
    const Matrix v = {in(2) + x.pair(b, 0, group) * x.e, x.g * x.e, 1};
    if (h % share == 0) {
      pack(x.d, x.keys, transposed(k), packed_k, workspace_.isa);
      pack(x.keys, x.d, k, packed_rows, workspace_.isa);
      pack(x.e, x.keys, transposed(v), packed_v, workspace_.isa);
    }
    for (std::size_t t = 0; t < x.tile_count; ++t) {
      const Tile& tile = x.tiles[t];
      const std::size_t width = tile.width(), first = x.query(b, tile.first, h), seen = tile.end - tile.begin;
      const Matrix q = {in(0) + first * x.d, x.a * x.d, 1}, dout = {dy + first * x.e, x.a * x.e, 1};
      gemm_packed(tile.rows, q, {packed_k, x.d, x.keys}, {0, x.d, tile.begin, width}, scores, width, false,
                  workspace_);
      gemm_packed(tile.rows, dout, {packed_v, x.e, x.keys}, {0, x.e, tile.begin, width}, dscores, width,
                  false, workspace_);
      for (std::size_t i = 0; i < tile.rows; ++i) {
        const std::size_t row = first + i * x.a;
        const float mean = loop_.dot(dy + row * x.e, context + row * x.e, x.e);
        loop_.softmax_back(x.row_of(tile, i), log_sums[row], mean, scores + i * width, dscores + i * width,
                           width);
        if (dsink == nullptr) continue;
        float own = x.sink[h] - log_sums[row];
        loop_.exp(&own, &own, 1);
        dsink[h] -= own * mean;
      }
      gemm_packed(tile.rows, {dscores, width, 1}, {packed_rows, x.keys, x.d}, {tile.begin, seen, 0, x.d},
                  out(0) + first * x.d, x.a * x.d, false, workspace_);
      gemm(seen, x.d, tile.rows, transposed({dscores, width, 1}), q, dk + x.pair(b, tile.begin, group) * x.d,
           x.g * x.d, true, workspace_);
      gemm(seen, x.e, tile.rows, transposed({scores, width, 1}), dout,
           dv + x.pair(b, tile.begin, group) * x.e, x.g * x.e, true, workspace_);
    }
  }
}

}  // namespace orrery::host
