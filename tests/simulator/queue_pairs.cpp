#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "simulator/queue_pairs.hpp"

using namespace orrery;

namespace {

// Message by message: posted by one thread when its queue pair has a credit, handled by the queue pair, sent
// over the wire, complete a round trip later. Bytes per second over the second half of the messages.
double simulated(const QueuePairs& shape) {
  constexpr std::size_t kMessages = 20'000;
  const auto pairs = static_cast<std::size_t>(shape.pairs);
  const std::size_t credits = pairs * static_cast<std::size_t>(shape.depth);
  std::vector<double> handled(kMessages), complete(kMessages);
  double posted = 0, sent = 0;
  for (std::size_t i = 0; i < kMessages; ++i) {
    posted = std::max(posted, i >= credits ? complete[i - credits] : 0) + shape.post_s;
    handled[i] = std::max(posted, i >= pairs ? handled[i - pairs] : 0) + shape.pair_message_s;
    sent = std::max(sent, handled[i]) + static_cast<double>(shape.message_bytes) / shape.bytes_per_s;
    complete[i] = sent + shape.round_trip_s;
  }
  const std::size_t half = kMessages / 2;
  return static_cast<double>(shape.message_bytes) * static_cast<double>(half) /
         (complete.back() - complete[half - 1]);
}

// 400 Gb/s; a round trip over three switches: 2 · (2.7 us + 3 · 0.3 us), NCCL's network latency and a hop's.
QueuePairs ndr(std::int64_t message_bytes, std::int32_t depth) {
  QueuePairs shape;
  shape.message_bytes = message_bytes;
  shape.depth = depth;
  shape.round_trip_s = 7.2e-6;
  return shape;
}

}  // namespace

TEST_CASE("throughput is depth · message / round trip until the wire is full", "[queue_pairs]") {
  // One message of 50 kB takes 1 us on the wire and 7.2 us until its completion: 8.2 us per credit.
  const ConnectionRate one = connection_rate(ndr(50'000, 1));
  CHECK(one.bytes_per_s == Approx(50'000 / 8.2e-6));
  CHECK(one.limit == ConnectionLimit::kCredits);
  CHECK(connection_rate(ndr(50'000, 4)).bytes_per_s == Approx(4 * 50'000 / 8.2e-6));
  CHECK(connection_rate(ndr(50'000, 9)).bytes_per_s == Approx(50e9));
  CHECK(connection_rate(ndr(50'000, 9)).limit == ConnectionLimit::kWire);
  CHECK(least_depth(ndr(50'000, 1)) == 9);
  // Two queue pairs have twice the credits.
  QueuePairs two = ndr(50'000, 2);
  two.pairs = 2;
  CHECK(connection_rate(two).bytes_per_s == Approx(4 * 50'000 / 8.2e-6));
  CHECK(least_depth(two) == 5);
}

TEST_CASE("a cost per message caps small messages, and more queue pairs lift the NIC's part of it",
          "[queue_pairs]") {
  QueuePairs shape = ndr(4096, 256);
  shape.post_s = 1.5e-6;  // NCCL prices its proxy at 1 to 2 us (NCCL_NET_OVERHEAD).
  CHECK(connection_rate(shape).limit == ConnectionLimit::kPosting);
  CHECK(connection_rate(shape).bytes_per_s == Approx(4096 / 1.5e-6));
  shape.post_s = 0.05e-6;
  shape.pair_message_s = 0.4e-6;
  CHECK(connection_rate(shape).limit == ConnectionLimit::kQueuePairs);
  shape.pairs = 2;
  CHECK(connection_rate(shape).bytes_per_s == Approx(2 * 4096 / 0.4e-6));
  shape.pairs = 8;  // 50 ns per message each, less than the wire's 82 ns.
  CHECK(connection_rate(shape).limit == ConnectionLimit::kWire);
}

TEST_CASE("the formula is what a simulation message by message gives", "[queue_pairs]") {
  Random random(11);
  std::vector<int> limits(4);
  for (int trial = 0; trial < 200; ++trial) {
    QueuePairs shape;
    shape.pairs = static_cast<std::int32_t>(random.between(1, 8));
    shape.depth = static_cast<std::int32_t>(random.between(1, 64));
    shape.message_bytes = std::int64_t{1} << random.between(10, 21);
    shape.round_trip_s = random.uniform() * 50e-6;
    shape.post_s = random.between(0, 1) == 0 ? 0 : random.uniform() * 2e-6;
    shape.pair_message_s = random.between(0, 1) == 0 ? 0 : random.uniform() * 2e-6;
    const ConnectionRate rate = connection_rate(shape);
    CHECK(simulated(shape) == Approx(rate.bytes_per_s).epsilon(0.01));
    ++limits[static_cast<std::size_t>(rate.limit)];
    const std::int32_t enough = least_depth(shape);
    shape.depth = enough;
    CHECK(connection_rate(shape).limit != ConnectionLimit::kCredits);
    shape.depth = enough - 1;
    if (enough > 1) CHECK(connection_rate(shape).limit == ConnectionLimit::kCredits);
  }
  CHECK(*std::min_element(limits.begin(), limits.end()) > 5);
}

// Claimed good depths: 64 below 8 MB (ring), 256 from 8 to 64 MB (tree), 512 above (hybrid).
TEST_CASE("depths of 64, 256 and 512 are needed for packets, not for growing messages", "[queue_pairs]") {
  // NCCL's slices are 128 KiB to 1 MiB: (wire + 7.2 us) / wire.
  CHECK(least_depth(ndr(128 << 10, 1)) == 4);  // 1 + 7.2 / 2.62 = 3.7
  CHECK(least_depth(ndr(512 << 10, 1)) == 2);
  CHECK(least_depth(ndr(1 << 20, 1)) == 2);
  CHECK(least_depth(ndr(8 << 20, 1)) == 2);
  // In packets of 4 KiB, 82 ns each: 1 + 7.2 / 0.082 = 88.9. A depth of 64 gives 72 % of the wire.
  CHECK(least_depth(ndr(4096, 1)) == 89);
  CHECK(connection_rate(ndr(4096, 64)).bytes_per_s / 50e9 == Approx(64 / 88.9).epsilon(0.001));
  // 256 and 512 packets fill the wire up to round trips of 20.9 and 41.9 us, three and six times the empty
  // fabric's: queues, not sizes of tensors.
  for (const auto& [depth, round_trip_us] : {std::pair(256, 20.85), std::pair(512, 41.8)}) {
    QueuePairs shape = ndr(4096, 1);
    shape.round_trip_s = round_trip_us * 1e-6;
    CHECK(least_depth(shape) == depth);
  }
}
