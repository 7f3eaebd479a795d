#include "planner/schedule_orders.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr auto kForward = PassKind::kForward;
constexpr auto kBackward = PassKind::kBackward;
constexpr auto kInput = PassKind::kBackwardInput;
constexpr auto kWeight = PassKind::kBackwardWeight;

// All forwards chunk by chunk, then all backwards in the opposite order: GPipe with one chunk, looped BFS
// with more.
std::vector<Pass> breadth_first(std::int32_t chunks, std::int32_t microbatches) {
  std::vector<Pass> order;
  for (std::int32_t c = 0; c < chunks; ++c) {
    for (std::int32_t k = 0; k < microbatches; ++k) order.push_back({kForward, c, k});
  }
  for (std::int32_t c = chunks - 1; c >= 0; --c) {
    for (std::int32_t k = microbatches - 1; k >= 0; --k) order.push_back({kBackward, c, k});
  }
  return order;
}

// `warm_up` forwards, then one of each in turn, then the remaining backwards.
std::vector<Pass> alternate(const std::vector<Pass>& forwards, const std::vector<Pass>& backwards,
                            std::int32_t warm_up) {
  std::vector<Pass> order;
  order.reserve(forwards.size() + backwards.size());
  const auto first = std::min(static_cast<std::size_t>(std::max(warm_up, 0)), forwards.size());
  for (std::size_t i = 0; i < first; ++i) order.push_back(forwards[i]);
  for (std::size_t i = first; i < forwards.size(); ++i) {
    order.push_back(forwards[i]);
    order.push_back(backwards[i - first]);
  }
  for (std::size_t i = backwards.size() - first; i < backwards.size(); ++i) order.push_back(backwards[i]);
  return order;
}

// Groups of micro-batches, chunk after chunk within a group; backwards take the chunks from the last one.
std::vector<Pass> grouped(const ScheduleShape& shape, PassKind kind) {
  std::vector<Pass> order;
  for (std::int32_t start = 0; start < shape.microbatches; start += shape.group) {
    const std::int32_t end = start + std::min(shape.group, shape.microbatches - start);
    for (std::int32_t c = 0; c < shape.chunks; ++c) {
      const std::int32_t chunk = kind == kForward ? c : shape.chunks - 1 - c;
      for (std::int32_t k = start; k < end; ++k) order.push_back({kind, chunk, k});
    }
    if (end == shape.microbatches) break;
  }
  return order;
}

std::vector<Pass> one_chunk(PassKind kind, std::int32_t microbatches) {
  std::vector<Pass> order;
  for (std::int32_t k = 0; k < microbatches; ++k) order.push_back({kind, 0, k});
  return order;
}

// `warm_up` forwards, then rounds of an input part, a weight part once more than `delay` of them wait or no
// forward is left, and a forward; then the weight parts that are left.
std::vector<Pass> zero_bubble(std::int32_t microbatches, std::int32_t warm_up, std::int32_t delay) {
  std::vector<Pass> order;
  order.reserve(3 * static_cast<std::size_t>(microbatches));
  std::int32_t forwards = 0, weights = 0;
  for (; forwards < std::min(warm_up, microbatches); ++forwards) order.push_back({kForward, 0, forwards});
  for (std::int32_t k = 0; k < microbatches; ++k) {
    order.push_back({kInput, 0, k});
    if (k + 1 - weights > delay || forwards == microbatches) order.push_back({kWeight, 0, weights++});
    if (forwards < microbatches) order.push_back({kForward, 0, forwards++});
  }
  while (weights < microbatches) order.push_back({kWeight, 0, weights++});
  return order;
}

}  // namespace

std::vector<Pass> chained_order(const ScheduleShape& shape, std::int32_t rank) {
  const std::int32_t m = shape.microbatches;
  const std::int32_t after = shape.ranks - 1 - rank;  // Ranks after this one.
  switch (shape.kind) {
    case PipelineSchedule::kGPipe:
    case PipelineSchedule::kLoopedBfs: return breadth_first(shape.chunks, m);
    case PipelineSchedule::kOneForwardOneBackward:
      return alternate(one_chunk(kForward, m), one_chunk(kBackward, m), after);
    case PipelineSchedule::kEagerOneForwardOneBackward:
      return alternate(one_chunk(kForward, m), one_chunk(kBackward, m), 2 * after);
    case PipelineSchedule::kInterleaved:
      return alternate(grouped(shape, kForward), grouped(shape, kBackward),
                       2 * after + (shape.chunks - 1) * std::min(shape.group, m));
    case PipelineSchedule::kZeroBubbleH1: return zero_bubble(m, after + 1, rank);
    case PipelineSchedule::kZeroBubbleH2: return zero_bubble(m, 2 * after + 1, 2 * rank);
    default: return {};
  }
}

}  // namespace orrery
