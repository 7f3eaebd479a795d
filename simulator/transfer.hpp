#pragma once
// Where ranks meet (a group on an axis, a pair of ranks, a rank and its host), what each of their meetings
// costs and which links it needs.

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "simulator/job.hpp"
#include "simulator/link_paths.hpp"
#include "simulator/transfer_lists.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery::folding {

struct TransferNeeds {
  SimTime latency;
  std::int64_t bytes = 0;
  std::int64_t rate_cap = 0;
  auto operator<=>(const TransferNeeds&) const = default;
};

// What happens in one place, in order. Places with equal costs share a recipe.
struct Recipe {
  std::vector<TransferNeeds> transfers;  // Distinct ones.
  std::vector<std::int32_t> order;       // The k-th meeting is transfers[order[k]].
  std::int64_t rate_cap = 0;             // The highest of them.
  auto operator<=>(const Recipe&) const = default;
};

struct Member {
  std::int32_t rank = 0;
  ListId list = -1;
};

struct Place {
  std::int32_t recipe = 0;
  Range members;  // Into Places::members.
  Range links;    // Into Places::links; links are numbered densely.
};

struct Places {
  std::vector<Place> places;
  std::vector<Member> members;
  std::vector<LinkUse> links;
  std::vector<Recipe> recipes;
  std::vector<std::int64_t> link_capacity;
  std::vector<std::int32_t> narrowed;  // By LinkPaths::narrowed(): its number here; −1: nobody uses it.
};

// Only links that could ever be full are listed, and those that faults make narrower.
//
// A ring inside a node crosses each neighbour's path once. Over several nodes, with at least k members on
// each, k channels run side by side, each with 1/k of the bytes over its own NIC (NCCL's rings); a link
// between neighbours of one node then carries k − 1 of the channels: all but the one that leaves there.
// An all-to-all is counted in messages between two members, so a GPU's own link carries n − 1 of them.
Places find_places(const Program& program, const LinkPaths& router, const Profile& profile,
                   TrafficLists& lists);

}  // namespace orrery::folding
