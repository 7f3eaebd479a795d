#pragma once
// What a run does when parts fail, get slow and come back: with the mapping that it began with, with rings
// and network cards laid anew, or with ranks grouped anew.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"
#include "simulator/engine.hpp"
#include "simulator/hang.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// kStatic: nothing changes. kReRing: the same ranks do the same, over other ways (planner/route_around.hpp).
// kReGroup: ranks of lost devices leave (planner/regroup.hpp).
enum class RemapPolicy : std::uint8_t { kStatic, kReRing, kReGroup };
std::string_view to_string(RemapPolicy policy);  // "re-ring"
std::vector<RemapPolicy> all_remap_policies();

struct RemapCosts {
  // Until a lost GPU, NVLink or node is noticed: torchft's lighthouse takes a replica for dead after 5 s
  // without a heartbeat (its option heartbeat_timeout_ms).
  double detect_loss_s = 5;
  // Until a lost network link is: NCCL gives up after 4.096 us · 2^NCCL_IB_TIMEOUT · NCCL_IB_RETRY_CNT, by
  // default 2^20 and 7 (net_ib.cc), with error 12.
  double detect_network_s = 30;
  // What is slow is noticed by the times of so many steps. Our assumption.
  std::int32_t detect_slow_steps = 5;
  // One communicator: a fixed part, and one for each rank of it, as the bootstrap is a ring. Two H200 took
  // 0.67 s, 0.56 of it to load kernels, which a process does once; 2.5 minutes are reported for "certain K"
  // GPUs (NVIDIA/nccl#1156), taken for 4096 here.
  double init_base_s = 0.04;
  double init_per_rank_s = 0.0366;
  double load_kernels_s = 0.56;  // Of processes that are new.
  double lower_s = 0.05;         // A new Program: measured for 1.3B on 32 GPUs on one core.
};

struct RemapOptions {
  std::int64_t steps = 100;  // Of the run.
  bool keep_batch = true;    // Re-group: else replicas keep their micro-batches and the batch shrinks.
  // Where no rank that is left has the lost state, the run goes back to the last checkpoint.
  std::int64_t checkpoint_every = 100;  // Steps.
  RemapCosts costs;
  JobOptions job;  // Faults, watchdog, stragglers; folding.
  // Runs a Job; as run_fast.
  std::function<Timeline(const Job&, EngineCounters*)> engine;
};

// A mapping gives way to another one.
struct RemapPause {
  SimTime at;          // Of the change that led to it.
  std::string reason;  // "node of rank 8 lost"
  double detect_s = 0, rebuild_s = 0, lower_s = 0, move_s = 0;
  // Work that is done again: of the step under way, and of the steps since the checkpoint.
  double lost_s = 0;
  std::int64_t lost_steps = 0;
  double seconds() const { return detect_s + rebuild_s + lower_s + move_s; }  // Without the work lost.
};

// Steps under one mapping.
struct RemapStretch {
  SimTime from, until;
  std::int64_t steps = 0;  // Ended in it.
  std::int32_t gpus = 0, replicas = 0, relayed = 0;
  std::int64_t global_batch = 0;
};

struct RemapRun {
  RemapPolicy policy = RemapPolicy::kStatic;
  // Steady step times: of the undisturbed run; with the first faults that are felt under the first mapping;
  // with them under the policy's; at the end of the run, if something came back. None: it hangs; nothing came
  // back.
  double before_s = 0;
  std::optional<double> during_s, after_s, returned_s;
  std::vector<RemapStretch> stretches;
  std::vector<RemapPause> pauses;
  std::optional<Hang> hang;  // Dates from the beginning of the run.
  std::string refused;       // Why the policy left a loss as it was; empty: it didn't.
  std::int64_t steps = 0;    // Done, at most those asked for.
  std::int64_t sequences = 0;
  double total_s = 0;  // Until the last of them, or until the watchdog ended the job.

  double pause_s() const;
  double lost_s() const;
};

// Ranks are devices. REQUIRES: check(plan, graph) is empty.
RemapRun run_policy(RemapPolicy policy, const Graph& graph, const Plan& plan, const Cluster& cluster,
                    const Profile& profile, const RemapOptions& options);

// Building all communicators of a plan, one axis after another.
double rebuild_seconds(const Program& program, const RemapCosts& costs);

}  // namespace orrery
