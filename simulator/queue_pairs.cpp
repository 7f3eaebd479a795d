#include "simulator/queue_pairs.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery {
namespace {

double wire_s(const QueuePairs& shape) {
  return static_cast<double>(shape.message_bytes) / shape.bytes_per_s;
}

double credit_s(const QueuePairs& shape) {
  return shape.post_s + shape.pair_message_s + wire_s(shape) + shape.round_trip_s;
}

}  // namespace

std::string_view to_string(ConnectionLimit limit) {
  switch (limit) {
    case ConnectionLimit::kWire: return "wire";
    case ConnectionLimit::kCredits: return "credits";
    case ConnectionLimit::kPosting: return "posting";
    case ConnectionLimit::kQueuePairs: break;
  }
  return "queue pairs";
}

ConnectionRate connection_rate(const QueuePairs& shape) {
  assert(shape.pairs >= 1 && shape.depth >= 1 && shape.message_bytes >= 1 && shape.bytes_per_s > 0);
  // Seconds per message; of equal ones the first is named.
  double slowest_s = wire_s(shape);
  ConnectionLimit limit = ConnectionLimit::kWire;
  const auto take = [&](double seconds, ConnectionLimit by) {
    if (seconds <= slowest_s) return;
    slowest_s = seconds;
    limit = by;
  };
  take(shape.post_s, ConnectionLimit::kPosting);
  take(shape.pair_message_s / shape.pairs, ConnectionLimit::kQueuePairs);
  take(credit_s(shape) / (static_cast<double>(shape.pairs) * shape.depth), ConnectionLimit::kCredits);
  return {static_cast<double>(shape.message_bytes) / slowest_s, limit};
}

std::int32_t least_depth(const QueuePairs& shape) {
  const double other_s = std::max({wire_s(shape), shape.post_s, shape.pair_message_s / shape.pairs});
  return static_cast<std::int32_t>(std::ceil(credit_s(shape) / other_s / shape.pairs));
}

}  // namespace orrery
