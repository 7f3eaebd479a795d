#include <algorithm>
#include <array>

#include "planner/schedule_orders.hpp"

namespace orrery {
namespace {

constexpr auto kForward = PassKind::kForward;
constexpr auto kInput = PassKind::kBackwardInput;
constexpr auto kWeight = PassKind::kBackwardWeight;

// Appends passes and numbers the micro-batches of each kind and chunk.
class Writer {
 public:
  void add(PassKind kind, std::int32_t chunk) {
    std::int32_t& next = next_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(chunk)];
    order.push_back({kind, chunk, next++});
  }
  std::int32_t done(PassKind kind, std::int32_t chunk) const {
    return next_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(chunk)];
  }
  void backward(std::int32_t chunk) {
    add(kInput, chunk);
    add(kWeight, chunk);
  }
  void remaining_weights(std::int32_t chunk) {
    while (done(kWeight, chunk) < done(kInput, chunk)) add(kWeight, chunk);
  }

  std::vector<Pass> order;

 private:
  std::array<std::array<std::int32_t, 2>, 4> next_{};
};

// Made for at least 2p − 1 micro-batches, which fill the pipeline; what is too much is dropped, and the rest
// keeps a legal order.
std::vector<Pass> zero_bubble_v(const ScheduleShape& shape, std::int32_t rank) {
  const std::int32_t p = shape.ranks, m = std::max(shape.microbatches, 2 * p - 1);
  Writer writer;
  writer.order.reserve(6 * static_cast<std::size_t>(m));
  for (std::int32_t i = 0; i < 2 * (p - rank) - 1; ++i) writer.add(kForward, 0);
  for (std::int32_t i = 0; i < rank; ++i) {
    writer.add(kForward, 1);
    writer.add(kForward, 0);
  }
  for (std::int32_t i = 0; i < p - rank; ++i) {
    writer.add(kForward, 1);
    writer.backward(1);
  }
  while (writer.done(kForward, 1) < m) {
    if (writer.done(kForward, 0) < m) writer.add(kForward, 0);
    writer.backward(0);
    writer.add(kForward, 1);
    writer.backward(1);
  }
  for (std::int32_t i = 0; i < rank; ++i) {
    writer.add(kInput, 0);
    writer.add(kInput, 1);
  }
  for (std::int32_t i = 0; i < p - rank; ++i) {
    writer.add(kInput, 0);
    writer.add(kWeight, 0);
  }
  writer.remaining_weights(1);
  writer.remaining_weights(0);
  std::erase_if(writer.order, [&](const Pass& pass) { return pass.microbatch >= shape.microbatches; });
  return writer.order;
}

// Slot of micro-batch 0's forward of chunk 0 and 1 and input part of chunk 1 and 0; micro-batch k comes 6k
// slots later, and weight parts take the free slots, first in, first out. The shift keeps the four apart
// modulo 6.
std::array<std::int32_t, 4> stable_pattern(PipelineSchedule kind, std::int32_t p, std::int32_t r) {
  if (kind == PipelineSchedule::kVHalf) {
    const std::int32_t shift = p % 2 == 0 ? 3 : 0;
    return {2 * r, 3 * p - r - 2, 3 * p + shift + 2 * r - 1, 6 * p + shift - r - 2};
  }
  const std::int32_t shift = p % 3 == 0 ? 2 : 0;
  return {r, 2 * p - 1 - r, 2 * p + shift + r, 4 * p + shift - 1 - r};
}

std::vector<Pass> controlled_memory(const ScheduleShape& shape, std::int32_t rank) {
  constexpr std::int32_t kPeriod = 6;
  constexpr std::array<PassKind, 4> kinds = {kForward, kForward, kInput, kInput};
  constexpr std::array<std::int32_t, 4> chunks = {0, 1, 1, 0};
  const std::array<std::int32_t, 4> first = stable_pattern(shape.kind, shape.ranks, rank);
  std::vector<Pass> order, waiting;  // Weight parts that wait for a free slot, from `served`.
  order.reserve(6 * static_cast<std::size_t>(shape.microbatches));
  std::size_t served = 0;
  const std::int32_t last = first[3] + kPeriod * (shape.microbatches - 1);
  for (std::int32_t slot = 0; slot <= last; ++slot) {
    bool taken = false;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::int32_t since = slot - first[i];
      if (since < 0 || since % kPeriod != 0 || since / kPeriod >= shape.microbatches) continue;
      order.push_back({kinds[i], chunks[i], since / kPeriod});
      if (kinds[i] == kInput) waiting.push_back({kWeight, chunks[i], since / kPeriod});
      taken = true;
    }
    if (!taken && served < waiting.size()) order.push_back(waiting[served++]);
  }
  order.insert(order.end(), waiting.begin() + static_cast<std::ptrdiff_t>(served), waiting.end());
  return order;
}

}  // namespace

std::vector<Pass> v_order(const ScheduleShape& shape, std::int32_t rank) {
  return shape.kind == PipelineSchedule::kZeroBubbleV ? zero_bubble_v(shape, rank)
                                                      : controlled_memory(shape, rank);
}

}  // namespace orrery
