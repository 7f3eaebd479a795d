#pragma once
// Max-min fair rates by progressive filling: all flows of a component rise together until a link is
// full or a flow reaches its own cap; whoever is held stays there, the others go on.
//
// Rates are whole numbers, so that a sum over ten equal flows and ten times one flow are the same
// number and no result depends on the order of the additions: a folded job and the job it stands for
// get the same rates bit for bit.

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "simulator/job.hpp"

namespace orrery::fast {

__extension__ typedef __int128 Wide;  // Products of rates and counts, of rates and times.

// 1/1024 byte per second: a share is rounded down by less than 1e-12 of a gigabyte per second.
using Rate = std::int64_t;
inline constexpr Rate kRatePerByte = 1024;

// The rates r of all flows are the only ones with r(flow) = min(cap, level of each of its tight links), where
// the level of a link is what it can give every flow on it that is not held below that level elsewhere. So a
// change need not be solved for all flows that it might reach: a few are freed, the others keep their
// rates, and whoever then breaks the equation is freed too, until nobody does. The answer is the same,
// bit for bit, as that of a solver that starts from nothing.
//
// Links that the caps of their flows cannot fill ("loose" ones) hold nobody back and are left out.
class MaxMin {
 public:
  explicit MaxMin(std::span<const std::int64_t> bytes_per_s);

  // Changes take effect at the next solve(). Flow ids are the caller's, dense and reused; `uses`
  // outlives the flow.
  void add(std::int32_t flow, std::span<const LinkUse> uses, Rate cap);
  void remove(std::int32_t flow);
  void set_cap(std::int32_t flow, Rate cap);
  void set_capacity(std::int32_t link, Rate capacity);

  // The flows whose rates changed, in no order that matters. Valid until the next call.
  std::span<const std::int32_t> solve();

  Rate rate(std::int32_t flow) const { return flows_[static_cast<std::size_t>(flow)].rate; }

 private:
  struct Flow {
    const LinkUse* uses = nullptr;
    std::int32_t use_count = 0;
    std::uint32_t visited = 0;  // Epoch of the last solve that looked at it,
    std::uint32_t freed = 0;    // and of the last one that was free to change its rate.
    bool alive = false;
    Rate cap = 0;
    Rate rate = 0;
    Rate limit = 0;                    // While filling: its cap if it is free, else its rate so far.
    Rate next_rate = 0;                // kRising while filling.
    std::vector<std::int32_t> places;  // By use: where the flow stands in that link's list.
  };
  struct Member {
    std::int32_t flow = 0;
    std::int32_t use = 0;
  };
  struct Link {
    Rate capacity = 0;
    std::int64_t weight = 0;  // Sum of the counts of its flows.
    Wide demand = 0;          // Sum of count · cap.
    Rate level = kNoLimit;    // Of a tight link.
    std::uint32_t visited = 0;
    bool seeded = false;
    Rate left = 0;                 // While filling: capacity not yet given away,
    std::int64_t left_weight = 0;  // and the counts of the flows that still rise.
    std::vector<Member> members;
    bool tight() const { return demand > capacity; }
    // At least 1, so that every flow ends some day.
    Rate share() const { return left_weight > left ? 1 : left / left_weight; }
  };
  struct Candidate {
    Rate share = 0;  // A lower bound: shares only grow while filling.
    std::int32_t link = 0;
    bool operator>(const Candidate& other) const { return share > other.share; }
  };
  static constexpr Rate kRising = -1;
  static constexpr Rate kNoLimit = std::numeric_limits<Rate>::max();

  Flow& flow(std::int32_t id) { return flows_[static_cast<std::size_t>(id)]; }
  Link& link(std::int32_t id) { return links_[static_cast<std::size_t>(id)]; }

  void change_demand(std::int32_t id, Wide difference);
  void seed_if(bool was_tight, std::int32_t id);
  void start_region();
  void visit_link(std::int32_t id);
  void visit_flow(std::int32_t id);
  void free_flow(std::int32_t id);
  bool free_unsettled(bool everybody);
  Rate expected_rate(const Flow& of);
  void prepare_filling();
  void fill();
  Rate next_share();
  Rate next_limit();
  void take_bottlenecks(Rate level);
  void hold(Flow& held, Rate level);

  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::uint32_t epoch_ = 0;
  std::vector<std::int32_t> seeds_;    // Links that were tight before or after a change.
  std::vector<std::int32_t> pending_;  // Flows that are new or have a new cap.
  // Of the current solve:
  std::vector<std::int32_t> region_links_;  // Tight ones: the seeds, and all links of free flows.
  std::vector<std::int32_t> region_flows_;  // All flows on them.
  std::vector<std::int32_t> to_free_;
  std::vector<Candidate> candidates_;                    // A heap, smallest share on top.
  std::vector<std::pair<Rate, std::int32_t>> by_limit_;  // Rising flows.
  std::size_t next_by_limit_ = 0;
  std::size_t rising_ = 0;
  std::vector<std::int32_t> bottlenecks_;
  std::vector<std::int32_t> changed_;
};

}  // namespace orrery::fast
