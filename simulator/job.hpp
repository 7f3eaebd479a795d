#pragma once
// A Program with every cost filled in and equivalent ranks folded into classes: the one value that both
// engines run, so that they can only differ in how they share and advance, never in what they were given.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/sim_time.hpp"
#include "model/program.hpp"
#include "model/timeline.hpp"

namespace orrery {

struct Cluster;
struct Profile;

// A flow uses `count` times its own rate on the link. In a folded job a link stands for all links of its
// class, and `count` is summed over the flows of the class that cross one of them.
struct LinkUse {
  std::int32_t link = 0;
  std::int32_t count = 1;
};

// The resource needs of one meeting of ranks (a collective, or a send with its receive). It waits `latency`,
// then moves `bytes` at no more than `rate_cap`, sharing its links max-min fairly with the others.
struct Transfer {
  SimTime latency;
  std::int64_t bytes = 0;
  std::int64_t rate_cap = 0;  // Bytes per second; with nobody else there. 0 only when bytes is 0.
  Range links;                // Into Job::link_uses; links that nobody could ever fill are left out.
};

struct Participant {
  std::int32_t rank_class = 0;
  std::int32_t instruction = 0;
};

// The transfer starts when every participant's stream has reached its instruction.
struct Rendezvous {
  std::int32_t transfer = 0;  // Into Job::transfers.
  Range participants;         // Into Job::participants; one entry per class, not per rank.
};

struct JobClass {
  RankClass ranks;
  std::vector<SimTime> work;  // By instruction: compute work at full speed; 0 for communication.
  std::vector<std::int32_t>
      rendezvous;  // By instruction; −1 for compute. A host copy is a rendezvous of one.
  // Into Job::core_pools: the cores that its ranks compute on; −1: each has compute of its own.
  std::int32_t core_pool = -1;
  std::int32_t pool_members = 1;  // So many of its ranks share one such pool.
};

// Something that is faster or slower from an instant on, until the next change of the same thing.
struct Change {
  enum class What : std::uint8_t { kCompute, kLink };  // Of Job::classes, of Job::link_capacity.
  SimTime at;                                          // From the beginning of the first step.
  What what = What::kCompute;
  std::int32_t index = 0;
  double factor = 1;  // Of the full speed or capacity, 0 … 1; 0: it stands still.
  bool operator==(const Change&) const = default;
};

// A part of one rank's machine that is slower for a while.
struct Fault {
  // kNic and kNvLink: all links of that kind that the rank's GPU uses, in both directions. Whoever else uses
  // them is slowed too. kNode: the GPUs of the rank's node with their NVLinks and network cards. kLeaf: the
  // leaf switch at which the rank's network card hangs, so every cable and trunk there; kUplink: its trunks
  // alone.
  enum class What : std::uint8_t { kGpu, kNic, kNvLink, kNode, kLeaf, kUplink };
  RankId rank;
  What what = What::kGpu;
  double factor = 1;  // Of its full rate, 0 … 1; 0: lost.
  SimTime from;
  std::optional<SimTime> until;  // None: for good.
  RankId peer = {};              // Of kNvLink: only the links to this rank's GPU; invalid: all of them.
  bool operator==(const Fault&) const = default;

  bool active(SimTime at) const { return from <= at && (!until || at < *until); }
};
std::string_view to_string(Fault::What what);  // "gpu", as scenario files say it.

// After so long in one collective, counted from the first rank that reached it, a job is ended. The default
// timeout of PyTorch's NCCL process groups (10 minutes since pytorch/pytorch#110947).
inline constexpr SimTime kWatchdog{600'000'000'000'000};

struct Job {
  const Program* program = nullptr;  // Outlives the job.
  std::vector<JobClass> classes;
  std::vector<Rendezvous> rendezvous;
  std::vector<Participant> participants;
  std::vector<Transfer> transfers;
  std::vector<LinkUse> link_uses;
  std::vector<std::int64_t> link_capacity;  // Bytes per second, by link.
  SimTime launch;  // Per instruction, on the host thread (or per node of a replayed graph).
  double compute_interference = 1.0;  // ≥ 1; see Profile.
  double transfer_interference = 1.0;
  // While a transfer is active on a device its compute stands still; see Profile.
  bool communication_on_core = false;
  // By pool: how many cores, in thousandths. A device uses one while it computes and, with
  // communication_on_core, while a transfer is active on it. Where more devices of a pool use one than there
  // are, each that computes goes on at cores / users of its speed. Transfers aren't slowed: what was measured
  // of them has that in it.
  std::vector<std::int32_t> core_pools;
  std::vector<Change> changes;  // By time.
  std::vector<Fault> faults;    // What the changes stand for, to be named when something hangs.
  SimTime watchdog = kWatchdog;
};

// How communication is laid over the machine where that isn't the usual way. Devices are numbered as Router
// numbers them.
struct Rerouting {
  // By device: the GPU of the same node through whose network card it reaches other nodes (NCCL's PXN);
  // itself: its own. Empty: every GPU its own.
  std::vector<std::int32_t> relay;
  // By device: its place among the GPUs of its node in rings. Empty: in the order of their numbers.
  std::vector<std::int32_t> ring_position;
  bool operator==(const Rerouting&) const = default;
};

struct JobOptions {
  bool fold = true;
  // Ranks whose compute is slower than their kind's: (rank, factor > 1).
  std::vector<std::pair<RankId, double>> stragglers;
  std::vector<Fault> faults = {};
  SimTime watchdog = kWatchdog;
  Rerouting rerouting = {};
};

// REQUIRES: verify(program) is empty. THROWS Error(kInfeasible) when the program needs more devices than the
// cluster has.
Job make_job(const Program& program, const Cluster& cluster, const Profile& profile,
             const JobOptions& options);

}  // namespace orrery
