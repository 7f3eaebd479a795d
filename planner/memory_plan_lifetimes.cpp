#include "planner/memory_plan_lifetimes.hpp"

#include <algorithm>
#include <limits>

#include "planner/memory.hpp"
#include "planner/memory_plan_space.hpp"

namespace orrery {
namespace {

// What the begin of a buffer's memory knows and what its end is, by stream of the role: counts as in
// ExecutionOrder.
struct Ends {
  std::size_t streams = 0;
  std::vector<std::int32_t> known, last;  // By buffer, then stream; last 0: not touched there.
};

Ends ends_of(const Role& role, const ExecutionOrder& order) {
  const std::vector<std::size_t> owners = memory_owners(role);
  Ends ends{order.stream_count(), {}, {}};
  ends.known.assign(role.buffers.size() * ends.streams, std::numeric_limits<std::int32_t>::max());
  ends.last.assign(role.buffers.size() * ends.streams, 0);
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Instruction& instruction = role.instructions[i];
    const auto known = order.known(i);
    for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
      const std::size_t buffer = role.operands[static_cast<std::size_t>(o)].buffer.index();
      const std::size_t at = owners[buffer] * ends.streams;
      // Any toucher may be the first to begin: later ones of a stream know no less than earlier ones.
      for (std::size_t s = 0; s < ends.streams; ++s) {
        ends.known[at + s] = std::min(ends.known[at + s], known[s]);
      }
      std::int32_t& last = ends.last[at + instruction.stream.index()];
      last = std::max(last, order.count(i));
    }
  }
  return ends;
}

class Catchup {
 public:
  Catchup(const ExecutionOrder& order, const Ends& ends, const std::vector<Lifetime>& lives,
          std::vector<std::size_t> begun)
      : order_(order),
        ends_(ends),
        lives_(lives),
        begun_(std::move(begun)),
        least_(begun_.size() * ends.streams) {
    for (std::size_t q = begun_.size(); q-- > 0;) {
      for (std::size_t s = 0; s < ends.streams; ++s) {
        std::int32_t& least = least_[q * ends.streams + s];
        least = ends.known[begun_[q] * ends.streams + s];
        if (q + 1 < begun_.size()) least = std::min(least, least_[(q + 1) * ends.streams + s]);
      }
    }
  }

  // The first place in the issue order from which on whatever begins knows the buffer's end (of the step
  // before).
  std::int32_t end_of(std::size_t buffer, bool previous_step) const {
    std::size_t low = 0, high = begun_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (knows(&least_[middle * ends_.streams], buffer, previous_step)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low == 0 ? 0 : lives_[begun_[low - 1]].first + 1;
  }

  bool knows(const std::int32_t* known, std::size_t buffer, bool previous_step) const {
    for (std::size_t s = 0; s < ends_.streams; ++s) {
      const std::int32_t last = ends_.last[buffer * ends_.streams + s];
      if (last > 0 && known[s] < last - (previous_step ? order_.length(s) : 0)) return false;
    }
    return true;
  }

 private:
  const ExecutionOrder& order_;
  const Ends& ends_;
  const std::vector<Lifetime>& lives_;
  std::vector<std::size_t> begun_;   // Transient buffers in the order in which they are begun.
  std::vector<std::int32_t> least_;  // By place in `begun_` and stream: what it and all later ones know.
};

// The transient buffers that are touched, in the order in which they are begun.
std::vector<std::size_t> begun_buffers(const Role& role, const std::vector<Lifetime>& lives) {
  std::vector<std::size_t> begun;
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (!role.buffers[b].persistent && lives[b].first >= 0) begun.push_back(b);
  }
  std::stable_sort(begun.begin(), begun.end(),
                   [&](std::size_t a, std::size_t b) { return lives[a].first < lives[b].first; });
  return begun;
}

}  // namespace

std::vector<SafeLifetime> safe_lifetimes(const Role& role, const ExecutionOrder& order) {
  const std::vector<Lifetime> lives = lifetimes(role);
  const Ends ends = ends_of(role, order);
  const std::vector<std::size_t> begun = begun_buffers(role, lives);
  const Catchup catchup(order, ends, lives, begun);
  std::vector<SafeLifetime> safe(role.buffers.size());
  for (const std::size_t b : begun) {
    safe[b].first = lives[b].first;
    safe[b].end = std::max(catchup.end_of(b, false), lives[b].last + 1);
    safe[b].wrap_end = catchup.end_of(b, true);
    safe[b].unordered = !catchup.knows(&ends.known[b * ends.streams], b, true);
  }
  return safe;
}

std::vector<SafeLifetime> issue_lifetimes(const Role& role) {
  const std::vector<Lifetime> lives = lifetimes(role);
  std::vector<SafeLifetime> issued(role.buffers.size());
  for (const std::size_t b : begun_buffers(role, lives)) {
    issued[b].first = lives[b].first;
    issued[b].end = lives[b].last + 1;
  }
  return issued;
}

std::int64_t busy_bytes(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                        std::int64_t alignment_bytes) {
  std::vector<std::int64_t> change(role.instructions.size() + 1, 0);
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    const std::int64_t bytes = aligned_bytes(role.buffers[b].bytes, alignment_bytes);
    for (const BusyInterval& interval : busy_intervals(lifetimes[b])) {
      change[static_cast<std::size_t>(interval.begin)] += bytes;
      change[static_cast<std::size_t>(interval.end)] -= bytes;
    }
  }
  std::int64_t busy = 0, most = 0;
  for (const std::int64_t bytes : change) {
    busy += bytes;
    most = std::max(most, busy);
  }
  return most;
}

}  // namespace orrery
