#include "executor/runtime/rank_loop.hpp"

#include <cmath>
#include <ctime>
#include <limits>

#include "executor/launch/status_page.hpp"
#include "executor/runtime/perform.hpp"

namespace orrery::host {
namespace {

// An instruction's counter: steps · kPhases + phase, where 1 is posted and every finished phase of its
// exchange adds one.
constexpr std::uint64_t kPhases = 8;

std::int64_t now_ns() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

class RankLoop {
 public:
  RankLoop(const Graph& graph, const World& world, BoundRank& rank, const RunCallbacks& callbacks,
           std::int64_t first, std::int64_t steps, Remote* remote)
      : world_(world),
        remote_(remote),
        rank_(rank),
        callbacks_(callbacks),
        performer_(graph, world, rank.rank, callbacks),
        first_(first),
        end_(first + steps),
        streams_(rank.streams.size(), {first, 0, false, 0}),
        ended_(rank.instructions.size(), first - 1),
        left_(static_cast<std::size_t>(steps), std::ssize(rank.instructions)) {}

  void run() {
    open_rows();
    std::int64_t open = 0;
    for (const auto& stream : rank_.streams) open += stream.empty() ? 0 : 1;
    while (open > 0) {
      const std::uint32_t bell = world_.doorbell(rank_.rank);
      bool progress = false;
      // Communication before compute, and compute one instruction at a time, so that others don't wait for a
      // kernel they needn't wait for.
      for (std::size_t s = streams_.size(); s-- > 0;) {
        bool computed = false;
        while (!computed && !ended(s) && next_advances(s, computed)) {
          progress = true;
          if (ended(s)) --open;
        }
        if (computed) break;
      }
      if (remote_ != nullptr && remote_->pump()) continue;
      if (progress || open == 0) continue;
      launch::keep_waiting();
      if (remote_ != nullptr) {
        remote_->wait();
      } else {
        world_.wait(rank_.rank, bell);
      }
    }
    if (remote_ != nullptr) remote_->flush();
  }

 private:
  struct StreamState {
    std::int64_t step = 0;
    std::size_t next = 0;   // Into its instructions.
    bool posted = false;    // Its communication is under way.
    std::size_t phase = 0;  // The exchange's next.
  };

  bool ended(std::size_t s) const { return rank_.streams[s].empty() || streams_[s].step == end_; }

  void open_rows() {
    for (std::int64_t step = first_; step < end_; ++step) {
      for (double& value : world_.row(rank_.rank, step)) value = std::numeric_limits<double>::quiet_NaN();
    }
    world_.header(rank_.rank).norm_squared = RankHeader::kNoNorm;
  }

  // As advance(); `computes` says whether that was work of this rank alone.
  bool next_advances(std::size_t s, bool& computes) {
    const std::int32_t index = rank_.streams[s][streams_[s].next];
    const bool works = !rank_.instructions[static_cast<std::size_t>(index)].actions.empty();
    if (!advance(s)) return false;
    computes = works;
    return true;
  }

  // Whether the stream's next instruction could be brought to its end.
  bool advance(std::size_t s) {
    StreamState& stream = streams_[s];
    const std::int32_t index = rank_.streams[s][stream.next];
    const BoundInstruction& instruction = rank_.instructions[static_cast<std::size_t>(index)];
    if (!stream.posted && !ready(instruction, stream.step)) return false;
    Stamp& stamp = world_.stamp(rank_.rank, stream.step, index);
    if (!stream.posted) {
      stamp.start_ns = stamp.ready_ns = now_ns();
      launch::now_at(stream.step, index);
      for (const Action& action : instruction.actions) performer_.perform(action, stream.step);
      stream.posted = true;
      stream.phase = 0;
      if (exchanges(instruction)) tell(index, stream, instruction.exchange);
    }
    if (!exchange(index, stream, instruction.exchange, stamp)) return false;
    stamp.end_ns = now_ns();
    end_instruction(index, stream);
    return true;
  }

  static bool exchanges(const BoundInstruction& instruction) {
    return !instruction.exchange.listeners.empty();
  }

  bool ready(const BoundInstruction& instruction, std::int64_t step) const {
    for (const std::int32_t other : instruction.after) {
      if (ended_[static_cast<std::size_t>(other)] < step) return false;
    }
    for (const std::int32_t other : instruction.after_previous) {
      if (ended_[static_cast<std::size_t>(other)] < step - 1) return false;
    }
    return true;
  }

  // Goes on as far as the peers allow; whether it has come to its end.
  bool exchange(std::int32_t index, StreamState& stream, const Exchange& exchange, Stamp& stamp) {
    while (stream.phase < exchange.phases.size()) {
      const ExchangePhase& phase = exchange.phases[stream.phase];
      if (!all_at(phase.after, stream, stream.phase + 1)) return false;
      if (stream.phase == 0) stamp.ready_ns = now_ns();
      for (const Transfer& transfer : phase.work) performer_.perform(transfer, exchange);
      ++stream.phase;
      tell(index, stream, exchange);
    }
    if (!exchange.phases.empty()) return all_at(exchange.readers, stream, exchange.phases.size() + 1);
    if (exchange.readers.empty()) return true;
    // A message's sender has nothing to do; its receiver copies in one phase.
    if (stamp.ready_ns == stamp.start_ns && all_at(exchange.readers, stream, 1)) stamp.ready_ns = now_ns();
    return all_at(exchange.readers, stream, 2);
  }

  bool all_at(const std::vector<Peer>& peers, const StreamState& stream, std::size_t phase) const {
    const std::uint64_t wanted = static_cast<std::uint64_t>(stream.step) * kPhases + phase;
    for (const Peer& peer : peers) {
      if (world_.progress(peer.rank, peer.instruction).load(std::memory_order_acquire) < wanted) return false;
    }
    return true;
  }

  void tell(std::int32_t index, const StreamState& stream, const Exchange& exchange) {
    const std::uint64_t reached = static_cast<std::uint64_t>(stream.step) * kPhases + stream.phase + 1;
    world_.progress(rank_.rank, index).store(reached, std::memory_order_release);
    for (const RankId other : exchange.listeners) {
      if (remote_ != nullptr && remote_->has(other)) {
        remote_->tell(other, index, stream.phase, reached);
      } else {
        world_.ring(other);
      }
    }
  }

  void end_instruction(std::int32_t index, StreamState& stream) {
    ended_[static_cast<std::size_t>(index)] = stream.step;
    stream.posted = false;
    auto& left = left_[static_cast<std::size_t>(stream.step - first_)];
    if (--left == 0) end_step(stream.step);
    const std::size_t s = static_cast<std::size_t>(&stream - streams_.data());
    if (++stream.next < rank_.streams[s].size()) return;
    stream.next = 0;
    ++stream.step;
  }

  void end_step(std::int64_t step) {
    RankHeader& header = world_.header(rank_.rank);
    const std::span<double> row = world_.row(rank_.rank, step);
    row[World::kStepEnd] = static_cast<double>(now_ns());
    row[World::kNorm] = header.norm_squared == RankHeader::kNoNorm ? -1 : std::sqrt(header.norm_squared);
    if (callbacks_.ended) callbacks_.ended(rank_.rank, step);
  }

  const World& world_;
  Remote* remote_;
  BoundRank& rank_;
  const RunCallbacks& callbacks_;
  Performer performer_;
  std::int64_t first_, end_;
  std::vector<StreamState> streams_;
  std::vector<std::int64_t> ended_;  // By instruction: the last step in which it ended.
  std::vector<std::int64_t> left_;   // By step: instructions that haven't ended.
};

}  // namespace

void run_steps(const Graph& graph, const World& world, BoundRank& rank, const RunCallbacks& callbacks,
               std::int64_t first, std::int64_t steps, Remote* remote) {
  RankLoop(graph, world, rank, callbacks, first, steps, remote).run();
}

}  // namespace orrery::host
