#pragma once
// How fast one network connection can be, by its messages and by how many of them it may have under way: the
// credit model of RDMA queue pairs.

#include <cstdint>
#include <string_view>

namespace orrery {

// Messages go round: over `pairs` queue pairs in turn, each with at most `depth` messages whose completion
// hasn't come back.
struct QueuePairs {
  std::int32_t pairs = 1;
  std::int32_t depth = 8;  // NCCL's slots of a connection.
  std::int64_t message_bytes = 1 << 20;
  double bytes_per_s = 50e9;  // Of the path, alone.
  double round_trip_s = 0;    // From the last byte sent until its completion is seen.
  double post_s = 0;          // The host thread's cost per message, one after the other.
  double pair_message_s = 0;  // The NIC's cost per message, one after the other within a queue pair.
};

enum class ConnectionLimit : std::uint8_t { kWire, kCredits, kPosting, kQueuePairs };
std::string_view to_string(ConnectionLimit limit);  // "credits"

struct ConnectionRate {
  double bytes_per_s = 0;
  ConnectionLimit limit = ConnectionLimit::kWire;
};

// A message takes t = post + pair_message + bytes / bandwidth + round trip from its credit until the credit
// is back. So messages per second are the least of
//   bandwidth / bytes, pairs · depth / t, 1 / post, pairs / pair_message.
ConnectionRate connection_rate(const QueuePairs& shape);

// The least depth at which credits hold nothing back. It falls as messages grow: what must be under way is
// bandwidth · delay, in bytes.
std::int32_t least_depth(const QueuePairs& shape);

}  // namespace orrery
