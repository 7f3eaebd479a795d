#pragma once
// What is known to have ended when an instruction begins, whatever the timing: the order that streams,
// dependencies and messages force, as opposed to the order of issue. Two buffers may share memory only by it.
//
// Known is what follows from these facts alone, all of which hold for the simulator and for NCCL:
//   - an instruction starts after its predecessor on its stream, in this step or the one before, and after
//   all that
//     it names in `after`, have ended;
//   - a receive writes only after the matching send has started, and ends after that send has read its last
//   byte (a
//     send may end before its receive starts: NCCL buffers small messages);
//   - a collective that needs something of everybody (all but broadcast) ends after all members have started
//   it.
// The facts are chained by vector clocks (Fidge 1988, Mattern 1989), one entry for each stream of the role.

#include <cstdint>
#include <span>
#include <vector>

#include "model/program.hpp"

namespace orrery {

class ExecutionOrder {
 public:
  // From the role alone. REQUIRES: verify(program) is empty of faults in it, also below.
  explicit ExecutionOrder(const Role& role);
  // Also from what other ranks do: a rank that hears from its neighbour that it has worked on a message knows
  // the message sent. Where the role's ranks have unlike neighbours, only what all of them know. Looks at the
  // ranks that are joined to it by sends and receives; a Program that blocks itself yields what the role
  // alone does.
  ExecutionOrder(const Program& program, RoleId role);

  std::size_t stream_count() const { return length_.size(); }
  // By stream: how many of its instructions, counted from the beginning of the step before, have surely ended
  // when this one begins to touch its operands.
  std::span<const std::int32_t> known(std::size_t instruction) const {
    return std::span(known_).subspan(instruction * stream_count(), stream_count());
  }
  // Counted likewise: has ended is count(i) <= known(j)[stream of i]. That of the step before is `length`
  // less.
  std::int32_t count(std::size_t instruction) const { return count_[instruction]; }
  std::int32_t length(std::size_t stream) const { return length_[stream]; }  // Of the stream, in one step.

 private:
  void count_streams(const Role& role);
  std::vector<std::int32_t> length_, count_, known_;
};

}  // namespace orrery
