#pragma once
// What a rank exchanges with others, as calls of a communication library: the same semantics as
// executor/runtime/bind_exchange.cpp, where ranks read each other's memory.

#include <cstdint>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::device {

struct LoweredExchange {
  std::int32_t group = -1;       // Into the rank's groups; −1: there is nobody to talk to.
  std::vector<Launch> launches;  // Before the calls.
  std::vector<Call> calls;       // At once.
  std::vector<Launch> landing;   // After them.
  std::int64_t scratch_bytes = 0;
};

// Of a send, receive or collective. Its group is found in `groups` or added. A collective's group is the
// rank's on the axis, for each stream one of its own; a message's is its two ranks, for each pair of streams
// and direction one of its own: a rank that sends and receives on two streams may not have one communicator
// do both, which would bring them into an order.
//
// `scratch`: device memory that the instruction may use while it runs, aligned to 256 bytes; null on a first
// pass, which tells how much that is (the launches then hold no addresses to use). `norm_squared`: the rank's
// sum of squares, of which the norm's collective makes that of all ranks.
//
// Only this rank's memory in the tables' World is looked at, so that of others needs no addresses.
// THROWS Error(kRuntime) naming rank and instruction where ranks' operands don't fit together.
LoweredExchange lower_exchange(host::Tables& tables, RankId rank, std::int32_t instruction,
                               std::vector<Group>& groups, std::byte* scratch, double* norm_squared);

}  // namespace orrery::device
