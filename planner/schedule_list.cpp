#include "planner/schedule_list.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>

#include "planner/schedule_progress.hpp"
#include "planner/schedule_timing.hpp"

namespace orrery {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

bool splits(const ScheduleShape& shape) {
  return shape.kind == PipelineSchedule::kList && shape.split_backward;
}

std::vector<ListRule> rules(const ScheduleShape& shape) {
  std::vector<ListRule> result;
  for (const ListRule::First first :
       {ListRule::First::kTurns, ListRule::First::kBackward, ListRule::First::kForward}) {
    result.push_back({first, false});
    if (splits(shape)) result.push_back({first, true});
  }
  return result;
}

class ListScheduler {
 public:
  ListScheduler(const Schedule& stages, const StageTimes& times, const ListRule& rule)
      : stages_(stages), times_(times), rule_(rule), shape_(stages.shape) {
    splits_ = splits(shape_);
    const auto values =
        static_cast<std::size_t>(stages.stages()) * static_cast<std::size_t>(shape_.microbatches);
    forward_end_.assign(values, kUnknown);
    backward_end_.assign(values, kUnknown);
    for (std::int32_t r = 0; r < shape_.ranks; ++r) {
      Rank rank;
      rank.next_forward.resize(static_cast<std::size_t>(shape_.chunks));
      rank.next_backward.resize(static_cast<std::size_t>(shape_.chunks));
      rank.held.resize(static_cast<std::size_t>(shape_.microbatches));
      rank.forwards = rank.held;
      rank.order.reserve(static_cast<std::size_t>(shape_.chunks) * rank.held.size() * 3);
      ranks_.push_back(std::move(rank));
    }
  }

  std::vector<std::vector<Pass>> run() {
    for (std::int32_t r = 0; r < shape_.ranks; ++r) wake(0, r);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
      if (rank.free > event.time) continue;  // A later event comes when it is free.
      if (const auto pass = choose(event.rank, event.time)) start(event.rank, *pass, event.time);
    }
    std::vector<std::vector<Pass>> orders;
    for (Rank& rank : ranks_) orders.push_back(std::move(rank.order));
    return orders;
  }

 private:
  struct Rank {
    double free = 0;
    std::int32_t used = 0;                                  // Chunk activations held.
    std::vector<std::int32_t> next_forward, next_backward;  // Micro-batch, by chunk.
    std::vector<std::int32_t> held, forwards;               // Activations and forwards done, by micro-batch.
    std::int32_t oldest = 0;                                // First micro-batch with something left to do.
    std::size_t next_weight = 0;                            // Into waiting.
    bool did_backward = false;                              // The last pass but weight parts was one.
    std::vector<Pass> waiting;                              // Weight parts, in the order they came up.
    std::vector<Pass> order;
  };
  struct Event {
    double time;
    std::int32_t rank;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : rank > other.rank;
    }
  };

  void wake(double time, std::int32_t rank) { events_.push({time, rank}); }

  std::int32_t stage(std::int32_t rank, std::int32_t chunk) const {
    return stages_.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  }
  std::size_t index(std::int32_t rank, const Pass& pass) const {
    return schedule_index(stages_, stage(rank, pass.chunk), pass.microbatch);
  }

  // When what the pass waits for is there; kUnknown where that hasn't started.
  double arrival(std::int32_t rank, const Pass& pass) const {
    const bool forward = pass.kind == PassKind::kForward;
    const double own = forward ? 0 : forward_end_[index(rank, pass)];
    const auto source = source_of(stages_, rank, pass);
    if (!source) return own;
    const auto& ends = forward ? forward_end_ : backward_end_;
    const double sent = ends[index(source->rank, {pass.kind, source->chunk, pass.microbatch})];
    return std::max(own, sent + (source->rank == rank ? 0 : times_.latency));
  }

  // Whether all micro-batches in flight can still finish, oldest first, if this one takes one more
  // activation: each must find room for its remaining chunks in what is free and what the older ones give
  // back.
  bool admits(const Rank& rank, std::int32_t microbatch) const {
    std::int32_t room = shape_.memory_cap - rank.used - 1;
    if (room < 0) return false;
    const std::int32_t newest = std::max(microbatch, rank.next_forward[0] - 1);
    for (std::int32_t k = rank.oldest; k <= newest && room < shape_.chunks; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const std::int32_t taken = k == microbatch ? 1 : 0;
      const std::int32_t forwards = rank.forwards[i] + taken;
      if (forwards > 0 && shape_.chunks - forwards > room + waiting_weights(rank)) return false;
      room += rank.held[i] + taken;
    }
    return true;
  }

  // Activations that only a weight part still holds, which this rank can free by itself.
  static std::int32_t waiting_weights(const Rank& rank) {
    return static_cast<std::int32_t>(rank.waiting.size() - rank.next_weight);
  }

  // What the rank could do at `time`.
  struct View {
    // Of several chunks the one nearest to the end of its way. Tried: the oldest micro-batch first, which
    // came out the same, and the chunk nearest to the start, which was up to 60 % slower.
    std::optional<Pass> forward, backward;
    double next_arrival = kUnknown;  // Of something that has started elsewhere.
    bool full = false;               // A forward could start but for the memory cap.
  };

  View look(std::int32_t r, double time) const {
    const Rank& rank = ranks_[static_cast<std::size_t>(r)];
    View view;
    for (std::int32_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      const auto c = static_cast<std::size_t>(chunk);
      const Pass ahead = {PassKind::kForward, chunk, rank.next_forward[c]};
      const Pass back = {splits_ ? PassKind::kBackwardInput : PassKind::kBackward, chunk,
                         rank.next_backward[c]};
      if (ahead.microbatch < shape_.microbatches) {
        const double there = arrival(r, ahead);
        if (there > time) {
          view.next_arrival = std::min(view.next_arrival, there);
        } else if (admits(rank, ahead.microbatch)) {
          view.forward = ahead;  // Stages rise with chunks.
        } else {
          view.full = true;
        }
      }
      if (back.microbatch < shape_.microbatches) {
        const double there = arrival(r, back);
        if (there > time) {
          view.next_arrival = std::min(view.next_arrival, there);
        } else if (!view.backward) {
          view.backward = back;
        }
      }
    }
    return view;
  }

  std::optional<Pass> choose(std::int32_t r, double time) const {
    const Rank& rank = ranks_[static_cast<std::size_t>(r)];
    const View view = look(r, time);
    const bool weights_wait = waiting_weights(rank) > 0;
    const bool forward_first = rule_.first == ListRule::First::kForward ||
                               (rule_.first == ListRule::First::kTurns && rank.did_backward);
    if (forward_first) {
      if (view.forward) return view.forward;
      if (view.full && weights_wait) return rank.waiting[rank.next_weight];
    }
    if (view.backward) return view.backward;
    if (view.forward) return view.forward;
    if (!weights_wait) return std::nullopt;
    const Pass& weight = rank.waiting[rank.next_weight];
    const double end = time + times_.weight[static_cast<std::size_t>(stage(r, weight.chunk))];
    const bool waits = rule_.weight_in_gaps && !view.full && end > view.next_arrival;
    return waits ? std::nullopt : std::optional(weight);
  }

  void start(std::int32_t r, const Pass& pass, double time) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    const auto c = static_cast<std::size_t>(pass.chunk), k = static_cast<std::size_t>(pass.microbatch);
    const auto s = static_cast<std::size_t>(stage(r, pass.chunk));
    double end = time;
    switch (pass.kind) {
      case PassKind::kForward:
        end += times_.forward[s];
        forward_end_[index(r, pass)] = end;
        ++rank.next_forward[c];
        ++rank.held[k];
        ++rank.forwards[k];
        ++rank.used;
        rank.did_backward = false;
        break;
      case PassKind::kBackward: end += times_.weight[s]; [[fallthrough]];
      case PassKind::kBackwardInput:
        end += times_.input[s];
        backward_end_[index(r, pass)] = end;
        ++rank.next_backward[c];
        --rank.held[k];
        if (pass.kind == PassKind::kBackward) --rank.used;
        if (splits_) rank.waiting.push_back({PassKind::kBackwardWeight, pass.chunk, pass.microbatch});
        rank.did_backward = true;
        advance_oldest(rank);
        break;
      case PassKind::kBackwardWeight:
        end += times_.weight[s];
        ++rank.next_weight;
        --rank.used;
        break;
    }
    rank.order.push_back(pass);
    rank.free = end;
    wake(end, r);
    const auto reader = destination_of(stages_, r, pass);
    if (reader && reader->rank != r) wake(end + times_.latency, reader->rank);
  }

  void advance_oldest(Rank& rank) const {
    const std::int32_t done = *std::min_element(rank.next_backward.begin(), rank.next_backward.end());
    rank.oldest = std::max(rank.oldest, done);
  }

  const Schedule& stages_;
  const StageTimes& times_;
  const ListRule& rule_;
  const ScheduleShape& shape_;
  bool splits_ = false;
  std::vector<Rank> ranks_;
  std::vector<double> forward_end_, backward_end_;  // By schedule_index.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::vector<std::vector<Pass>> list_orders(const Schedule& stages, const StageTimes& times,
                                           const ListRule& rule) {
  assert(stages.shape.memory_cap >= stages.shape.chunks);
  return ListScheduler(stages, times, rule).run();
}

std::vector<std::vector<Pass>> list_orders(const Schedule& stages) {
  const StageTimes times = stages.shape.times ? *stages.shape.times : even_times(stages.shape, 1, 1, 1);
  Schedule best = stages, trial = stages;
  double best_makespan = kUnknown, best_peak = kUnknown;
  for (const ListRule& rule : rules(stages.shape)) {
    trial.passes = list_orders(stages, times, rule);
    trial.splits_backward = splits(stages.shape);
    const double makespan = time_schedule(trial, times).makespan;
    const std::vector<double> peaks = peak_activations(trial);
    const double peak = *std::max_element(peaks.begin(), peaks.end());
    if (makespan > best_makespan || (makespan == best_makespan && peak >= best_peak)) continue;
    std::swap(best.passes, trial.passes);
    best_makespan = makespan;
    best_peak = peak;
    best.splits_backward = trial.splits_backward;
    if (makespan <= makespan_bound(best, times)) break;  // No rule can do better.
  }
  return std::move(best.passes);
}

}  // namespace orrery
