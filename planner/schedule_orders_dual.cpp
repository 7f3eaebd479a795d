#include <algorithm>
#include <array>

#include "planner/schedule_orders.hpp"

namespace orrery {
namespace {

// The eight steps of DualPipe on one rank. Phase 0 is the direction that enters the pipeline nearer to this
// rank: chunk 0 on the first half of the ranks and chunk 1 on the other; in the V form it is always chunk 0.
class DualPipe {
 public:
  DualPipe(const ScheduleShape& shape, std::int32_t rank) {
    const std::int32_t p = shape.ranks;
    if (shape.kind == PipelineSchedule::kDualPipe) {
      half_ranks_ = p / 2;
      rank_ = std::min(rank, p - 1 - rank);
      main_steps_ = shape.microbatches / 2 - p + rank_ + 1;
      chunk_of_phase_ = rank < half_ranks_ ? std::array{0, 1} : std::array{1, 0};
      first_microbatch_[1] = shape.microbatches / 2;
    } else {
      half_ranks_ = p;
      rank_ = rank;
      main_steps_ = shape.microbatches - 2 * p + rank_ + 1;
    }
  }

  std::vector<Pass> order() {
    const std::int32_t outer = half_ranks_ - rank_ - 1;  // Ranks between this one and the turn.
    for (std::int32_t i = 0; i < 2 * outer; ++i) forward(0);
    for (std::int32_t i = 0; i < rank_ + 1; ++i) {
      forward(0);
      forward(1);
    }
    for (std::int32_t i = 0; i < outer; ++i) {
      input(1);
      weight();
      forward(1);
    }
    for (std::int32_t i = 0; i < main_steps_; ++i) {
      // At the turn the first two passes stay apart, so that the other ranks' wait is shorter.
      forward(0, i > 0 || outer > 0);
      backward(1);
      forward(1, true);
      backward(0);
    }
    for (std::int32_t i = 0; i < outer; ++i) {
      backward(1);
      forward(1, true);
      backward(0);
    }
    // The second half of these splits: 2(h + 1) backwards, of which the first h + 1 are whole.
    for (std::int32_t i = 0; i < 2 * (rank_ + 1); ++i) {
      const std::int32_t phase = i % 2 == 0 ? 1 : 0;
      i < rank_ + 1 ? backward(phase) : input(phase);
    }
    for (std::int32_t i = 0; i < outer; ++i) {
      weight();
      input(0);
    }
    for (std::int32_t i = 0; i < rank_ + 1; ++i) weight();
    return std::move(order_);
  }

 private:
  void add(PassKind kind, std::int32_t phase, std::int32_t& next, bool overlaps = false) {
    const std::int32_t chunk = chunk_of_phase_[static_cast<std::size_t>(phase)];
    order_.push_back({kind, chunk, first_microbatch_[static_cast<std::size_t>(chunk)] + next++, overlaps});
  }
  void forward(std::int32_t phase, bool overlaps = false) {
    add(PassKind::kForward, phase, forwards_[static_cast<std::size_t>(phase)], overlaps);
  }
  void backward(std::int32_t phase) {
    add(PassKind::kBackward, phase, backwards_[static_cast<std::size_t>(phase)]);
  }
  void input(std::int32_t phase) {
    add(PassKind::kBackwardInput, phase, backwards_[static_cast<std::size_t>(phase)]);
    waiting_.push_back(order_.back());
    waiting_.back().kind = PassKind::kBackwardWeight;
  }
  // The weight part that has waited longest.
  void weight() {
    if (served_ < waiting_.size()) order_.push_back(waiting_[served_++]);
  }

  std::int32_t half_ranks_ = 0, rank_ = 0, main_steps_ = 0;
  std::array<std::int32_t, 2> chunk_of_phase_ = {0, 1}, first_microbatch_ = {0, 0};
  std::array<std::int32_t, 2> forwards_{}, backwards_{};
  std::vector<Pass> order_, waiting_;
  std::size_t served_ = 0;
};

}  // namespace

std::vector<Pass> dual_order(const ScheduleShape& shape, std::int32_t rank) {
  return DualPipe(shape, rank).order();
}

}  // namespace orrery
