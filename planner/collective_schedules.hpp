#pragma once
// The schedules behind collective_program: each adds its axes, and writes one role for all ranks that do the
// same.

#include <functional>
#include <string>
#include <vector>

#include "planner/collective_scribe.hpp"

namespace orrery::collective {

// How ranks lie on nodes.
struct Grid {
  std::int32_t ranks = 1, nodes = 1, per_node = 1;

  std::int32_t node(std::int32_t rank) const { return rank / per_node; }
  std::int32_t local(std::int32_t rank) const { return rank % per_node; }
};

// What a schedule answers: what tells ranks apart (equal texts share a role), and what one of them does.
struct Schedule {
  std::function<std::string(std::int32_t rank)> role;
  std::function<void(std::int32_t rank)> write;
};

Schedule ring_schedule(Scribe& scribe, const Grid& grid);  // All kinds; broadcasts as chains.
Schedule chain_schedule(Scribe& scribe, const Grid& grid);
Schedule hierarchical_schedule(Scribe& scribe, const Grid& grid, bool chains_between);
Schedule pat_schedule(Scribe& scribe, const Grid& grid);
Schedule tree_schedule(Scribe& scribe, const Grid& grid);
Schedule halving_doubling_schedule(Scribe& scribe, const Grid& grid);
Schedule nvls_schedule(Scribe& scribe, const Grid& grid);
Schedule nvls_tree_schedule(Scribe& scribe, const Grid& grid);
Schedule pairwise_schedule(Scribe& scribe, const Grid& grid);
Schedule pxn_schedule(Scribe& scribe, const Grid& grid);

// ---- Shared by several.

AxisId add_local_axis(Scribe& scribe, const Grid& grid);  // Groups: the ranks of a node.
AxisId add_rail_axis(Scribe& scribe, const Grid& grid);   // Groups: the ranks of equal place on their nodes.

// Rings over an axis whose members all do the same. Afterwards a member has the sum of its own part of
// `whole`; or, having had its own part, has all of it. All of this for one slice of each member's part.
struct Slice {
  std::int32_t number = 0, of = 1;
};
void ring_reduce_scatter(Scribe& scribe, const Connection& next, std::int32_t size, const Part& whole,
                         const Slice& slice);
void ring_all_gather(Scribe& scribe, const Connection& next, std::int32_t size, const Part& whole,
                     const Slice& slice);

// Neighbours in a tree over the members of an axis, as offsets; 0: none.
struct TreePlace {
  std::int32_t parent = 0;
  std::vector<std::int32_t> children;
};
// NCCL's double binary tree; the second one mirrors (even sizes) or shifts (odd sizes) the first, so that who
// has children in one has none in the other.
TreePlace tree_place(std::int32_t size, std::int32_t position, bool second);
std::string to_text(const TreePlace& place);

// Sums one part up the tree; and sends it down again.
void tree_up(Scribe& scribe, const Connection& tree, const TreePlace& place, const Part& part);
void tree_down(Scribe& scribe, const Connection& tree, const TreePlace& place, const Part& part);

}  // namespace orrery::collective
