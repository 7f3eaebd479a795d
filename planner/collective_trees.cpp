// Trees over ranks, halving and doubling, and what goes through an NVSwitch that adds and multicasts.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "planner/collective_schedules.hpp"

namespace orrery::collective {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// NCCL's binary tree over 0 … size − 1 (src/graph/trees.cc): a position's lowest set bit is its height. −1:
// it is the root.
std::int32_t binary_parent(std::int32_t size, std::int32_t position) {
  if (position == 0) return -1;
  const std::int32_t bit = position & -position;
  const std::int32_t up = (position ^ bit) | (bit << 1);
  return up < size ? up : position ^ bit;
}

std::int32_t parent_in(std::int32_t size, std::int32_t position, bool second) {
  if (!second) return binary_parent(size, position);
  if (size % 2 == 1) {
    const std::int32_t up = binary_parent(size, (position - 1 + size) % size);
    return up < 0 ? -1 : (up + 1) % size;
  }
  const std::int32_t up = binary_parent(size, size - 1 - position);
  return up < 0 ? -1 : size - 1 - up;
}

Connection to(Connection tree, std::int32_t offset) {
  tree.offset = offset;
  return tree;
}

}  // namespace

TreePlace tree_place(std::int32_t size, std::int32_t position, bool second) {
  TreePlace place;
  const std::int32_t up = parent_in(size, position, second);
  if (up >= 0) place.parent = up - position;
  for (std::int32_t other = 0; other < size; ++other)
    if (other != position && parent_in(size, other, second) == position)
      place.children.push_back(other - position);
  return place;
}

std::string to_text(const TreePlace& place) {
  std::string text = fmt::format("{:+}", place.parent);
  for (const std::int32_t child : place.children) text += fmt::format("{:+}", child);
  return text;
}

void tree_up(Scribe& scribe, const Connection& tree, const TreePlace& place, const Part& part) {
  for (const std::int32_t child : place.children) scribe.recv(to(tree, child), {part}, true);
  if (place.parent != 0) scribe.send(to(tree, place.parent), {part});
}

void tree_down(Scribe& scribe, const Connection& tree, const TreePlace& place, const Part& part) {
  if (place.parent != 0) scribe.recv(to(tree, place.parent), {part}, false);
  for (const std::int32_t child : place.children) scribe.send(to(tree, child), {part});
}

// On each channel a node's ranks are a chain, whose first one is in the tree over nodes; another one by
// channel, so that every rank's NIC is used. Half of the channels use each tree.
Schedule tree_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  std::vector<AxisId> chains, trees;
  for (std::int32_t first = 0; first < std::min(spec.channels, grid.per_node); ++first) {
    std::vector<std::vector<RankId>> groups(index(grid.nodes)), heads(1);
    for (std::int32_t node = 0; node < grid.nodes; ++node) {
      for (std::int32_t i = 0; i < grid.per_node; ++i)
        groups[index(node)].emplace_back(node * grid.per_node + (first + i) % grid.per_node);
      heads.front().push_back(groups[index(node)].front());
    }
    chains.push_back(scribe.add_axis(fmt::format("chain{}", first), std::move(groups)));
    trees.push_back(scribe.add_axis(fmt::format("tree{}", first), std::move(heads)));
  }
  const auto position = [=](std::int32_t rank, std::int32_t channel) {
    return (grid.local(rank) - channel % grid.per_node + grid.per_node) % grid.per_node;
  };
  // As many channels have each tree as there are, two at a time: NCCL doubles the channels of its graph.
  const auto second = [=, &spec](std::int32_t channel) { return channel >= (spec.channels + 1) / 2; };
  const auto role = [=, &spec](std::int32_t rank) {
    std::string text = fmt::format("{}", grid.local(rank));
    for (std::int32_t c = 0; c < spec.channels; ++c)
      if (position(rank, c) == 0) text += "." + to_text(tree_place(grid.nodes, grid.node(rank), second(c)));
    return text;
  };
  const auto write = [=, &scribe, &spec](std::int32_t rank) {
    for (std::int32_t c = 0; c < spec.channels; ++c) {
      const Part whole = Part{}.number(c, spec.channels);
      const Pipeline pipe = pipeline(scribe.bytes(whole), spec.chunk_bytes, spec.slots);
      const Connection tree{trees[index(c % grid.per_node)], 0, c, spec.slots};
      const Connection chain{chains[index(c % grid.per_node)], 0, c, spec.slots};
      const std::int32_t at = position(rank, c);
      TreePlace between, inside;
      if (at == 0) between = tree_place(grid.nodes, grid.node(rank), second(c));
      if (at > 0) inside.parent = -1;
      if (at + 1 < grid.per_node) inside.children = {1};
      for (std::size_t m = 0; m < pipe.messages.size(); ++m) {
        const Part part = pipe.part(whole, m);
        tree_up(scribe, chain, inside, part);
        tree_up(scribe, tree, between, part);
        tree_down(scribe, tree, between, part);
        tree_down(scribe, chain, inside, part);
      }
    }
  };
  return {role, write};
}

// Rank r has partners r with a bit flipped, the highest first, so that it ends with part r of the payload.
Schedule halving_doubling_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  const auto core = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(grid.ranks)));
  const std::int32_t extra = grid.ranks - core;
  std::vector<AxisId> pairs;
  for (std::int32_t bit = core / 2; bit > 0; bit /= 2) {
    std::vector<std::vector<RankId>> groups;
    for (std::int32_t rank = 0; rank < core; ++rank)
      if ((rank & bit) == 0) groups.push_back({RankId(rank), RankId(rank | bit)});
    pairs.push_back(scribe.add_axis(fmt::format("distance{}", bit), std::move(groups)));
  }
  AxisId fold;
  if (extra > 0) {
    std::vector<std::vector<RankId>> groups;
    for (std::int32_t rank = 0; rank < extra; ++rank) groups.push_back({RankId(rank), RankId(core + rank)});
    fold = scribe.add_axis("fold", std::move(groups));
  }
  const auto role = [=](std::int32_t rank) {
    return std::string(rank >= core ? "extra" : rank < extra ? "partner" : "member");
  };
  const auto write = [=, &scribe, &spec](std::int32_t rank) {
    const Connection other{fold, 1, 0};
    if (rank >= core) {
      scribe.send(other, {Part{}});
      scribe.recv(other, {Part{}}, false);
      return;
    }
    if (rank < extra) scribe.recv(other, {Part{}}, true);
    std::vector<Part> wholes{Part{}};  // What is exchanged over each axis.
    for (const AxisId axis : pairs) wholes.push_back(wholes.back().of_member(axis, 0, 2));
    if (spec.kind != CollectiveKind::kAllGather)
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        scribe.send({pairs[k], 1, 0}, {wholes[k].of_member(pairs[k], 1, 2)});
        scribe.recv({pairs[k], 1, 0}, {wholes[k + 1]}, true);
      }
    if (spec.kind != CollectiveKind::kReduceScatter)
      for (std::size_t k = pairs.size(); k-- > 0;) {
        scribe.send({pairs[k], 1, 0}, {wholes[k + 1]});
        scribe.recv({pairs[k], 1, 0}, {wholes[k].of_member(pairs[k], 1, 2)}, false);
      }
    if (rank < extra) scribe.send(other, {Part{}});
  };
  return {role, write};
}

namespace {

// Through an NVSwitch that adds and multicasts, each rank being the head of its part. A send has one receiver
// and a link of its own at either end, so the switch's work is told as messages between every two ranks: what
// a rank contributes to a head's part, and the sum that the head spreads. Their dependencies are the true
// ones; their bytes on the wire are scaled so that every link carries in each direction what it does with the
// switch's help: for n ranks and B bytes B for adding up (and B/n for the sums), B for spreading (and B/n
// from the heads), so B (1 + 1/n) for both and B for one of them.
struct Switch {
  AxisId local;
  std::int32_t size = 1;
  std::int32_t lanes = 1;
  double factor = 1;

  Connection peer(std::int32_t shift, std::int32_t channel) const {
    return {local, shift, channel, lanes, factor};
  }
};

Switch switch_of(const Scribe& scribe, const Grid& grid, AxisId local) {
  const double n = grid.per_node;
  const bool both = scribe.spec().kind == CollectiveKind::kAllReduce;
  return {local, grid.per_node, scribe.spec().slots,
          scribe.spec().switch_factor * (both ? (n + 1) / (2 * (n - 1)) : n / (n - 1))};
}

void contribute(Scribe& scribe, const Switch& with, const Slice& slice) {
  for (std::int32_t shift = 1; shift < with.size; ++shift) {
    scribe.send(with.peer(shift, 0),
                {Part{}.of_member(with.local, shift, with.size).number(slice.number, slice.of)});
    scribe.recv(with.peer(-shift, 0),
                {Part{}.of_member(with.local, 0, with.size).number(slice.number, slice.of)}, true);
  }
}

void spread(Scribe& scribe, const Switch& with, const Slice& slice) {
  for (std::int32_t shift = 1; shift < with.size; ++shift) {
    scribe.send(with.peer(shift, 1),
                {Part{}.of_member(with.local, 0, with.size).number(slice.number, slice.of)});
    scribe.recv(with.peer(-shift, 1),
                {Part{}.of_member(with.local, -shift, with.size).number(slice.number, slice.of)}, false);
  }
}

// Of every head's part, so many slices.
std::int32_t slices(const Scribe& scribe, const Grid& grid) {
  const std::int64_t part = scribe.bytes(Part{}.number(0, grid.per_node));
  return static_cast<std::int32_t>(
      std::max<std::int64_t>(1, (part + scribe.spec().chunk_bytes - 1) / scribe.spec().chunk_bytes));
}

}  // namespace

Schedule nvls_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  const Switch with = switch_of(scribe, grid, add_local_axis(scribe, grid));
  const auto write = [=, &scribe, &spec](std::int32_t) {
    const std::int32_t of = slices(scribe, grid);
    for (std::int32_t slice = 0; slice < of; ++slice) {
      if (spec.kind != CollectiveKind::kAllGather) contribute(scribe, with, {slice, of});
      if (spec.kind != CollectiveKind::kReduceScatter) spread(scribe, with, {slice, of});
    }
  };
  return {[](std::int32_t) { return std::string("head"); }, write};
}

// Slices take both trees in turn, so that a NIC carries what is the mean of a tree's inner node and its leaf.
Schedule nvls_tree_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  const Switch with = switch_of(scribe, grid, add_local_axis(scribe, grid));
  const AxisId rail = add_rail_axis(scribe, grid);
  const auto places = [=](std::int32_t rank) {
    return std::array{tree_place(grid.nodes, grid.node(rank), false),
                      tree_place(grid.nodes, grid.node(rank), true)};
  };
  const auto write = [=, &scribe, &spec](std::int32_t rank) {
    const std::int32_t of = std::max(2, slices(scribe, grid));
    const std::array<TreePlace, 2> here = places(rank);
    for (std::int32_t slice = 0; slice < of; ++slice) {
      const std::int32_t second = slice % 2;
      const Connection tree{rail, 0, 2 + second, spec.slots};
      const Part own = Part{}.of_member(with.local, 0, with.size).number(slice, of);
      contribute(scribe, with, {slice, of});
      tree_up(scribe, tree, here[index(second)], own);
      tree_down(scribe, tree, here[index(second)], own);
      spread(scribe, with, {slice, of});
    }
  };
  const auto role = [=](std::int32_t rank) {
    const std::array<TreePlace, 2> here = places(rank);
    return "head" + to_text(here[0]) + "." + to_text(here[1]);
  };
  return {role, write};
}

}  // namespace orrery::collective
