#pragma once
// How ranks find each other: rank 0 listens, the others come to it, and then all can exchange small texts.
// Every wait has a deadline, and whoever is missing at its end is named on all ranks that are there.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "executor/launch/control.hpp"
#include "executor/launch/membership.hpp"

namespace orrery::launch {

struct RendezvousOptions {
  std::chrono::milliseconds arrival{60'000};    // Until all ranks have come.
  std::chrono::milliseconds exchange{120'000};  // Until all ranks have given what one exchange wants.
};

class Rendezvous {
 public:
  // Returns when all ranks are there. Strangers (no magic number, another version, job or world size, a rank
  // that is there already) are refused and told why; who was refused stands in the message about who is
  // missing. THROWS Error(kRuntime): "rank 3 hasn't come within 30 s; ranks 0-2 are here", on every rank that
  // is there; on the others that rank 0 didn't answer, or why it refused. `listener`: one that rank 0 has
  // already, as ranks forked from one process do (supervisor.hpp).
  explicit Rendezvous(const Membership& membership, const RendezvousOptions& options = {},
                      Listener listener = {});

  int rank() const { return membership_.rank; }
  int world_size() const { return membership_.world_size; }
  const Membership& membership() const { return membership_; }

  // Every rank gives a text (any bytes, up to 64 MiB) and gets those of all, by rank. All ranks have to call
  // it, as often. THROWS Error(kRuntime) naming the ranks that haven't given theirs in time or have gone, on
  // all ranks; the others wait twice as long for rank 0 as it waits for them, so that it is the one who says.
  // The run's message where a watchdog or supervisor has ended the run.
  std::vector<std::string> all_gather(std::string_view own);
  void barrier() { all_gather(""); }

  // This rank's address as others can reach it: the one from which it talks to rank 0. Rank 0's own is empty,
  // and so is that of ranks on its host that reach it by loopback: there, the address at which rank 0 was
  // reached is right.
  std::string own_address() const;
  std::string coordinator_address() const;  // Rank 0's as this rank reaches it; empty on rank 0.

  // A second connection to rank 0 (on rank 0: one to each rank, by rank), for the watchdog. Only once.
  std::vector<Connection> take_watch_connections() { return std::move(watch_); }

 private:
  void welcome_all(Listener listener);
  void come();
  Connection introduce(std::int64_t purpose, Deadline deadline, std::chrono::milliseconds& left);
  std::vector<std::string> gather_as_first(std::string_view own);
  std::vector<std::string> gather_as_other(std::string_view own);
  void answer_others(const std::string& answer, Deadline deadline);
  [[noreturn]] void fail_everywhere(const std::string& why);

  Membership membership_;
  RendezvousOptions options_;
  std::vector<Connection> control_;  // On rank 0 one for each rank, by rank; on others only [0].
  std::vector<Connection> watch_;    // Likewise.
  std::int64_t exchanges_ = 0;
};

}  // namespace orrery::launch
