#pragma once
// A Job laid out for running: each stream's instructions one after another, dependencies that the stream's
// order implies already dropped, transfers with their times, and the links that can never fill up pruned.

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/job.hpp"
#include "simulator/max_min.hpp"

namespace orrery::fast {

struct Node {
  std::int32_t instruction = 0;  // Of the role.
  // Into RoleLayout::dependencies: [same_step, previous_step) in this step, [previous_step, end) one earlier.
  std::int32_t same_step = 0;
  std::int32_t previous_step = 0;
  std::int32_t end = 0;
};

struct RoleLayout {
  std::vector<Node> nodes;                 // By stream, then in issue order.
  std::vector<Range> streams;              // Into nodes.
  std::vector<std::int32_t> dependencies;  // Instructions of the role, on other streams.
  std::int32_t compute_streams = 0;
};

// One stream of one class. Streams and instructions of all classes are numbered through.
struct StreamLayout {
  std::int32_t rank_class = 0;
  std::int32_t base = 0;  // Number of the class's first instruction.
  std::int32_t priority = 0;
  std::int64_t step_launch = 0;  // Picoseconds in which the host launches one step.
  const Node* begin = nullptr;
  const Node* end = nullptr;
  const std::int32_t* dependencies = nullptr;
  const SimTime* work = nullptr;             // By instruction of the role, as `rendezvous` is.
  const std::int32_t* rendezvous = nullptr;  // −1: compute.
};

// A participant of a rendezvous, in numbers.
struct Seat {
  std::int32_t stream = 0;
  std::int32_t instruction = 0;
};

struct TransferLayout {
  std::int64_t latency = 0;   // Picoseconds,
  std::int64_t duration = 0;  // as is moving the bytes at the full rate cap.
  std::int64_t bytes = 0;
  Rate cap = 0;
  Rate slowed_cap = 0;  // While a participant computes.
  Range uses;           // Into Layout::uses: links that could fill up.
};

class Layout {
 public:
  explicit Layout(const Job& job);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const Job& job;
  std::vector<RoleLayout> roles;
  std::vector<StreamLayout> streams;
  std::vector<std::int32_t> first_stream;       // By class, and the total.
  std::vector<std::int32_t> first_instruction;  // By class, and the total.
  std::vector<Seat> seats;                      // Parallel to Job::participants.
  std::vector<TransferLayout> transfers;        // Parallel to Job::transfers.
  std::vector<LinkUse> uses;

  std::int32_t instruction_count() const { return first_instruction.back(); }
  std::span<const LinkUse> uses_of(const TransferLayout& transfer) const {
    return std::span(uses).subspan(static_cast<std::size_t>(transfer.uses.begin),
                                   static_cast<std::size_t>(transfer.uses.size()));
  }
  std::span<const Seat> seats_of(const Rendezvous& meeting) const {
    return std::span(seats).subspan(static_cast<std::size_t>(meeting.participants.begin),
                                    static_cast<std::size_t>(meeting.participants.size()));
  }

 private:
  void lay_out_classes();
  void lay_out_transfers(const std::vector<char>& can_fill);
};

// By link: whether its users could ask for more than it has. A stream is in one transfer at a time, so the
// largest demand of each (class, stream), summed, bounds what a link sees at once.
std::vector<char> links_that_can_fill(const Layout& layout);

}  // namespace orrery::fast
