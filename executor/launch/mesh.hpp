#pragma once
// A TCP connection between every two ranks, or those that asked for one, on which bytes flow as in a pipe:
// what one rank sends, the other receives in that order, in pieces of any size.

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "executor/launch/control.hpp"
#include "executor/launch/rendezvous.hpp"

namespace orrery::launch {

struct MeshOptions {
  std::chrono::milliseconds connect{60'000};  // Until all connections stand.
  // How long a call waits without a single byte moving. More than the watchdog's limit, which knows whose
  // fault it is.
  std::chrono::milliseconds stall{120'000};
  std::optional<std::vector<int>> peers;  // None: all. Two ranks are connected if either asks for the other.
};

// All calls THROW Error(kRuntime): naming the rank that has closed its connection or from (to) which no byte
// has moved for `stall`; with the run's message where the run was ended. REQUIRES: connected(rank).
class Mesh {
 public:
  Mesh(int rank, std::vector<Connection> connections, std::chrono::milliseconds stall);

  bool connected(int rank) const;
  int fd(int rank) const;  // To poll on many at once.

  void send(int rank, std::span<const std::byte> bytes);  // Returns when the kernel has them.
  void receive(int rank, std::span<std::byte> bytes);     // Returns when all have come.
  // Both at once, as a ring needs it: where two ranks send each other more than the kernel's buffers hold,
  // send and then receive would wait for ever.
  void exchange(int to, std::span<const std::byte> sent, int from, std::span<std::byte> received);

  // What goes without waiting; returns how many bytes, 0 included.
  std::size_t try_send(int rank, std::span<const std::byte> bytes);
  std::size_t try_receive(int rank, std::span<std::byte> bytes);

 private:
  int rank_;
  std::vector<Connection> connections_;  // By rank; invalid where there is none.
  std::chrono::milliseconds stall_;
};

// All ranks have to call it. THROWS Error(kRuntime) naming both ranks of a connection that doesn't come
// about.
Mesh connect_mesh(Rendezvous& rendezvous, const MeshOptions& options = {});

}  // namespace orrery::launch
