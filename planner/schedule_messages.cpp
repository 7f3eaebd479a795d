#include "planner/schedule_messages.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "planner/schedule_progress.hpp"

namespace orrery {
namespace {

enum DataKind : std::int32_t { kActivations, kGradients, kDataKinds };

DataKind data_of(const Pass& pass) { return pass.kind == PassKind::kForward ? kActivations : kGradients; }

struct Message {
  std::int32_t from = 0, to = 0;
  std::int32_t reader = -1;  // Index of the pass that reads it, on `to`.
  bool operator==(const Message&) const = default;
};

// Who sends what to whom, in order of sending.
class Messages {
 public:
  explicit Messages(const Schedule& schedule) : schedule_(schedule) {
    const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
    for (std::int32_t data = 0; data < kDataKinds; ++data) find_readers(static_cast<DataKind>(data));
    sent.resize(ranks);
    channels_.resize(ranks);
    for (std::int32_t rank = 0; rank < schedule.shape.ranks; ++rank) collect(rank);
  }

  // [rank][pass] → what it sends; reader −1: nothing.
  std::vector<std::vector<Message>> sent;

  // What `from` sends to `to`, in order: reading passes.
  const std::vector<std::int32_t>& channel(std::int32_t from, std::int32_t to, DataKind data) const {
    for (const Channel& channel : channels_[static_cast<std::size_t>(to)]) {
      if (channel.from == from && channel.data == data) return channel.readers;
    }
    static const std::vector<std::int32_t> none;
    return none;
  }

 private:
  struct Channel {
    std::int32_t from = 0;
    DataKind data = kActivations;
    std::vector<std::int32_t> readers;
  };

  std::size_t value(std::int32_t rank, const Pass& pass) const {
    const std::int32_t stage =
        schedule_.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.chunk)];
    return schedule_index(schedule_, stage, pass.microbatch);
  }

  void find_readers(DataKind data) {
    std::vector<std::int32_t>& readers = reader_[static_cast<std::size_t>(data)];
    readers.assign(
        static_cast<std::size_t>(schedule_.stages()) * static_cast<std::size_t>(schedule_.shape.microbatches),
        -1);
    for (std::int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) {
      const std::vector<Pass>& passes = schedule_.passes[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < passes.size(); ++i) {
        if (passes[i].kind == PassKind::kBackwardWeight || data_of(passes[i]) != data) continue;
        readers[value(rank, passes[i])] = static_cast<std::int32_t>(i);
      }
    }
  }

  void collect(std::int32_t rank) {
    for (const Pass& pass : schedule_.passes[static_cast<std::size_t>(rank)]) {
      Message message = {rank, rank, -1};
      const auto place = destination_of(schedule_, rank, pass);
      if (place && place->rank != rank) {
        message.to = place->rank;
        message.reader = reader_[static_cast<std::size_t>(data_of(pass))]
                                [value(place->rank, {pass.kind, place->chunk, pass.microbatch})];
        open(rank, place->rank, data_of(pass)).push_back(message.reader);
      }
      sent[static_cast<std::size_t>(rank)].push_back(message);
    }
  }

  std::vector<std::int32_t>& open(std::int32_t from, std::int32_t to, DataKind data) {
    std::vector<Channel>& channels = channels_[static_cast<std::size_t>(to)];
    for (Channel& channel : channels) {
      if (channel.from == from && channel.data == data) return channel.readers;
    }
    channels.push_back({from, data, {}});
    return channels.back().readers;
  }

  const Schedule& schedule_;
  std::array<std::vector<std::int32_t>, kDataKinds> reader_;  // By schedule_index of the reading stage.
  std::vector<std::vector<Channel>> channels_;                // By receiving rank; few each.
};

// The sender of what the pass reads, if that is another rank.
std::optional<std::int32_t> sender_to(const Schedule& schedule, std::int32_t rank, const Pass& pass) {
  const auto source = source_of(schedule, rank, pass);
  if (!source || source->rank == rank) return std::nullopt;
  return source->rank;
}

using ReceivePlan = std::vector<std::vector<std::vector<std::int32_t>>>;

ReceivePlan plan_receives(const Schedule& schedule, const Messages& messages, std::int32_t receives_ahead) {
  ReceivePlan plan;
  for (std::int32_t rank = 0; rank < schedule.shape.ranks; ++rank) {
    const std::span<const Pass> passes = schedule.passes[static_cast<std::size_t>(rank)];
    std::vector<std::vector<std::int32_t>> posts(passes.size());
    std::vector<char> posted(passes.size());
    // How far each peer's messages have been posted.
    std::vector<std::array<std::size_t, kDataKinds>> position(static_cast<std::size_t>(schedule.shape.ranks));
    std::size_t looked_at = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const std::size_t needed =
          i + unit_size(passes, i) + static_cast<std::size_t>(std::max(receives_ahead, 0));
      for (; looked_at < std::min(needed, passes.size()); ++looked_at) {
        const auto sender = sender_to(schedule, rank, passes[looked_at]);
        if (!sender) continue;
        const DataKind data = data_of(passes[looked_at]);
        const std::vector<std::int32_t>& order = messages.channel(*sender, rank, data);
        std::size_t& next = position[static_cast<std::size_t>(*sender)][static_cast<std::size_t>(data)];
        while (!posted[looked_at] && next < order.size()) {
          posts[i].push_back(order[next]);
          posted[static_cast<std::size_t>(order[next++])] = true;
        }
      }
    }
    plan.push_back(std::move(posts));
  }
  return plan;
}

// Plays the schedule. A pass takes no time; what counts is who waits for whom. What a rank hands to itself is
// there by then, as the order has been checked without messages.
class DryRun {
 public:
  DryRun(const Schedule& schedule, const MessageQueues& queues)
      : schedule_(schedule),
        messages_(schedule),
        plan_(plan_receives(schedule, messages_, queues.receives_ahead)),
        per_peer_(queues.per_peer) {
    const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
    for (const std::vector<Pass>& passes : schedule.passes) arrived_.emplace_back(passes.size());
    next_.resize(ranks);
    posted_.resize(ranks);
  }

  std::vector<std::size_t> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) moved |= advance(rank);
    }
    for (std::size_t r = 0; r < next_.size(); ++r) {
      if (next_[r] < schedule_.passes[r].size()) return next_;
    }
    return {};
  }

 private:
  using Queue = std::deque<Message>;
  using Queues = std::map<std::array<std::int32_t, 3>, Queue>;  // By rank, kind of data, peer.

  Queue& queue(Queues& queues, std::int32_t rank, DataKind data, std::int32_t peer) const {
    return queues[{rank, data, per_peer_ ? peer : 0}];
  }

  // Does passes until one waits; whether anything happened.
  bool advance(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::span<const Pass> passes = schedule_.passes[r];
    bool moved = false;
    while (next_[r] < passes.size()) {
      moved |= post_receives(rank);
      const std::size_t end = next_[r] + unit_size(passes, next_[r]);
      for (std::size_t i = next_[r]; i < end; ++i) {
        if (sender_to(schedule_, rank, passes[i]) && !arrived_[r][i]) return moved;
      }
      for (std::size_t i = next_[r]; i < end; ++i) post_send(rank, i);
      next_[r] = end;
      moved = true;
    }
    return moved;
  }

  bool post_receives(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (posted_[r] > next_[r]) return false;
    for (; posted_[r] <= next_[r]; ++posted_[r]) {
      for (const std::int32_t reader : plan_[r][posted_[r]]) {
        const Pass& pass = schedule_.passes[r][static_cast<std::size_t>(reader)];
        const std::int32_t from = *sender_to(schedule_, rank, pass);
        queue(receives_, rank, data_of(pass), from).push_back({from, rank, reader});
        meet(data_of(pass), from, rank);
      }
    }
    return true;
  }

  void post_send(std::int32_t rank, std::size_t pass) {
    const Message& message = messages_.sent[static_cast<std::size_t>(rank)][pass];
    if (message.reader < 0) return;
    const DataKind data = data_of(schedule_.passes[static_cast<std::size_t>(rank)][pass]);
    queue(sends_, rank, data, message.to).push_back(message);
    meet(data, rank, message.to);
  }

  // Moves what is at the head of both queues, and what that lets move.
  void meet(DataKind data, std::int32_t from, std::int32_t to) {
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs = {{from, to}};
    while (!pairs.empty()) {
      const auto [sender, receiver] = pairs.back();
      pairs.pop_back();
      Queue& sends = queue(sends_, sender, data, receiver);
      Queue& receives = queue(receives_, receiver, data, sender);
      if (sends.empty() || receives.empty() || sends.front() != receives.front()) continue;
      const Message message = sends.front();
      arrived_[static_cast<std::size_t>(message.to)][static_cast<std::size_t>(message.reader)] = true;
      sends.pop_front();
      receives.pop_front();
      if (!sends.empty()) pairs.emplace_back(sends.front().from, sends.front().to);
      if (!receives.empty()) pairs.emplace_back(receives.front().from, receives.front().to);
    }
  }

  const Schedule& schedule_;
  const Messages messages_;
  const ReceivePlan plan_;
  const bool per_peer_;
  std::vector<std::vector<char>> arrived_;  // [rank][pass]: its message is there.
  std::vector<std::size_t> next_, posted_;  // By rank: the next pass; the next of the plan's entries.
  Queues sends_, receives_;
};

}  // namespace

std::vector<std::vector<std::vector<std::int32_t>>> receive_plan(const Schedule& schedule,
                                                                 std::int32_t receives_ahead) {
  return plan_receives(schedule, Messages(schedule), receives_ahead);
}

std::vector<std::size_t> dry_run(const Schedule& schedule, const MessageQueues& queues) {
  return DryRun(schedule, queues).run();
}

}  // namespace orrery
