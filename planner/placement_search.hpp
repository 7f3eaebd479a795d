#pragma once
// Placements that are looked for: what they cost, what limits them, and how better ones are found.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/placement.hpp"
#include "planner/placement_machine.hpp"

namespace orrery {

// Groups whose members must not be far apart.
struct HopLimit {
  std::int32_t hops = kNoHopLimit;
  std::string axis;
  std::vector<std::vector<RankId>> groups;  // Of two and more members; empty: no limit.
};
// THROWS Error(kInfeasible) when the Program has no such groups.
HopLimit hop_limit(const RankTraffic& traffic, const PlacementRequest& request);

// The first group and pair that are further apart; "" when all are within the limit.
std::string hop_fault(const HopLimit& limit, const PlacementMachine& machine,
                      const std::vector<std::int32_t>& device_of);

// What the policies graph and exact make small: PlacementCost::link_seconds, without what no exchange
// changes. Keeps to the hop limit.
class PlacementSearch {
 public:
  // The arguments outlive it.
  PlacementSearch(const RankTraffic& traffic, const PlacementMachine& machine, const HopLimit& limit);

  void start_at(std::vector<std::int32_t> device_of);
  // Exchanges two ranks, or two groups of the limit, for as long as that helps. REQUIRES: the start keeps to
  // the limit.
  void refine();
  // The first of the best of all permutations. REQUIRES: at most 8 devices. False when none keeps to the
  // limit.
  bool try_all();

  double cost() const;
  const std::vector<std::int32_t>& device_of() const { return device_of_; }

 private:
  struct Flows {
    GroupTraffic group;  // What its ranks do for all purposes; with message_bytes two ranks, from and to.
    double message_bytes = 0;
  };
  struct Move {
    RankId rank;
    std::int32_t device = 0;
  };

  void add(Flows flows);
  double cost(const Flows& flows) const;
  bool improves(const std::vector<Move>& moves);
  bool keeps_limit(const std::vector<Move>& moves) const;
  std::vector<std::int32_t> touched(const std::vector<Move>& moves) const;
  bool exchange_ranks();
  bool exchange_groups();

  const PlacementMachine& machine_;
  const HopLimit& limit_;
  std::vector<double> seconds_;  // By sender · devices + receiver.
  std::vector<Flows> flows_;
  std::vector<double> cost_of_;                      // By flows.
  std::vector<std::vector<std::int32_t>> flows_of_;  // By rank, ascending.
  std::vector<std::int32_t> limited_in_;             // By rank: its group of the limit; −1: none.
  std::vector<std::int32_t> device_of_;
};

// Where METIS puts the ranks: it cuts the graph of who talks to whom along the machine's boxes, from the
// outermost to the innermost, each into parts of exactly the boxes' sizes. Groups of the limit stay whole.
// Not all cuts keep to the limit.
std::vector<std::int32_t> cut_along_boxes(const RankTraffic& traffic, const PlacementMachine& machine,
                                          const HopLimit& limit, std::int32_t seed);

// Groups of the limit one after the other on GPUs that are near enough, the other ranks on what is left.
// THROWS Error(kInfeasible) naming the group that finds no place, and two GPUs that are too far apart for it.
std::vector<std::int32_t> pack_groups(const HopLimit& limit, const PlacementMachine& machine);

}  // namespace orrery
