#pragma once
// A rank and those it exchanges messages with, directly or through others: who meets whom in which
// instruction.

#include <cstdint>
#include <utility>
#include <vector>

#include "model/program.hpp"

namespace orrery {

// An instruction of a member.
struct PeerInstruction {
  std::int32_t member = -1, instruction = -1;
};

struct Peers {
  std::vector<const Role*> members;  // The rank itself is the first.
  // By member and instruction. For a receive: the send that it meets; member −1: none that is looked at.
  std::vector<std::vector<PeerInstruction>> send_of;
  // For a collective that several members take part in: index into `meetings`; else −1.
  std::vector<std::vector<std::int32_t>> meeting_of;
  std::vector<std::vector<PeerInstruction>> meetings;
};

// A rank alone.
Peers peers_of(const Role& role);
// One for each way in which ranks of the role are joined to others: ranks with like neighbours count once.
// Members are added, nearest first, while they have fewer than `most_instructions` together.
std::vector<Peers> peers_of(const Program& program, RoleId role, std::size_t most_instructions = 4'000'000);

}  // namespace orrery
