#pragma once
// Mappings of a plan, what each takes for a step, and which of them a policy wants under given faults.

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "planner/remap.hpp"

namespace orrery::remapping {

struct Mapping {
  Plan plan;
  Rerouting rerouting;
  bool covered = true;  // Nothing that it needs was lost with ranks that left.
  bool operator==(const Mapping& other) const { return plan == other.plan && rerouting == other.rerouting; }
};

// Ends of steps, from when the mapping was taken up.
struct Course {
  std::vector<SimTime> ends;  // Of those that were simulated.
  SimTime period;             // Of those after them.
  std::optional<Hang> hang;   // Then no step ends after `ends`.

  // When step `number` ends, from 0; nothing: never.
  std::optional<SimTime> end_of(std::int64_t number) const;
  std::int64_t ended_by(SimTime date) const;
};

// Whether the fault ends processes.
bool ends_processes(const Fault& fault);

using FaultSet = std::vector<bool>;  // By fault of the options.

class Mapper {
 public:
  Mapper(const Graph& graph, const Plan& plan, const Cluster& cluster, const Profile& profile,
         const RemapOptions& options);

  const std::vector<Fault>& faults() const { return options_.job.faults; }
  FaultSet active(SimTime at) const;
  const Mapping& original() const { return original_; }

  // What the policy wants; the mapping of the undisturbed plan where it has no better. `why` says why it has
  // none for a loss.
  Mapping wanted(RemapPolicy policy, const FaultSet& active, std::string& why);
  // The steady step time as long as the faults are so; nothing: it hangs.
  std::optional<double> step_seconds(const Mapping& mapping, const FaultSet& active);
  // A run of `steps` that takes up the mapping at a date. Who is lost meanwhile doesn't go on when the device
  // is back: its processes are gone.
  Course course(const Mapping& mapping, SimTime from, std::int64_t steps);
  // What it costs to leave one mapping for another. Detection and lost work aren't in it.
  RemapPause pause(const Mapping& from, const Mapping& to, bool restore);

 private:
  const Program& program(const Plan& plan);
  Course run(const Mapping& mapping, std::vector<Fault> faults);
  std::vector<Fault> chosen(const FaultSet& active) const;
  std::vector<RankId> ranks_hit(std::span<const Fault> faults) const;
  std::optional<Mapping> regrouped(std::span<const Fault> leaving, std::string& why);

  const Graph& graph_;
  const Cluster& cluster_;
  const Profile& profile_;
  const RemapOptions& options_;
  Router router_;
  Mapping original_;
  std::deque<std::pair<Plan, Program>> programs_;
  struct Known {
    Mapping mapping;
    FaultSet active;
    std::optional<double> step_s;
  };
  std::deque<Known> known_;
};

}  // namespace orrery::remapping
