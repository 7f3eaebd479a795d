#include "planner/context_attention.hpp"

#include <algorithm>
#include <array>

namespace orrery {
namespace {

struct Piece {
  double begin = 0, end = 0;
  double size() const { return end > begin ? end - begin : 0; }
};

Piece common(const Piece& a, const Piece& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// Pairs with key ≤ query − behind. A diagonal counts half, as in attention_pairs.
double pairs_below(const Piece& queries, const Piece& keys, double behind) {
  const double width = keys.size();
  // ∫ clamp(x, 0, width) dx from −∞.
  const auto integral = [&](double x) {
    if (x <= 0) return 0.0;
    return x <= width ? 0.5 * x * x : 0.5 * width * width + width * (x - width);
  };
  const double first = queries.begin - behind - keys.begin;
  return integral(first + queries.size()) - integral(first);
}

double pairs_between(const OpAttributes& attributes, const Piece& queries, const Piece& keys) {
  if (!attributes.causal) return queries.size() * keys.size();
  const auto window = static_cast<double>(attributes.window), chunk = static_cast<double>(attributes.chunk);
  if (window > 0) return pairs_below(queries, keys, 0) - pairs_below(queries, keys, window);
  if (chunk <= 0) return pairs_below(queries, keys, 0);
  double pairs = 0;
  const auto first = static_cast<std::int64_t>(queries.begin / chunk);
  for (double begin = static_cast<double>(first) * chunk; begin < queries.end; begin += chunk) {
    const Piece one{begin, begin + chunk};
    pairs += pairs_below(common(queries, one), common(keys, one), 0);
  }
  return pairs;
}

double pairs_of(const OpAttributes& attributes, std::int64_t sequence, std::int32_t degree,
                std::int32_t queries_of, std::int32_t keys_of) {
  const double size = static_cast<double>(sequence) / (2 * degree);
  const auto pieces = [&](std::int32_t position) {
    const double low = size * position, high = size * (2 * degree - 1 - position);
    return std::array<Piece, 2>{Piece{low, low + size}, Piece{high, high + size}};
  };
  double pairs = 0;
  for (const Piece& queries : pieces(queries_of)) {
    for (const Piece& keys : pieces(keys_of)) pairs += pairs_between(attributes, queries, keys);
  }
  return pairs;
}

}  // namespace

double context_pairs(const OpAttributes& attributes, std::int64_t sequence, std::int32_t degree) {
  const bool whole = attributes.window == 0 && attributes.chunk == 0;
  if (whole || degree == 1) return attention_pairs(attributes, sequence) / degree;  // As many for each.
  double most = 0;
  for (std::int32_t p = 0; p < degree; ++p) {
    double pairs = 0;
    for (std::int32_t of = 0; of < degree; ++of) pairs += pairs_of(attributes, sequence, degree, p, of);
    most = std::max(most, pairs);
  }
  return most;
}

double ring_step_pairs(const OpAttributes& attributes, std::int64_t sequence, std::int32_t degree,
                       std::int32_t step) {
  double most = 0;
  for (std::int32_t p = 0; p < degree; ++p) {
    most = std::max(most, pairs_of(attributes, sequence, degree, p, (p - step + degree) % degree));
  }
  return most;
}

}  // namespace orrery
