#include "planner/remap_mapping.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "planner/regroup.hpp"
#include "planner/route_around.hpp"
#include "simulator/link_paths.hpp"

namespace orrery::remapping {

std::optional<SimTime> Course::end_of(std::int64_t number) const {
  const std::int64_t simulated = std::ssize(ends);
  if (number < simulated) return ends[static_cast<std::size_t>(number)];
  if (hang) return std::nullopt;
  return ends.back() + (number - simulated + 1) * period;
}

std::int64_t Course::ended_by(SimTime date) const {
  const std::int64_t simulated = std::ranges::upper_bound(ends, date) - ends.begin();
  if (hang || simulated < std::ssize(ends) || period.picoseconds == 0) return simulated;
  return simulated + (date - ends.back()).picoseconds / period.picoseconds;
}

bool ends_processes(const Fault& fault) {
  return fault.factor == 0 && (fault.what == Fault::What::kGpu || fault.what == Fault::What::kNode);
}

Mapper::Mapper(const Graph& graph, const Plan& plan, const Cluster& cluster, const Profile& profile,
               const RemapOptions& options)
    : graph_(graph),
      cluster_(cluster),
      profile_(profile),
      options_(options),
      router_(cluster),
      original_{plan, options.job.rerouting} {}

FaultSet Mapper::active(SimTime at) const {
  FaultSet set;
  for (const Fault& fault : faults()) set.push_back(fault.active(at));
  return set;
}

std::vector<Fault> Mapper::chosen(const FaultSet& active) const {
  std::vector<Fault> chosen;
  for (std::size_t f = 0; f < active.size(); ++f)
    if (active[f]) chosen.push_back(faults()[f]);
  return chosen;
}

// Whose GPU, NVLinks or way to other nodes the faults touch.
std::vector<RankId> Mapper::ranks_hit(std::span<const Fault> hits) const {
  const std::int32_t gpus = cluster_.node.gpus;
  std::set<RankId> ranks;
  for (const Fault& fault : hits) {
    ranks.insert(fault.rank);
    for (std::int32_t device = 0; device < cluster_.gpu_count(); ++device) {
      bool hit = false;
      switch (fault.what) {
        case Fault::What::kGpu:
        case Fault::What::kNvLink: break;
        case Fault::What::kNode: hit = device / gpus == fault.rank.value / gpus; break;
        case Fault::What::kNic: {
          const auto own = folding::nic_links_of(router_, device);
          const auto lost = folding::nic_links_of(router_, fault.rank.value);
          hit = !own.empty() && !lost.empty() && own.front().link == lost.front().link;
          break;
        }
        case Fault::What::kLeaf:
        case Fault::What::kUplink:
          hit = cluster_.nodes > 1 && router_.leaf(device) == router_.leaf(fault.rank.value);
          break;
      }
      if (hit) ranks.emplace(device);
    }
  }
  return {ranks.begin(), ranks.end()};
}

std::optional<Mapping> Mapper::regrouped(std::span<const Fault> leaving, std::string& why) {
  try {
    Regrouped found =
        regroup(original_.plan, graph_, ranks_hit(leaving), cluster_.node.gpus, options_.keep_batch);
    const GpuType& gpu = cluster_.node.gpu;
    if (memory_fault(program(original_.plan), original_.plan, gpu).empty()) {
      why = memory_fault(program(found.plan), found.plan, gpu);
      if (!why.empty()) return std::nullopt;
    }
    return Mapping{std::move(found.plan), original_.rerouting, found.covered};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInfeasible) throw;
    why = error.what();
    return std::nullopt;
  }
}

Mapping Mapper::wanted(RemapPolicy policy, const FaultSet& active, std::string& why) {
  const std::vector<Fault> faults = chosen(active);
  if (policy == RemapPolicy::kStatic || faults.empty()) return original_;
  if (policy == RemapPolicy::kReRing) {
    Mapping around = original_;
    around.rerouting = route_around(router_, faults);
    if (!step_seconds(around, active)) why = "re-ring: no way leads around what is lost";
    return around;
  }
  // Lost devices leave; of what is slow, all leave or none, whichever is quicker.
  std::vector<Fault> lost;
  for (const Fault& fault : faults)
    if (fault.factor == 0) lost.push_back(fault);
  std::optional<Mapping> best = original_;
  if (!lost.empty()) best = regrouped(lost, why);
  if (lost.size() == faults.size()) return best.value_or(original_);
  std::string ignored;
  const std::optional<Mapping> without = regrouped(faults, ignored);
  if (!without) return best.value_or(original_);
  if (!best) return *without;
  const auto per_sequence = [&](const Mapping& mapping) {
    const std::optional<double> step_s = step_seconds(mapping, active);
    return step_s ? *step_s / static_cast<double>(mapping.plan.global_batch())
                  : std::numeric_limits<double>::infinity();
  };
  return per_sequence(*without) < per_sequence(*best) ? *without : *best;
}

const Program& Mapper::program(const Plan& plan) {
  for (const auto& [known, lowered] : programs_)
    if (known == plan) return lowered;
  return programs_.emplace_back(plan, lower(graph_, plan)).second;
}

Course Mapper::run(const Mapping& mapping, std::vector<Fault> faults) {
  JobOptions job_options = options_.job;
  job_options.faults = std::move(faults);
  job_options.rerouting = mapping.rerouting;
  const Job job = make_job(program(mapping.plan), cluster_, profile_, job_options);
  Course course;
  try {
    EngineCounters counters;
    course.period = options_.engine(job, &counters).step_time;
    course.ends = counters.step_ends;
  } catch (const HangError& error) {
    course.hang = error.hang();
    course.ends = course.hang->step_ends;
  }
  return course;
}

std::optional<double> Mapper::step_seconds(const Mapping& mapping, const FaultSet& active) {
  for (const Known& known : known_)
    if (known.active == active && known.mapping == mapping) return known.step_s;
  std::vector<Fault> constant = chosen(active);
  for (Fault& fault : constant) {
    fault.from = {};
    fault.until.reset();
  }
  const Course course = run(mapping, std::move(constant));
  const std::optional<double> step_s = course.hang ? std::nullopt : std::optional(course.period.seconds());
  known_.push_back({mapping, active, step_s});
  return step_s;
}

// What begins or ends after the last step isn't simulated; when that is shows only when it has been.
Course Mapper::course(const Mapping& mapping, SimTime from, std::int64_t steps) {
  SimTime horizon{};
  for (;;) {
    std::vector<Fault> shifted;
    SimTime next = {std::numeric_limits<std::int64_t>::max()};  // The first change that is left out.
    for (Fault fault : faults()) {
      if (fault.until && *fault.until <= from) continue;
      fault.from = std::max(fault.from - from, SimTime{});
      if (ends_processes(fault)) fault.until.reset();
      if (fault.until) fault.until = *fault.until - from;
      if (fault.from > horizon) {
        next = std::min(next, fault.from);
        continue;
      }
      if (fault.until && *fault.until > horizon) {
        next = std::min(next, *fault.until);
        fault.until.reset();
      }
      shifted.push_back(fault);
    }
    Course course = run(mapping, std::move(shifted));
    const std::optional<SimTime> end = course.end_of(steps - 1);
    const SimTime last = end ? *end : course.hang->until;
    if (next > last) return course;
    horizon = last;
  }
}

namespace {

std::int64_t persistent_bytes(const Program& program, MemoryCategory category) {
  std::int64_t most = 0;
  for (const Role& role : program.roles) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : role.buffers)
      if (buffer.persistent && buffer.category == category) bytes += buffer.bytes;
    most = std::max(most, bytes);
  }
  return most;
}

// Blocks by rank; who has other ones than before needs other state.
std::map<RankId, std::set<std::pair<std::int32_t, std::int32_t>>> blocks_by_rank(const Plan& plan) {
  std::map<RankId, std::set<std::pair<std::int32_t, std::int32_t>>> blocks;
  for (const PipelineReplica& replica : plan.replicas)
    for (const Stage& stage : replica.stages)
      for (const RankId rank : stage.ranks) blocks[rank].emplace(stage.first_block, stage.last_block);
  return blocks;
}

bool has_newcomers(const Plan& from, const Plan& to) {
  const auto before = blocks_by_rank(from);
  return std::ranges::any_of(blocks_by_rank(to), [&](const auto& entry) {
    const auto known = before.find(entry.first);
    return known == before.end() || known->second != entry.second;
  });
}

}  // namespace

// State comes from the ranks that have it, or from storage that is no slower, at the rate of a GPU's share of
// its node's network cards: newcomers and everybody after a restore get parameters and optimiser state;
// where ZeRO divides it among fewer or more, the rest gets its new shard of optimiser state.
RemapPause Mapper::pause(const Mapping& from, const Mapping& to, bool restore) {
  const RemapCosts& costs = options_.costs;
  RemapPause pause;
  const Program& next = program(to.plan);
  pause.rebuild_s = rebuild_seconds(next, costs);
  if (from.plan == to.plan) return pause;
  pause.lower_s = costs.lower_s;
  const bool newcomers = has_newcomers(from.plan, to.plan);
  if (newcomers) pause.rebuild_s += costs.load_kernels_s;
  std::int64_t bytes = 0;
  if (newcomers || restore) bytes += persistent_bytes(next, MemoryCategory::kParameters);
  if (newcomers || restore || to.plan.zero_stage > 0)
    bytes += persistent_bytes(next, MemoryCategory::kOptimizer);
  const NodeType& node = cluster_.node;
  const double rate = cluster_.nodes > 1 ? node.nic_bytes_per_s * std::min(node.nics, node.gpus) / node.gpus
                                         : router_.path(0, 1).bytes_per_s();
  pause.move_s = static_cast<double>(bytes) / rate;
  return pause;
}

}  // namespace orrery::remapping
