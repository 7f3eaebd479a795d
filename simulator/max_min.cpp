#include "simulator/max_min.hpp"

#include <algorithm>
#include <cassert>
#include <functional>

namespace orrery::fast {

MaxMin::MaxMin(std::span<const std::int64_t> bytes_per_s) : links_(bytes_per_s.size()) {
  for (std::size_t i = 0; i < bytes_per_s.size(); ++i) {
    assert(bytes_per_s[i] >= 0 && bytes_per_s[i] < kNoLimit / kRatePerByte);
    links_[i].capacity = bytes_per_s[i] * kRatePerByte;
  }
}

void MaxMin::add(std::int32_t id, std::span<const LinkUse> uses, Rate cap) {
  assert(cap > 0);
  if (static_cast<std::size_t>(id) >= flows_.size()) flows_.resize(static_cast<std::size_t>(id) + 1);
  Flow& added = flow(id);
  assert(!added.alive);
  added.uses = uses.data();
  added.use_count = static_cast<std::int32_t>(uses.size());
  added.cap = cap;
  added.rate = 0;
  added.alive = true;
  added.places.resize(uses.size());
  for (std::int32_t k = 0; k < added.use_count; ++k) {
    const LinkUse& use = added.uses[k];
    Link& used = link(use.link);
    added.places[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(used.members.size());
    used.members.push_back({id, k});
    used.weight += use.count;
    change_demand(use.link, Wide{use.count} * cap);
  }
  pending_.push_back(id);
}

void MaxMin::remove(std::int32_t id) {
  Flow& removed = flow(id);
  assert(removed.alive);
  for (std::int32_t k = 0; k < removed.use_count; ++k) {
    const LinkUse& use = removed.uses[k];
    Link& used = link(use.link);
    const std::int32_t place = removed.places[static_cast<std::size_t>(k)];
    const Member moved = used.members.back();
    used.members[static_cast<std::size_t>(place)] = moved;
    flow(moved.flow).places[static_cast<std::size_t>(moved.use)] = place;
    used.members.pop_back();
    used.weight -= use.count;
    change_demand(use.link, -Wide{use.count} * removed.cap);
  }
  removed.alive = false;
}

void MaxMin::set_cap(std::int32_t id, Rate cap) {
  assert(cap > 0);
  Flow& changed = flow(id);
  if (changed.cap == cap) return;
  for (std::int32_t k = 0; k < changed.use_count; ++k)
    change_demand(changed.uses[k].link, Wide{changed.uses[k].count} * (cap - changed.cap));
  changed.cap = cap;
  pending_.push_back(id);
}

void MaxMin::set_capacity(std::int32_t id, Rate capacity) {
  assert(capacity >= 0);
  const bool was_tight = link(id).tight();
  link(id).capacity = capacity;
  seed_if(was_tight, id);
}

void MaxMin::change_demand(std::int32_t id, Wide difference) {
  Link& changed = link(id);
  const bool was_tight = changed.tight();
  changed.demand += difference;
  seed_if(was_tight, id);
}

void MaxMin::seed_if(bool was_tight, std::int32_t id) {
  Link& changed = link(id);
  if ((!was_tight && !changed.tight()) || changed.seeded) return;
  changed.seeded = true;
  seeds_.push_back(id);
}

std::span<const std::int32_t> MaxMin::solve() {
  // Changes that run on and on reach most of the component; then it is cheaper to take it whole.
  constexpr int kCautiousRounds = 8;
  changed_.clear();
  if (seeds_.empty() && pending_.empty()) return {};
  start_region();
  int round = 0;
  do {
    prepare_filling();
    fill();
  } while (free_unsettled(++round > kCautiousRounds));
  for (const std::int32_t id : region_flows_) {
    Flow& solved = flow(id);
    if (solved.next_rate == solved.rate) continue;
    solved.rate = solved.next_rate;
    changed_.push_back(id);
  }
  return changed_;
}

void MaxMin::start_region() {
  ++epoch_;
  region_links_.clear();
  region_flows_.clear();
  for (const std::int32_t id : seeds_) {
    link(id).seeded = false;
    if (link(id).tight()) visit_link(id);
  }
  for (const std::int32_t id : pending_)
    if (flow(id).alive) free_flow(id);
  // A link that has just become loose holds nobody back any more.
  for (const std::int32_t id : seeds_)
    if (!link(id).tight())
      for (const Member& member : link(id).members)
        if (expected_rate(flow(member.flow)) != flow(member.flow).rate) free_flow(member.flow);
  pending_.clear();
  seeds_.clear();
}

void MaxMin::visit_link(std::int32_t id) {
  Link& visited = link(id);
  if (visited.visited == epoch_) return;
  visited.visited = epoch_;
  region_links_.push_back(id);
  for (const Member& member : visited.members) visit_flow(member.flow);
}

void MaxMin::visit_flow(std::int32_t id) {
  Flow& visited = flow(id);
  if (visited.visited == epoch_) return;
  visited.visited = epoch_;
  visited.limit = visited.rate;
  region_flows_.push_back(id);
}

void MaxMin::free_flow(std::int32_t id) {
  visit_flow(id);
  Flow& freed = flow(id);
  if (freed.freed == epoch_) return;
  freed.freed = epoch_;
  freed.limit = freed.cap;
  for (std::int32_t k = 0; k < freed.use_count; ++k)
    if (link(freed.uses[k].link).tight()) visit_link(freed.uses[k].link);
}

// Frees the flows whose rates don't fit the levels that were found; false when there are none.
bool MaxMin::free_unsettled(bool everybody) {
  to_free_.clear();
  bool unsettled = false;
  for (const std::int32_t id : region_flows_) {
    Flow& settled = flow(id);
    if (settled.freed == epoch_) continue;
    const bool wrong = settled.next_rate != settled.rate || expected_rate(settled) != settled.rate;
    unsettled = unsettled || wrong;
    if (wrong || everybody) to_free_.push_back(id);
  }
  if (!unsettled) return false;
  for (const std::int32_t id : to_free_) free_flow(id);
  return true;
}

Rate MaxMin::expected_rate(const Flow& of) {
  Rate rate = of.cap;
  for (std::int32_t k = 0; k < of.use_count; ++k) {
    const Link& used = link(of.uses[k].link);
    if (used.tight()) rate = std::min(rate, used.level);
  }
  return rate;
}

void MaxMin::prepare_filling() {
  candidates_.clear();
  for (const std::int32_t id : region_links_) {
    Link& used = link(id);
    used.level = kNoLimit;
    used.left = used.capacity;
    used.left_weight = used.weight;
    candidates_.push_back({used.share(), id});
  }
  std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  by_limit_.clear();
  next_by_limit_ = 0;
  for (const std::int32_t id : region_flows_) {
    flow(id).next_rate = kRising;
    by_limit_.emplace_back(flow(id).limit, id);
  }
  std::sort(by_limit_.begin(), by_limit_.end());
  rising_ = by_limit_.size();
}

// All that is held at one level is found before anything is given away: which of two links of equal
// share comes first then makes no difference, not even in the last bit.
void MaxMin::fill() {
  while (rising_ > 0) {
    const Rate share = next_share();
    const Rate limit = next_limit();
    const Rate level = std::min(share, limit);
    assert(level < kNoLimit);
    if (share == level) take_bottlenecks(level);
    for (; next_by_limit_ < by_limit_.size() && by_limit_[next_by_limit_].first == level; ++next_by_limit_)
      hold(flow(by_limit_[next_by_limit_].second), level);
    for (const std::int32_t id : bottlenecks_)
      for (const Member& member : link(id).members) hold(flow(member.flow), level);
    bottlenecks_.clear();
  }
}

// The smallest share that a link of the region can give the flows that still rise.
Rate MaxMin::next_share() {
  while (!candidates_.empty()) {
    const Candidate top = candidates_.front();
    const Link& used = link(top.link);
    const Rate share = used.left_weight == 0 ? kNoLimit : used.share();
    if (share == top.share) return share;
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    candidates_.pop_back();
    if (share == kNoLimit) continue;
    candidates_.push_back({share, top.link});
    std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  }
  return kNoLimit;
}

Rate MaxMin::next_limit() {
  while (next_by_limit_ < by_limit_.size() && flow(by_limit_[next_by_limit_].second).next_rate != kRising)
    ++next_by_limit_;
  return next_by_limit_ < by_limit_.size() ? by_limit_[next_by_limit_].first : kNoLimit;
}

void MaxMin::take_bottlenecks(Rate level) {
  while (next_share() == level) {
    const std::int32_t id = candidates_.front().link;
    link(id).level = level;
    bottlenecks_.push_back(id);
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    candidates_.pop_back();
  }
}

void MaxMin::hold(Flow& held, Rate level) {
  if (held.next_rate != kRising) return;
  held.next_rate = level;
  --rising_;
  for (std::int32_t k = 0; k < held.use_count; ++k) {
    Link& used = link(held.uses[k].link);
    if (used.visited != epoch_) continue;
    used.left -= std::min(used.left, level * held.uses[k].count);
    used.left_weight -= held.uses[k].count;
  }
}

}  // namespace orrery::fast
