#include "tests/device/emulated_launches.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>

#include "base/random.hpp"
#include "executor/device/describe.hpp"
#include "executor/kernels/convert.hpp"

namespace orrery::test {
namespace {

using namespace device;

// ---- Elements of any type, as doubles.

double read(const Array& array, std::int64_t i) {
  const std::byte* const at = array.data + i * size_bytes(array.dtype);
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (array.dtype) {
    case DType::kFp32: return static_cast<double>(as(0.0f));
    case DType::kBf16:
      return static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t{0})) << 16));
    case DType::kInt64: return static_cast<double>(as(std::int64_t{0}));
    case DType::kInt32: return as(std::int32_t{0});
    case DType::kUint8: return as(std::uint8_t{0});
    default: throw std::runtime_error("a type that isn't emulated");
  }
}

void write(const Array& array, std::int64_t i, double value) {
  std::byte* const at = array.data + i * size_bytes(array.dtype);
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof number); };
  const auto single = static_cast<float>(value);
  switch (array.dtype) {
    case DType::kFp32: return put(single);
    case DType::kBf16: {
      const auto bits = std::bit_cast<std::uint32_t>(single);
      return put(static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
    }
    case DType::kUint8: return put(static_cast<std::uint8_t>(value));
    default: throw std::runtime_error("a type that isn't emulated");
  }
}

void put(const Array& array, std::int64_t i, double value, bool added) {
  write(array, i, value + (added ? read(array, i) : 0));
}

std::int64_t or_dense(std::int64_t stride, std::int64_t width) { return stride != 0 ? stride : width; }

std::int64_t position(const std::int64_t* positions, std::int64_t i) {
  return positions != nullptr ? positions[i] : i;
}

void raise(float* largest, const Array& array, std::int64_t i) {
  if (largest != nullptr) *largest = std::max(*largest, static_cast<float>(std::abs(read(array, i))));
}

// ---- Products.

std::int64_t at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.turned ? column * matrix.stride + row : row * matrix.stride + column;
}
Array product(const Matrix& matrix, std::int64_t i) {
  return {matrix.array.data + i * matrix.batch_stride * size_bytes(matrix.array.dtype), matrix.array.dtype};
}

// Where the scale of an FP8 element stands.
std::int64_t scale_at(Fp8Scales scales, std::int64_t outer, std::int64_t inner, std::int64_t row,
                      std::int64_t column) {
  switch (scales) {
    case Fp8Scales::kOne: break;
    case Fp8Scales::kRows: return column / 128 * outer + row;
    case Fp8Scales::kSquares: return row / 128 * ((inner + 511) / 512 * 4) + column / 128;
  }
  return 0;
}

// Of FP8 copies, which stand in rows along k.
void perform_fp8(const Gemm& x) {
  const auto decoded = [&](const Array& codes, std::int64_t rows, bool e5m2, const float* scale,
                           Fp8Scales scales) {
    std::vector<float> values(static_cast<std::size_t>(rows * x.k));
    host::decode(e5m2 ? host::FloatFormat::kE5m2 : host::FloatFormat::kE4m3, codes.data, values.data(),
                 values.size());
    for (std::int64_t i = 0; i < rows * x.k; ++i)
      values[static_cast<std::size_t>(i)] *= scale[scale_at(scales, rows, x.k, i / x.k, i % x.k)];
    return values;
  };
  const std::vector<float> a = decoded(x.a.array, x.m, x.a_e5m2, x.a_scale, x.a_scales);
  const std::vector<float> b = decoded(x.b.array, x.n, x.b_e5m2, x.b_scale, x.b_scales);
  for (std::int64_t r = 0; r < x.m; ++r) {
    for (std::int64_t c = 0; c < x.n; ++c) {
      double sum = x.bias ? read(x.bias, c) : 0;
      for (std::int64_t j = 0; j < x.k; ++j) {
        sum += static_cast<double>(a[static_cast<std::size_t>(r * x.k + j)]) *
               static_cast<double>(b[static_cast<std::size_t>(c * x.k + j)]);
      }
      put(x.d.array, at(x.d, r, c), sum, x.accumulate);
    }
  }
}

void perform_kind(const Gemm& x) {
  if (x.a.array.dtype == DType::kFp8) return perform_fp8(x);
  for (std::int64_t i = 0; i < x.batch; ++i) {
    const Array a = product(x.a, i), b = product(x.b, i), d = product(x.d, i);
    for (std::int64_t r = 0; r < x.m; ++r) {
      for (std::int64_t c = 0; c < x.n; ++c) {
        double sum = x.bias ? read(x.bias, c) : 0;
        for (std::int64_t j = 0; j < x.k; ++j) sum += read(a, at(x.a, r, j)) * read(b, at(x.b, j, c));
        put(d, at(x.d, r, c), sum, x.accumulate);
      }
    }
  }
}

void perform_kind(const ColumnSum& x) {
  for (std::int64_t c = 0; c < x.width; ++c) {
    double sum = 0;
    for (std::int64_t r = 0; r < x.rows; ++r) sum += read(x.x, r * or_dense(x.x_stride, x.width) + c);
    put(x.to, c, sum, x.accumulate);
  }
}

// ---- Attention, causal or not.

struct Heads {
  const AttentionShape& x;
  std::int64_t q(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t stride) const {
    return (b * x.queries + i) * or_dense(stride, x.heads * x.d) + h * x.d;
  }
  std::int64_t kv(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t stride,
                  std::int64_t width) const {
    return (b * x.keys + j) * or_dense(stride, x.kv_heads * width) + h / (x.heads / x.kv_heads) * width;
  }
  std::int64_t o(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return ((b * x.queries + i) * x.heads + h) * x.e;
  }
  std::int64_t lse(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return (b * x.heads + h) * x.queries + i;
  }
};

// Calls visit(b, i, h, the keys that the query sees).
template <class Visit>
void each_row(const AttentionShape& x, Visit visit) {
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 0; i < x.queries; ++i) {
    keys.clear();
    for (std::int64_t j = 0; j < x.keys; ++j) {
      if (!x.causal || position(x.key_positions, j) <= position(x.positions, i)) keys.push_back(j);
    }
    for (std::int64_t b = 0; b < x.batch; ++b) {
      for (std::int64_t h = 0; h < x.heads; ++h) visit(b, i, h, keys);
    }
  }
}

double dot(const Array& a, std::int64_t a_at, const Array& b, std::int64_t b_at, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += read(a, a_at + c) * read(b, b_at + c);
  return sum;
}

void perform_kind(const Attention& a) {
  const AttentionShape& x = a.shape;
  const Heads at{x};
  each_row(x, [&](std::int64_t b, std::int64_t i, std::int64_t h, const std::vector<std::int64_t>& keys) {
    std::vector<double> weights;
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const std::int64_t j : keys) {
      weights.push_back(static_cast<double>(x.scale) *
                        dot(a.q, at.q(b, i, h, x.strides.q), a.k, at.kv(b, j, h, x.strides.k, x.d), x.d));
      most = std::max(most, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    a.lse[at.lse(b, i, h)] = static_cast<float>(most + std::log(sum));
    for (std::int64_t c = 0; c < x.e; ++c) {
      double o = 0;
      for (std::size_t n = 0; n < keys.size(); ++n) {
        o += weights[n] / sum * read(a.v, at.kv(b, keys[n], h, x.strides.v, x.e) + c);
      }
      write(a.o, at.o(b, i, h) + c, o);
    }
  });
}

void perform_kind(const AttentionGrad& a) {
  const AttentionShape& x = a.shape;
  const Heads at{x};
  const std::int64_t rows = x.batch * x.keys, kd = x.kv_heads * x.d, ve = x.kv_heads * x.e;
  std::vector<double> dk(static_cast<std::size_t>(rows * kd)), dv(static_cast<std::size_t>(rows * ve));
  each_row(x, [&](std::int64_t b, std::int64_t i, std::int64_t h, const std::vector<std::int64_t>& keys) {
    const std::int64_t q = at.q(b, i, h, x.strides.q), o = at.o(b, i, h);
    const double mean = dot(a.dout, o, a.o, o, x.e);
    std::vector<double> dq(static_cast<std::size_t>(x.d));
    for (const std::int64_t j : keys) {
      const std::int64_t k = at.kv(b, j, h, x.strides.k, x.d), v = at.kv(b, j, h, x.strides.v, x.e);
      const double score = static_cast<double>(x.scale) * dot(a.q, q, a.k, k, x.d);
      const double p = std::exp(score - static_cast<double>(a.lse[at.lse(b, i, h)]));
      const double ds = static_cast<double>(x.scale) * p * (dot(a.dout, o, a.v, v, x.e) - mean);
      for (std::int64_t c = 0; c < x.d; ++c) {
        dq[static_cast<std::size_t>(c)] += ds * read(a.k, k + c);
        dk[static_cast<std::size_t>(at.kv(b, j, h, 0, x.d) + c)] += ds * read(a.q, q + c);
      }
      for (std::int64_t c = 0; c < x.e; ++c) {
        dv[static_cast<std::size_t>(at.kv(b, j, h, 0, x.e) + c)] += p * read(a.dout, o + c);
      }
    }
    for (std::int64_t c = 0; c < x.d; ++c) {
      write(a.dq, at.q(b, i, h, x.strides.dq) + c, dq[static_cast<std::size_t>(c)]);
    }
  });
  const auto store = [&](const Array& to, const std::vector<double>& from, std::int64_t width,
                         std::int64_t stride) {
    for (std::int64_t i = 0; i < std::ssize(from); ++i) {
      write(to, i / width * or_dense(stride, width) + i % width, from[static_cast<std::size_t>(i)]);
    }
  };
  store(a.dk, dk, kd, x.strides.dk);
  store(a.dv, dv, ve, x.strides.dv);
}

// ---- Rows.

struct Statistics {
  double mean = 0, scale = 0;
};
template <class Row>
Statistics statistics(Row row, std::int64_t width, bool layer, float epsilon) {
  Statistics of;
  double squares = 0;
  for (std::int64_t c = 0; c < width && layer; ++c) of.mean += row(c) / static_cast<double>(width);
  for (std::int64_t c = 0; c < width; ++c) squares += (row(c) - of.mean) * (row(c) - of.mean);
  of.scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
  return of;
}

void perform_kind(const Norm& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const Array& from = x.residual ? x.sum : x.x;
    for (std::int64_t c = 0; c < x.width && x.residual; ++c) {
      write(x.sum, r * x.width + c, read(x.x, r * x.width + c) + read(x.residual, r * x.width + c));
    }
    const auto row = [&](std::int64_t c) { return read(from, r * x.width + c); };
    const Statistics of = statistics(row, x.width, x.kind == device::NormKind::kLayer, x.epsilon);
    for (std::int64_t c = 0; c < x.width; ++c) {
      write(x.y, r * x.width + c,
            (row(c) - of.mean) * of.scale * (x.weight ? read(x.weight, c) : 1) +
                (x.bias ? read(x.bias, c) : 0));
      raise(x.largest, x.y, r * x.width + c);
    }
  }
}

void perform_kind(const NormGrad& x) {
  std::vector<double> dweight(static_cast<std::size_t>(x.width)), dbias(static_cast<std::size_t>(x.width));
  const bool layer = x.kind == device::NormKind::kLayer;
  const auto n = static_cast<double>(x.width);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto row = [&](std::int64_t c) { return read(x.x, r * x.width + c); };
    const Statistics of = statistics(row, x.width, layer, x.epsilon);
    double level = 0, along = 0;
    const auto d = [&](std::int64_t c) {
      return read(x.dy, r * x.width + c) * (x.weight ? read(x.weight, c) : 1);
    };
    const auto normed = [&](std::int64_t c) { return (row(c) - of.mean) * of.scale; };
    for (std::int64_t c = 0; c < x.width; ++c) {
      level += layer ? d(c) / n : 0;
      along += d(c) * normed(c) / n;
      dweight[static_cast<std::size_t>(c)] += read(x.dy, r * x.width + c) * normed(c);
      dbias[static_cast<std::size_t>(c)] += read(x.dy, r * x.width + c);
    }
    std::vector<double> dx;
    for (std::int64_t c = 0; c < x.width; ++c) {
      dx.push_back(of.scale * (d(c) - level - normed(c) * along) +
                   (x.residual ? read(x.residual, r * x.width + c) : 0));
    }
    for (std::int64_t c = 0; c < x.width; ++c) {
      write(x.dx, r * x.width + c, dx[static_cast<std::size_t>(c)]);
      raise(x.largest, x.dx, r * x.width + c);
    }
  }
  for (std::int64_t c = 0; c < x.width; ++c) {
    if (x.dweight) put(x.dweight, c, dweight[static_cast<std::size_t>(c)], x.accumulate);
    if (x.dbias) put(x.dbias, c, dbias[static_cast<std::size_t>(c)], x.accumulate);
  }
}

void perform_kind(const Rope& x) {
  const std::int64_t pairs = x.rotated / 2, dense = x.heads * x.width;
  for (std::int64_t token = 0; token < x.batch * x.sequence; ++token) {
    for (std::int64_t h = 0; h < x.heads; ++h) {
      const std::int64_t from = token * or_dense(x.x_stride, dense) + h * x.width;
      const std::int64_t to = token * or_dense(x.y_stride, dense) + h * x.width;
      for (std::int64_t p = 0; p < pairs; ++p) {
        const double angle = static_cast<double>(position(x.positions, token % x.sequence)) *
                             std::pow(x.theta, -static_cast<double>(p) / static_cast<double>(pairs));
        const double sine = (x.back ? -1 : 1) * std::sin(angle), cosine = std::cos(angle);
        const double u = read(x.x, from + p), v = read(x.x, from + p + pairs);
        write(x.y, to + p, u * cosine - v * sine);
        write(x.y, to + p + pairs, u * sine + v * cosine);
      }
      for (std::int64_t c = 2 * pairs; c < x.width; ++c) write(x.y, to + c, read(x.x, from + c));
    }
  }
}

void perform_kind(const Embedding& x) {
  for (std::int64_t i = 0; i < x.tokens * x.width; ++i) {
    const auto id = static_cast<std::int64_t>(read(x.ids, i / x.width)) - x.first_entry;
    write(x.y, i, id >= 0 && id < x.entries ? read(x.table, id * x.width + i % x.width) : 0);
  }
}
void perform_kind(const EmbeddingGrad& x) {
  for (std::int64_t i = 0; i < x.tokens * x.width; ++i) {
    const auto id = static_cast<std::int64_t>(read(x.ids, i / x.width)) - x.first_entry;
    if (id >= 0 && id < x.entries) put(x.table, id * x.width + i % x.width, read(x.dy, i), true);
  }
}
void perform_kind(const AddPositions& x) {
  for (std::int64_t i = 0; i < x.batch * x.sequence * x.width; ++i) {
    const std::int64_t row = position(x.positions, i / x.width % x.sequence);
    write(x.y, i, read(x.x, i) + read(x.table, row * x.width + i % x.width));
  }
}
void perform_kind(const AddPositionsGrad& x) {
  for (std::int64_t i = 0; i < x.batch * x.sequence * x.width; ++i) {
    const std::int64_t row = position(x.positions, i / x.width % x.sequence);
    put(x.table, row * x.width + i % x.width, read(x.dy, i), true);
  }
}

// ---- Element by element.

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double value(device::Activation activation, double x) {
  if (activation == device::Activation::kSilu) return x * sigmoid(x);
  if (activation == device::Activation::kGelu) return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
  throw std::runtime_error("an activation that isn't emulated");
}
double slope(device::Activation activation, double x) {
  if (activation == device::Activation::kSilu) return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  constexpr double kTwoPi = 6.283185307179586;
  return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-x * x / 2) / std::sqrt(kTwoPi);
}

void perform_kind(const Unary& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    const double at = read(x.x, i);
    write(x.y, i, x.dy ? slope(x.activation, at) * read(x.dy, i) : value(x.activation, at));
  }
}
std::int64_t strided(std::int64_t i, std::int64_t width, std::int64_t stride) {
  return stride == 0 ? i : i / width * stride + i % width;
}
void perform_kind(const Gated& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    const std::int64_t at = strided(i, x.width, x.stride);
    write(x.y, i, value(x.activation, read(x.gate, at)) * read(x.up, at));
    raise(x.largest, x.y, i);
  }
}
void perform_kind(const GatedGrad& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    const std::int64_t at = strided(i, x.width, x.stride), to = strided(i, x.width, x.gradient_stride);
    const double gate = read(x.gate, at), up = read(x.up, at), dy = read(x.dy, i);
    write(x.dgate, to, dy * up * slope(x.activation, gate));
    write(x.dup, to, dy * value(x.activation, gate));
    raise(x.largest, x.dgate, to);
    raise(x.largest, x.dup, to);
  }
}
void perform_kind(const AddScaled& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    write(x.y, i, static_cast<double>(x.scale) * read(x.x, i) + (x.addend ? read(x.addend, i) : 0));
  }
}
void perform_kind(const Dropout& x) {
  for (std::int64_t i = 0; i < x.batch * x.sequence * x.width; ++i) {
    const bool kept = (position(x.positions, i / x.width % x.sequence) + i % x.width) % 3 != 1;
    write(x.mask, i, kept ? 1 : 0);
    write(x.y, i,
          (kept ? static_cast<double>(x.keep_scale) * read(x.x, i) : 0) + (x.addend ? read(x.addend, i) : 0));
  }
}
void perform_kind(const DropoutGrad& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    write(x.dx, i, static_cast<double>(x.keep_scale) * read(x.dy, i) * read(x.mask, i));
  }
}

// ---- Loss and optimiser.

void perform_kind(const CrossEntropyGrad& x) {
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const auto label = static_cast<std::int64_t>(read(x.labels, t)) - x.first_entry;
    for (std::int64_t i = 0; i < x.vocab; ++i) {
      const double p =
          i < x.real ? std::exp(read(x.logits, t * x.vocab + i) - static_cast<double>(x.lse[t])) : 0;
      write(x.dlogits, t * x.vocab + i, (p - (i == label ? 1 : 0)) / x.tokens_of_mean);
    }
  }
}
void perform_kind(const CrossEntropy& x) {
  double loss = 0;
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    double sum = 0;
    for (std::int64_t i = 0; i < x.real; ++i) sum += std::exp(read(x.logits, t * x.vocab + i));
    const auto label = static_cast<std::int64_t>(read(x.labels, t)) - x.first_entry;
    x.lse[t] = static_cast<float>(std::log(sum));
    loss += std::log(sum) - read(x.logits, t * x.vocab + label);
  }
  write(x.loss, 0, loss / x.tokens_of_mean);
  if (!x.dlogits) return;
  perform_kind(CrossEntropyGrad{x.tokens, x.vocab, x.real, x.first_entry, x.tokens_of_mean, x.logits,
                                x.labels, x.lse, x.dlogits});
}

void perform_kind(const CrossEntropyPart& x) {
  double loss = 0;
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const auto logit = [&](std::int64_t i) { return read(x.logits, t * x.vocab + i); };
    if (x.part == 0) {
      double most = -std::numeric_limits<double>::infinity();
      for (std::int64_t i = 0; i < x.real; ++i) most = std::max(most, logit(i));
      write(x.maximum, t, most);
    } else if (x.part == 1) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.real; ++i) sum += std::exp(logit(i) - read(x.maximum, t));
      const auto label = static_cast<std::int64_t>(read(x.labels, t)) - x.first_entry;
      write(x.sum, t, sum);
      write(x.label_logit, t, label >= 0 && label < x.real ? logit(label) : 0);
    } else {
      const double lse = read(x.maximum, t) + std::log(read(x.sum, t));
      write(x.lse, t, lse);
      loss += lse - read(x.label_logit, t);
    }
  }
  if (x.part == 2) write(x.loss, 0, loss / x.tokens_of_mean);
}

void perform_kind(const AdamW& x) {
  const StepScalars& s = *x.scalars;
  double scale = static_cast<double>(s.gradient_scale);
  if (x.norm_squared != nullptr && s.clip_norm > 0) {
    scale *= std::min(1.0, static_cast<double>(s.clip_norm) / (std::sqrt(*x.norm_squared) * scale + 1e-6));
  }
  for (const UpdateSegment& segment : x.segments) {
    for (std::int64_t i = 0; i < segment.elements; ++i) {
      const double g = scale * read(segment.gradient, i);
      float &m = segment.first_moment[i], &v = segment.second_moment[i], &w = segment.master[i];
      m = static_cast<float>(static_cast<double>(s.beta1) * static_cast<double>(m) +
                             static_cast<double>(s.rest1) * g);
      v = static_cast<float>(static_cast<double>(s.beta2) * static_cast<double>(v) +
                             static_cast<double>(s.rest2) * g * g);
      const double moved = static_cast<double>(s.step_size) * static_cast<double>(m) /
                           (std::sqrt(static_cast<double>(v)) * static_cast<double>(s.inverse_bias2) +
                            static_cast<double>(s.epsilon));
      w = static_cast<float>(
          static_cast<double>(w) * (1 - (segment.decays ? static_cast<double>(s.decay) : 0)) - moved);
      if (segment.weights.dtype != DType::kFp32) write(segment.weights, i, static_cast<double>(w));
    }
  }
}
void perform_kind(const SumSquares& x) {
  *x.to = 0;
  for (const SumPart& part : x.parts) {
    for (std::int64_t i = 0; i < part.elements; ++i) *x.to += read(part.array, i) * read(part.array, i);
  }
}

// ---- Memory.

void perform_kind(const Zero& x) { std::memset(x.to, 0, static_cast<std::size_t>(x.bytes)); }
void perform_kind(const CopyBytes& x) { std::memmove(x.to, x.from, static_cast<std::size_t>(x.bytes)); }
void perform_kind(const CopyRows& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::memmove(x.to + r * x.to_stride, x.from + r * x.from_stride, static_cast<std::size_t>(x.row_bytes));
  }
}
void perform_kind(const Accumulate& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) put(x.to, i, read(x.from, i), true);
}
void perform_kind(const Convert& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) write(x.to, i, read(x.from, i));
}
// With scales of blocks: each way for itself.
void quantize_blocks(const Quantize& x, bool turned) {
  const std::int64_t outer = turned ? x.width : x.rows, inner = turned ? x.rows : x.width;
  std::vector<float> values(static_cast<std::size_t>(outer * inner));
  std::map<std::int64_t, float> largest;
  const auto each = [&](auto visit) {
    for (std::int64_t r = 0; r < outer; ++r) {
      for (std::int64_t c = 0; c < inner; ++c)
        visit(values[static_cast<std::size_t>(r * inner + c)], r, c, scale_at(x.scales, outer, inner, r, c));
    }
  };
  each([&](float& value, std::int64_t r, std::int64_t c, std::int64_t scale) {
    value = static_cast<float>(read(x.x, turned ? c * x.stride + r : r * x.stride + c));
    largest[scale] = std::max({largest[scale], std::abs(value), 0x1p-100f});
  });
  each([&](float& value, std::int64_t, std::int64_t, std::int64_t scale) { value *= 448 / largest[scale]; });
  for (const auto& [at, most] : largest) (turned ? x.turned_scale : x.scale)[at] = most / 448;
  host::encode(host::FloatFormat::kE4m3, values.data(), turned ? x.turned : x.to, values.size());
}

void perform_kind(const Quantize& x) {
  if (x.scales != Fp8Scales::kOne) {
    if (x.to != nullptr) quantize_blocks(x, false);
    if (x.turned != nullptr) quantize_blocks(x, true);
    return;
  }
  std::vector<float> values, turned(static_cast<std::size_t>(x.rows * x.width));
  float most = 0x1p-100f;
  for (std::int64_t i = 0; i < x.rows * x.width; ++i) {
    values.push_back(static_cast<float>(read(x.x, strided(i, x.width, x.stride))));
    most = std::max(most, std::abs(values.back()));
  }
  if (x.known_largest != nullptr && std::max(*x.known_largest, 0x1p-100f) != most)
    throw std::runtime_error("another largest element than the one that was kept");
  const float limit = x.e5m2 ? 57344.0f : 448.0f;
  *x.scale = most / limit;
  if (x.largest != nullptr) *x.largest = most;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= limit / most;
    const auto width = static_cast<std::size_t>(x.width);
    turned[i % width * static_cast<std::size_t>(x.rows) + i / width] = values[i];
  }
  const host::FloatFormat format = x.e5m2 ? host::FloatFormat::kE5m2 : host::FloatFormat::kE4m3;
  if (x.to != nullptr) host::encode(format, values.data(), x.to, values.size());
  if (x.turned != nullptr) host::encode(format, turned.data(), x.turned, turned.size());
}
void perform_kind(const InitialValues& x) {
  for (std::int64_t i = 0; i < x.elements; ++i) {
    const std::uint64_t key = x.key + 2 * static_cast<std::uint64_t>(x.first + i);
    std::int64_t sum = 0;
    for (const std::uint64_t bits : {mix64(key), mix64(key + 1)}) {
      for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
    }
    const double drawn = (static_cast<double>(sum) - 8 * 32767.5) * x.scale;
    write(x.to, strided(i, x.width, x.stride), x.scale == 0 ? static_cast<double>(x.constant) : drawn);
  }
}
void perform_kind(const HashElements& x) {
  const std::int64_t bytes = size_bytes(x.from.dtype);
  for (std::int64_t i = 0; i < x.elements; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, x.from.data + strided(i, x.width, x.stride) * bytes, static_cast<std::size_t>(bytes));
    const std::uint64_t key = mix64(x.name + static_cast<std::uint64_t>(x.first + i)) ^ bits;
    x.hash[0] += mix64(key);
    x.hash[1] += mix64(key ^ 0xd6e8feb86659fd93ull);
  }
}

template <class Kind>
void perform_kind(const Kind& launch) {
  throw std::runtime_error("not emulated: " + describe(Launch(launch)));
}

}  // namespace

void perform(const Launch& launch) {
  std::visit([](const auto& kind) { perform_kind(kind); }, launch);
}

}  // namespace orrery::test
