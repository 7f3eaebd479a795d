// Whether the times that a longest path found hold: nobody shared a link beyond its capacity, no device
// ran two computes at once, and nothing slowed anything down.

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "simulator/one_pass.hpp"

namespace orrery::fast {
namespace {

struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// One device runs one compute at a time, by priority. Zero-length ones count where they would have had
// to wait or to be chosen from.
bool exclusive(std::vector<Stretch>& computes) {
  std::sort(computes.begin(), computes.end(), [](const Stretch& a, const Stretch& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (std::size_t i = 1; i < computes.size(); ++i) {
    if (computes[i].begin < computes[i - 1].end) return false;
    if (computes[i].begin == computes[i - 1].begin && computes[i].end > computes[i].begin) return false;
  }
  return true;
}

// REQUIRES: `computes` sorted and disjoint.
bool disjoint(const std::vector<Stretch>& computes, const std::vector<Stretch>& transfers) {
  for (const Stretch& transfer : transfers) {
    auto at = std::upper_bound(computes.begin(), computes.end(), transfer.begin,
                               [](std::int64_t time, const Stretch& compute) { return time < compute.end; });
    while (at != computes.end() && at->begin == at->end) ++at;
    if (at != computes.end() && at->begin < transfer.end) return false;
  }
  return true;
}

class Check {
 public:
  explicit Check(const Layout& layout);

  bool needed() const { return !link_users_.empty() || !devices_.empty(); }
  // Up to `horizon`, over the steps recorded so far.
  bool holds(const std::vector<std::unique_ptr<StepRecord>>& records, std::int64_t horizon) const;

 private:
  struct LinkUser {
    std::int32_t link = 0;
    std::int32_t rendezvous = 0;
    Wide bytes_per_s = 0;
  };
  using Records = std::vector<std::unique_ptr<StepRecord>>;
  bool device_holds(const Records& records, std::int64_t horizon, std::int32_t rank_class) const;
  bool link_holds(const Records& records, std::int64_t horizon, std::size_t first, std::size_t last) const;

  const Layout& layout_;
  bool interference_;
  std::vector<LinkUser> link_users_;   // By link.
  std::vector<std::int32_t> devices_;  // Classes that need a look.
};

Check::Check(const Layout& layout)
    : layout_(layout),
      interference_(layout.job.compute_interference != 1.0 || layout.job.transfer_interference != 1.0 ||
                    layout.job.communication_on_core) {
  const Job& job = layout.job;
  for (std::size_t r = 0; r < job.rendezvous.size(); ++r) {
    const auto transfer = static_cast<std::size_t>(job.rendezvous[r].transfer);
    for (const LinkUse& use : layout.uses_of(layout.transfers[transfer]))
      link_users_.push_back(
          {use.link, static_cast<std::int32_t>(r), Wide{use.count} * job.transfers[transfer].rate_cap});
  }
  std::sort(link_users_.begin(), link_users_.end(),
            [](const LinkUser& a, const LinkUser& b) { return a.link < b.link; });
  for (std::size_t c = 0; c < job.classes.size(); ++c) {
    const RoleLayout& role = layout.roles[job.classes[c].ranks.role.index()];
    if (role.compute_streams > 1 || (interference_ && role.compute_streams > 0))
      devices_.push_back(static_cast<std::int32_t>(c));
  }
}

bool Check::holds(const Records& records, std::int64_t horizon) const {
  for (const std::int32_t rank_class : devices_)
    if (!device_holds(records, horizon, rank_class)) return false;
  for (std::size_t first = 0, last = 0; first < link_users_.size(); first = last) {
    while (last < link_users_.size() && link_users_[last].link == link_users_[first].link) ++last;
    if (!link_holds(records, horizon, first, last)) return false;
  }
  return true;
}

bool Check::device_holds(const Records& records, std::int64_t horizon, std::int32_t rank_class) const {
  const auto c = static_cast<std::size_t>(rank_class);
  const std::vector<std::int32_t>& rendezvous = layout_.job.classes[c].rendezvous;
  std::vector<Stretch> computes, transfers;
  for (const auto& record : records)
    for (std::size_t i = 0; i < rendezvous.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(layout_.first_instruction[c]) + i;
      const bool is_compute = rendezvous[i] < 0;
      const Stretch stretch{is_compute ? (*record)[at].start : (*record)[at].ready, (*record)[at].end};
      if (stretch.begin >= horizon) continue;
      if (is_compute)
        computes.push_back(stretch);
      else if (stretch.end > stretch.begin)
        transfers.push_back(stretch);
    }
  return exclusive(computes) && (!interference_ || disjoint(computes, transfers));
}

bool Check::link_holds(const Records& records, std::int64_t horizon, std::size_t first,
                       std::size_t last) const {
  std::vector<std::pair<std::int64_t, Wide>> changes;
  for (std::size_t u = first; u < last; ++u) {
    const LinkUser& user = link_users_[u];
    const Rendezvous& meeting = layout_.job.rendezvous[static_cast<std::size_t>(user.rendezvous)];
    const auto at = static_cast<std::size_t>(layout_.seats_of(meeting).front().instruction);
    const std::int64_t latency = layout_.transfers[static_cast<std::size_t>(meeting.transfer)].latency;
    for (const auto& record : records) {
      if ((*record)[at].ready + latency >= horizon) continue;
      changes.emplace_back((*record)[at].ready + latency, user.bytes_per_s);
      changes.emplace_back((*record)[at].end, -user.bytes_per_s);
    }
  }
  std::sort(changes.begin(), changes.end());  // At one instant, ends before starts.
  Wide used = 0;
  const std::int64_t capacity = layout_.job.link_capacity[static_cast<std::size_t>(link_users_[first].link)];
  for (const auto& [time, change] : changes)
    if ((used += change) > capacity) return false;
  return true;
}

// Whether everything in `record` begins after `horizon`, so that no later step can matter before it.
bool all_later(const Layout& layout, const StepRecord& record, std::int64_t horizon) {
  for (std::size_t s = 0; s < layout.streams.size(); ++s) {
    const StreamLayout& stream = layout.streams[s];
    if (stream.begin == stream.end) continue;
    const std::int32_t first = stream.begin->instruction;
    const auto at = static_cast<std::size_t>(stream.base + first);
    if ((stream.rendezvous[first] < 0 ? record[at].start : record[at].ready) < horizon) return false;
  }
  return true;
}

}  // namespace

std::optional<Timeline> run_one_pass(const Layout& layout, const EngineOptions& options,
                                     EngineCounters& counters) {
  const Check check(layout);
  OnePass pass(layout);
  std::vector<std::unique_ptr<StepRecord>> records;
  const auto run_step = [&] {
    // Without a check only the step before is looked at again.
    std::unique_ptr<StepRecord> record;
    if (!check.needed() && records.size() == 2) {
      record = std::move(records.front());
      records.erase(records.begin());
    } else {
      record = std::make_unique<StepRecord>(static_cast<std::size_t>(layout.instruction_count()));
    }
    const StepRecord* previous = records.empty() ? nullptr : records.back().get();
    const std::int64_t end = pass.run_step(previous, *record);
    records.push_back(std::move(record));
    counters.instructions += layout.instruction_count();
    return end;
  };

  StepEnds ends(layout.job, options);
  while (!ends.finished()) {
    ends.add(run_step());
    // Most jobs that contend do so in every step.
    if (ends.count() == 1 && check.needed() && !check.holds(records, ends.last())) return std::nullopt;
  }
  const std::size_t last = records.size() - 1;
  if (check.needed()) {
    // Ranks that run ahead may contend with this step out of later ones.
    for (std::int32_t steps = ends.count(); steps < options.max_steps; ++steps) {
      if (all_later(layout, *records.back(), ends.last())) break;
      run_step();
    }
    if (!check.holds(records, ends.last())) return std::nullopt;
  }
  counters.one_pass = true;
  counters.step_ends = ends.times();
  return ends.timeline(layout, *records[last]);
}

}  // namespace orrery::fast
