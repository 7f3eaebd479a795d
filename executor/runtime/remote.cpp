#include "executor/runtime/remote.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "executor/launch/status_page.hpp"
#include "executor/runtime/bind_parts.hpp"

namespace orrery::host {
namespace {

// Before the ranges and what they hold.
struct MessageHeader {
  std::int64_t bytes = 0;  // Of the message, this included.
  std::uint64_t reached = 0;
  std::int32_t instruction = 0;  // The sender's.
  std::int32_t ranges = 0;
};

constexpr int kWaitMs = 1;
constexpr std::size_t kPiece = 1 << 16;

template <class T>
void append(std::vector<std::byte>& to, const T* from, std::size_t count) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + count * sizeof(T));
}

}  // namespace

Remote::Remote(Tables& tables, const BoundRank& rank, launch::Mesh& mesh, std::vector<RankId> ranks)
    : world_(tables.world()), self_(rank.rank), mesh_(mesh) {
  for (const RankId other : ranks) {
    plans_[other.value];
    channels_[other.value];
  }
  for (std::size_t i = 0; i < rank.instructions.size(); ++i) plan(tables, rank, static_cast<std::int32_t>(i));
}

void Remote::plan(Tables& tables, const BoundRank& rank, std::int32_t instruction) {
  const Exchange& exchange = rank.instructions[static_cast<std::size_t>(instruction)].exchange;
  if (exchange.listeners.empty()) return;
  const Work& work = tables.role(self_).instructions[static_cast<std::size_t>(instruction)].work;
  std::vector<std::pair<RankId, std::int32_t>> sides;
  if (std::holds_alternative<Collective>(work)) {
    sides = tables.sides(self_, instruction);
  } else {
    sides = {tables.other_side(self_, instruction)};
  }
  for (const auto& [other, theirs] : sides) {
    if (has(other)) note(bind_exchange(tables, other, theirs), other, instruction);
  }
}

void Remote::note(const Exchange& theirs, RankId other, std::int32_t instruction) {
  const std::byte* const begin = world_.memory(self_);
  const std::byte* const end = begin + world_.layout(self_).bytes;
  for (std::size_t phase = 0; phase < theirs.phases.size(); ++phase) {
    std::vector<Range> ranges;
    const auto add = [&](const void* data, std::int64_t bytes) {
      const auto* const from = static_cast<const std::byte*>(data);
      if (from >= begin && from < end && bytes > 0) ranges.push_back({from - begin, bytes});
    };
    for (const Transfer& transfer : theirs.phases[phase].work) {
      if (const auto* const copy = std::get_if<CopyBytes>(&transfer)) {
        add(copy->from, copy->bytes);
      } else if (const auto* const sum = std::get_if<Reduce>(&transfer)) {
        for (const TensorView& view : sum->from) add(view.data, view.elements * size_bytes(view.dtype));
      } else {
        add(&world_.header(self_).norm, sizeof(ExactSum));
      }
    }
    plans_[other.value][{instruction, phase}] = std::move(ranges);
  }
}

void Remote::tell(RankId to, std::int32_t instruction, std::size_t phase, std::uint64_t reached) {
  const Plan& plan = plans_.at(to.value);
  const auto found = plan.find({instruction, phase});
  const std::vector<Range> ranges = found == plan.end() ? std::vector<Range>() : found->second;
  std::vector<std::byte>& out = channels_.at(to.value).out;
  MessageHeader header;
  header.bytes = static_cast<std::int64_t>(sizeof header + ranges.size() * sizeof(Range));
  for (const Range& range : ranges) header.bytes += range.bytes;
  header.reached = reached;
  header.instruction = instruction;
  header.ranges = static_cast<std::int32_t>(ranges.size());
  append(out, &header, 1);
  append(out, ranges.data(), ranges.size());
  for (const Range& range : ranges) {
    append(out, world_.memory(self_) + range.offset, static_cast<std::size_t>(range.bytes));
  }
}

bool Remote::pump() {
  bool came = false;
  for (auto& [rank, channel] : channels_) {
    std::size_t sent = 0;
    while (sent < channel.out.size()) {
      const std::size_t now = mesh_.try_send(rank, std::span(channel.out).subspan(sent));
      if (now == 0) break;
      sent += now;
    }
    channel.out.erase(channel.out.begin(), channel.out.begin() + static_cast<std::ptrdiff_t>(sent));
    std::array<std::byte, kPiece> piece;
    for (std::size_t got = 1; got > 0;) {
      got = mesh_.try_receive(rank, piece);
      channel.in.insert(channel.in.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));
    }
    while (take(RankId(rank), channel)) came = true;
  }
  return came;
}

// One whole message: into the mirror first, then the counter.
bool Remote::take(RankId from, Channel& channel) {
  MessageHeader header;
  if (channel.in.size() < sizeof header) return false;
  std::memcpy(&header, channel.in.data(), sizeof header);
  if (std::ssize(channel.in) < header.bytes) return false;
  std::vector<Range> ranges(static_cast<std::size_t>(header.ranges));
  const std::byte* data = channel.in.data() + sizeof header;
  if (!ranges.empty()) std::memcpy(ranges.data(), data, ranges.size() * sizeof(Range));
  data += ranges.size() * sizeof(Range);
  for (const Range& range : ranges) {
    assert(range.offset >= 0 && range.offset + range.bytes <= world_.layout(from).bytes);
    std::memcpy(world_.memory(from) + range.offset, data, static_cast<std::size_t>(range.bytes));
    data += range.bytes;
  }
  world_.progress(from, header.instruction).store(header.reached, std::memory_order_release);
  channel.in.erase(channel.in.begin(), channel.in.begin() + header.bytes);
  return true;
}

void Remote::flush() {
  const auto all_sent = [this] {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const auto& channel) { return channel.second.out.empty(); });
  };
  for (pump(); !all_sent(); pump()) {
    launch::keep_waiting();
    wait();
  }
}

void Remote::wait() const {
  std::vector<pollfd> polled;
  for (const auto& [rank, channel] : channels_) {
    const short events = static_cast<short>(channel.out.empty() ? POLLIN : POLLIN | POLLOUT);
    polled.push_back({mesh_.fd(rank), events, 0});
  }
  poll(polled.data(), polled.size(), kWaitMs);
}

}  // namespace orrery::host
