#include "planner/remap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "planner/remap_mapping.hpp"

namespace orrery {

using remapping::Course;
using remapping::FaultSet;
using remapping::Mapper;
using remapping::Mapping;

std::string_view to_string(RemapPolicy policy) {
  switch (policy) {
    case RemapPolicy::kStatic: return "static";
    case RemapPolicy::kReRing: return "re-ring";
    case RemapPolicy::kReGroup: return "re-group";
  }
  return "";
}

std::vector<RemapPolicy> all_remap_policies() {
  return {RemapPolicy::kStatic, RemapPolicy::kReRing, RemapPolicy::kReGroup};
}

double RemapRun::pause_s() const {
  return std::accumulate(pauses.begin(), pauses.end(), 0.0,
                         [](double sum, const RemapPause& pause) { return sum + pause.seconds(); });
}

double RemapRun::lost_s() const {
  return std::accumulate(pauses.begin(), pauses.end(), 0.0,
                         [](double sum, const RemapPause& pause) { return sum + pause.lost_s; });
}

double rebuild_seconds(const Program& program, const RemapCosts& costs) {
  double seconds = 0;
  for (const Axis& axis : program.axes) {
    std::size_t largest = 0;
    for (const std::vector<RankId>& group : axis.groups) largest = std::max(largest, group.size());
    if (largest > 1) seconds += costs.init_base_s + costs.init_per_rank_s * static_cast<double>(largest);
  }
  return seconds;
}

namespace {

std::string describe_change(const std::vector<Fault>& faults, const FaultSet& before, const FaultSet& after) {
  std::string text;
  std::size_t named = 0, changed = 0;
  constexpr std::size_t kNamed = 2;
  for (std::size_t f = 0; f < faults.size(); ++f) {
    if (before[f] == after[f]) continue;
    ++changed;
    if (named == kNamed) continue;
    ++named;
    const Fault& fault = faults[f];
    const std::string state = !after[f]           ? "back"
                              : fault.factor == 0 ? "lost"
                                                  : fmt::format("at {:g} of its rate", fault.factor);
    text += fmt::format("{}{} of rank {} {}", text.empty() ? "" : ", ", to_string(fault.what),
                        fault.rank.value, state);
  }
  return changed > named ? fmt::format("{} and {} more", text, changed - named) : text;
}

// The dates at which faults begin or end.
std::vector<SimTime> dates(const std::vector<Fault>& faults) {
  std::set<SimTime> dates;
  for (const Fault& fault : faults) {
    dates.insert(fault.from);
    if (fault.until) dates.insert(*fault.until);
  }
  return {dates.begin(), dates.end()};
}

bool only_returns(const FaultSet& before, const FaultSet& after) {
  for (std::size_t f = 0; f < before.size(); ++f)
    if (after[f] && !before[f]) return false;
  return true;
}

class PolicyRun {
 public:
  PolicyRun(RemapPolicy policy, Mapper& mapper, const RemapOptions& options)
      : options_(options),
        mapper_(mapper),
        dates_(dates(mapper.faults())),
        mapping_(mapper.original()),
        known_(mapper.faults().size(), false) {
    run_.policy = policy;
  }

  RemapRun run() {
    const FaultSet none(mapper_.faults().size(), false);
    // A run without faults never hangs.
    run_.before_s = mapper_.step_seconds(mapper_.original(), none).value();
    run_.during_s = run_.after_s = run_.before_s;
    for (const SimTime date : dates_) {
      const FaultSet first = mapper_.active(date);
      run_.during_s = mapper_.step_seconds(mapper_.original(), first);
      if (run_.during_s == run_.before_s) continue;  // Of nothing in use.
      std::string ignored;
      run_.after_s = mapper_.step_seconds(mapper_.wanted(run_.policy, first, ignored), first);
      break;
    }
    while (run_.steps < options_.steps && !run_.hang) run_stretch();
    const SimTime end = now_;
    const auto back = [&](const Fault& fault) { return fault.until && *fault.until <= end; };
    if (!run_.hang && std::ranges::any_of(mapper_.faults(), back))
      run_.returned_s = mapper_.step_seconds(mapping_, mapper_.active(end));
    run_.total_s = now_.seconds();
    return std::move(run_);
  }

 private:
  // When the mapping is left, how many of its steps have ended, and for what.
  struct Turn {
    SimTime at;  // From the beginning of the run.
    std::int64_t steps = 0;
    Mapping next;
    FaultSet active;
    RemapPause pause;
  };

  // Until the policy changes the mapping, the run ends, or it hangs.
  void run_stretch() {
    const std::int64_t missing = options_.steps - run_.steps;
    course_ = mapper_.course(mapping_, now_, missing);
    const std::optional<SimTime> end = course_.end_of(missing - 1);
    std::optional<Turn> turn;
    if (run_.policy != RemapPolicy::kStatic)
      turn = next_turn(now_ + end.value_or(course_.hang ? course_.hang->until : SimTime{}));
    if (turn) {
      end_stretch(turn->at, turn->steps);
      const std::int64_t redone = std::min(turn->pause.lost_steps, run_.steps);
      run_.steps -= redone;
      run_.sequences -= redone * mapping_.plan.global_batch();
      now_ = turn->at + from_seconds(turn->pause.rebuild_s + turn->pause.lower_s + turn->pause.move_s);
      mapping_ = std::move(turn->next);
      known_ = std::move(turn->active);
      run_.pauses.push_back(std::move(turn->pause));
    } else if (end) {
      end_stretch(now_ + *end, missing);
      now_ += *end;
    } else {
      Hang hang = *course_.hang;
      end_stretch(now_ + hang.until, std::ssize(course_.ends));
      hang.since += now_;
      hang.until += now_;
      hang.step += static_cast<std::int32_t>(run_.steps - std::ssize(course_.ends));
      now_ = hang.until;
      run_.hang = std::move(hang);
    }
  }

  void end_stretch(SimTime until, std::int64_t steps) {
    RemapStretch stretch;
    stretch.from = now_;
    stretch.until = until;
    stretch.steps = steps;
    stretch.replicas = static_cast<std::int32_t>(mapping_.plan.replicas.size());
    stretch.gpus = mapping_.plan.world_size() - static_cast<std::int32_t>(mapping_.plan.idle.size());
    stretch.global_batch = mapping_.plan.global_batch();
    const std::vector<std::int32_t>& relay = mapping_.rerouting.relay;
    for (std::size_t device = 0; device < relay.size(); ++device)
      stretch.relayed += relay[device] != static_cast<std::int32_t>(device);
    run_.stretches.push_back(stretch);
    run_.steps += steps;
    run_.sequences += steps * stretch.global_batch;
  }

  // `end`: of the course.
  std::optional<Turn> next_turn(SimTime end) {
    std::vector<SimTime> coming{now_};
    for (const SimTime date : dates_)
      if (date > now_) coming.push_back(date);
    for (const SimTime date : coming) {
      if (date >= end) break;
      const FaultSet active = mapper_.active(date);
      if (active == known_) continue;
      const bool stalls = !mapper_.step_seconds(mapping_, active);
      std::optional<Turn> turn = stalls ? turn_after_loss(date, active) : turn_between_steps(date, active);
      if (turn && turn->at < end) return turn;
      // Considered and left alone.
      known_ = active;
    }
    return std::nullopt;
  }

  // Nothing ends any more until somebody notices; a link that is back before goes on by itself, a process
  // has to be started again.
  std::optional<Turn> turn_after_loss(SimTime date, const FaultSet& active) {
    Turn turn;
    turn.at = date + from_seconds(detection_seconds(active));
    turn.active = mapper_.active(turn.at);
    bool ended = false;
    for (std::size_t f = 0; f < active.size(); ++f)
      ended = ended || (active[f] && !known_[f] && remapping::ends_processes(mapper_.faults()[f]));
    if (!ended && mapper_.step_seconds(mapping_, turn.active)) return std::nullopt;
    turn.next = mapper_.wanted(run_.policy, turn.active, run_.refused);
    if ((turn.next == mapping_ && !ended) || !mapper_.step_seconds(turn.next, turn.active))
      return std::nullopt;
    run_.refused.clear();
    turn.steps = course_.ended_by(turn.at - now_);
    const bool restore = !turn.next.covered;
    turn.pause = mapper_.pause(mapping_, turn.next, restore);
    turn.pause.at = date;
    turn.pause.reason = describe_change(mapper_.faults(), known_, turn.active);
    const SimTime last_end = now_ + (turn.steps > 0 ? course_.end_of(turn.steps - 1).value() : SimTime{});
    turn.pause.lost_s = std::max(0.0, (date - last_end).seconds());
    turn.pause.detect_s = (turn.at - std::max(date, last_end)).seconds();
    if (restore) {
      turn.pause.lost_steps = (run_.steps + turn.steps) % options_.checkpoint_every;
      turn.pause.lost_s += static_cast<double>(turn.pause.lost_steps) * run_.before_s;
    }
    return turn;
  }

  // Of what is slow or comes back the run takes note at the end of a step, and acts if it pays.
  std::optional<Turn> turn_between_steps(SimTime date, const FaultSet& active) {
    Turn turn;
    turn.steps = course_.ended_by(date - now_) + 1;
    if (!only_returns(known_, active)) turn.steps += options_.costs.detect_slow_steps;
    const std::optional<SimTime> end = course_.end_of(turn.steps - 1);
    const std::int64_t missing = options_.steps - run_.steps - turn.steps;
    if (!end || missing <= 0) return std::nullopt;
    turn.at = now_ + *end;
    turn.active = mapper_.active(turn.at);
    std::string ignored;
    turn.next = mapper_.wanted(run_.policy, turn.active, ignored);
    if (turn.next == mapping_) return std::nullopt;
    const std::optional<double> stays = mapper_.step_seconds(mapping_, turn.active);
    const std::optional<double> goes = mapper_.step_seconds(turn.next, turn.active);
    if (!stays || !goes) return std::nullopt;
    turn.pause = mapper_.pause(mapping_, turn.next, false);
    turn.pause.at = date;
    turn.pause.reason = describe_change(mapper_.faults(), known_, turn.active);
    const double equal_work = static_cast<double>(mapping_.plan.global_batch()) /
                              static_cast<double>(turn.next.plan.global_batch());
    const double gain_s = static_cast<double>(missing) * (*stays - *goes * equal_work);
    if (gain_s <= turn.pause.seconds()) return std::nullopt;
    return turn;
  }

  double detection_seconds(const FaultSet& active) const {
    bool network = true;  // Alone.
    for (std::size_t f = 0; f < active.size(); ++f) {
      const Fault& fault = mapper_.faults()[f];
      if (!active[f] || known_[f] || fault.factor > 0) continue;
      network = network && (fault.what == Fault::What::kNic || fault.what == Fault::What::kLeaf ||
                            fault.what == Fault::What::kUplink);
    }
    return network ? options_.costs.detect_network_s : options_.costs.detect_loss_s;
  }

  const RemapOptions& options_;
  Mapper& mapper_;
  const std::vector<SimTime> dates_;
  RemapRun run_;
  SimTime now_;
  Mapping mapping_;
  FaultSet known_;  // Faults that the mapping takes into account.
  Course course_;
};

}  // namespace

RemapRun run_policy(RemapPolicy policy, const Graph& graph, const Plan& plan, const Cluster& cluster,
                    const Profile& profile, const RemapOptions& options) {
  Mapper mapper(graph, plan, cluster, profile, options);
  return PolicyRun(policy, mapper, options).run();
}

}  // namespace orrery
