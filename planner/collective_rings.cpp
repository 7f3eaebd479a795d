// Rings, chains and what is made of them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "planner/collective_schedules.hpp"

namespace orrery::collective {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

Connection opposite(Connection connection) {
  connection.offset = -connection.offset;
  return connection;
}

std::vector<std::int32_t> order_of(const CollectiveSpec& spec, std::int32_t channel) {
  if (!spec.orders.empty()) return spec.orders[index(channel) % spec.orders.size()];
  std::vector<std::int32_t> order(static_cast<std::size_t>(spec.ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// By channel: its axis, of one group.
struct Lines {
  std::vector<AxisId> axes;
  std::vector<std::vector<std::int32_t>> positions;  // By channel and rank.
};

// A broadcast's begin at its root.
Lines add_lines(Scribe& scribe, const char* name) {
  const CollectiveSpec& spec = scribe.spec();
  const bool from_root = spec.kind == CollectiveKind::kBroadcast;
  Lines lines;
  for (std::int32_t channel = 0; channel < spec.channels; ++channel) {
    std::vector<std::int32_t> order = order_of(spec, channel);
    if (from_root) std::ranges::rotate(order, std::ranges::find(order, spec.root));
    std::vector<RankId> group;
    std::vector<std::int32_t> position(order.size());
    for (const std::int32_t rank : order) {
      position[index(rank)] = static_cast<std::int32_t>(group.size());
      group.emplace_back(rank);
    }
    lines.axes.push_back(scribe.add_axis(fmt::format("{}{}", name, channel), {std::move(group)}));
    lines.positions.push_back(std::move(position));
  }
  return lines;
}

enum class End : std::uint8_t { kFirst, kMiddle, kLast };

End end_at(std::int32_t position, std::int32_t size) {
  return position == 0 ? End::kFirst : position + 1 == size ? End::kLast : End::kMiddle;
}

const char* word(End end) {
  constexpr std::array kWords{"first", "middle", "last"};
  return kWords[static_cast<std::size_t>(end)];
}

// What a rank is on each line.
std::string ends_of(const Lines& lines, std::int32_t rank, std::int32_t size) {
  std::string text;
  for (const std::vector<std::int32_t>& position : lines.positions)
    text += fmt::format("{}{}", text.empty() ? "" : "-", word(end_at(position[index(rank)], size)));
  return text;
}

void down_the_line(Scribe& scribe, const Connection& next, End end, const Part& part) {
  if (end != End::kFirst) scribe.recv(opposite(next), {part}, false);
  if (end != End::kLast) scribe.send(next, {part});
}

// Sums towards the last, and back.
void there_and_back(Scribe& scribe, const Connection& next, End end, const Part& part) {
  if (end != End::kFirst) scribe.recv(opposite(next), {part}, true);
  if (end != End::kLast) scribe.send(next, {part});
  if (end != End::kLast) scribe.recv(next, {part}, false);
  if (end != End::kFirst) scribe.send(opposite(next), {part});
}

// One message after the other down or along the lines of all channels.
template <class Step>
Schedule line_schedule(Scribe& scribe, const Grid& grid, Step step) {
  const CollectiveSpec& spec = scribe.spec();
  const Lines lines = add_lines(scribe, "chain");
  const auto write = [=, &scribe, &spec](std::int32_t rank) {
    for (std::int32_t c = 0; c < spec.channels; ++c) {
      const Part whole = Part{}.number(c, spec.channels);
      const Pipeline pipe = pipeline(scribe.bytes(whole), spec.chunk_bytes, spec.slots);
      const End end = end_at(lines.positions[index(c)][index(rank)], grid.ranks);
      const Connection next{lines.axes[index(c)], 1, c, spec.slots};
      for (std::size_t m = 0; m < pipe.messages.size(); ++m) step(scribe, next, end, pipe.part(whole, m));
    }
  };
  return {[=](std::int32_t rank) { return ends_of(lines, rank, grid.ranks); }, write};
}

std::int32_t parts_of(std::int64_t bytes, std::int64_t largest) {
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, (bytes + largest - 1) / largest));
}

}  // namespace

AxisId add_local_axis(Scribe& scribe, const Grid& grid) {
  std::vector<std::vector<RankId>> groups(static_cast<std::size_t>(grid.nodes));
  for (std::int32_t rank = 0; rank < grid.ranks; ++rank)
    groups[static_cast<std::size_t>(grid.node(rank))].emplace_back(rank);
  return scribe.add_axis("local", std::move(groups));
}

AxisId add_rail_axis(Scribe& scribe, const Grid& grid) {
  std::vector<std::vector<RankId>> groups(static_cast<std::size_t>(grid.per_node));
  for (std::int32_t rank = 0; rank < grid.ranks; ++rank)
    groups[static_cast<std::size_t>(grid.local(rank))].emplace_back(rank);
  return scribe.add_axis("rail", std::move(groups));
}

void ring_reduce_scatter(Scribe& scribe, const Connection& next, std::int32_t size, const Part& whole,
                         const Slice& slice) {
  const auto part = [&](std::int32_t shift) {
    return whole.of_member(next.axis, shift, size).number(slice.number, slice.of);
  };
  for (std::int32_t step = 1; step < size; ++step) {
    scribe.send(next, {part(-step)});
    scribe.recv(opposite(next), {part(-step - 1)}, true);
  }
}

void ring_all_gather(Scribe& scribe, const Connection& next, std::int32_t size, const Part& whole,
                     const Slice& slice) {
  const auto part = [&](std::int32_t shift) {
    return whole.of_member(next.axis, shift, size).number(slice.number, slice.of);
  };
  for (std::int32_t step = 1; step < size; ++step) {
    scribe.send(next, {part(1 - step)});
    scribe.recv(opposite(next), {part(-step)}, false);
  }
}

Schedule ring_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  if (spec.kind == CollectiveKind::kBroadcast) return line_schedule(scribe, grid, down_the_line);
  const Lines lines = add_lines(scribe, "ring");
  const auto write = [=, &scribe, &spec](std::int32_t) {
    const std::int64_t loop_bytes = spec.chunk_bytes * grid.ranks * spec.channels;
    const std::int32_t loops = parts_of(spec.bytes, loop_bytes);
    for (std::int32_t c = 0; c < spec.channels; ++c) {
      // The next step's chunk may leave while the last one is still on its way.
      const Connection next{lines.axes[index(c)], 1, c, spec.slots};
      for (std::int32_t loop = 0; loop < loops; ++loop) {
        const Slice slice{c * loops + loop, spec.channels * loops};
        if (spec.kind != CollectiveKind::kAllGather) ring_reduce_scatter(scribe, next, grid.ranks, {}, slice);
        if (spec.kind != CollectiveKind::kReduceScatter) ring_all_gather(scribe, next, grid.ranks, {}, slice);
      }
    }
  };
  return {[](std::int32_t) { return std::string("member"); }, write};
}

Schedule chain_schedule(Scribe& scribe, const Grid& grid) {
  return line_schedule(scribe, grid, there_and_back);
}

Schedule hierarchical_schedule(Scribe& scribe, const Grid& grid, bool chains_between) {
  const CollectiveSpec& spec = scribe.spec();
  const AxisId local = add_local_axis(scribe, grid), rail = add_rail_axis(scribe, grid);
  const auto end = [=](std::int32_t rank) { return end_at(grid.node(rank), grid.nodes); };
  const auto role = [=](std::int32_t rank) {
    return std::string(chains_between ? word(end(rank)) : "member");
  };
  const auto write = [=, &scribe, &spec](std::int32_t rank) {
    const std::int32_t chunks = chains_between
                                    ? ring_chain_chunks(spec.bytes, grid.nodes)
                                    : parts_of(spec.bytes, spec.chunk_bytes * grid.per_node * grid.nodes);
    // The gathers have streams of their own, so that a chunk can be gathered while the next one is added up.
    const Connection in{local, 1, 0}, out{local, 1, 1}, ring{rail, 1, 2}, chain{rail, 1, 2, spec.slots};
    for (std::int32_t number = 0; number < chunks; ++number) {
      const Part chunk = Part{}.number(number, chunks), own = chunk.of_member(local, 0, grid.per_node);
      ring_reduce_scatter(scribe, in, grid.per_node, chunk, {});
      if (chains_between) {
        const Pipeline pipe = pipeline(scribe.bytes(own), spec.chunk_bytes, spec.slots);
        for (std::size_t m = 0; m < pipe.messages.size(); ++m)
          there_and_back(scribe, chain, end(rank), pipe.part(own, m));
      } else {
        ring_reduce_scatter(scribe, ring, grid.nodes, own, {});
        ring_all_gather(scribe, ring, grid.nodes, own, {});
      }
      ring_all_gather(scribe, out, grid.per_node, chunk, {});
    }
  };
  return {role, write};
}

// In a tree from each rank the one `i` positions further has what it passes on to i + d, for every power of
// two d, from the largest down, that i is a multiple of 2d of. All trees run together, and what goes the same
// way goes as one message, as far as it fits. A reduce-scatter is the same backwards.
Schedule pat_schedule(Scribe& scribe, const Grid& grid) {
  const CollectiveSpec& spec = scribe.spec();
  const AxisId axis = add_lines(scribe, "ring").axes.front();
  const auto write = [=, &scribe, &spec](std::int32_t) {
    const bool gathers = spec.kind == CollectiveKind::kAllGather;
    const auto most = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(grid.ranks)) / 2);
    const std::int64_t part_bytes = std::max<std::int64_t>(1, spec.bytes / grid.ranks);
    const std::int64_t fits = std::max<std::int64_t>(1, spec.chunk_bytes / part_bytes);
    std::vector<std::int32_t> distances;
    for (std::int32_t d = most; d > 0; d /= 2) distances.push_back(d);
    if (!gathers) std::ranges::reverse(distances);
    const auto part = [&](std::int32_t shift) { return Part{}.of_member(axis, shift, grid.ranks); };
    for (const std::int32_t d : distances) {
      std::vector<Part> sent, received;
      const auto flush = [&] {
        if (sent.empty()) return;
        scribe.send({axis, gathers ? d : -d, 0}, sent);
        scribe.recv({axis, gathers ? -d : d, 0}, received, !gathers);
        sent.clear();
        received.clear();
      };
      for (std::int32_t i = 0; i + d < grid.ranks; i += 2 * d) {
        sent.push_back(part(gathers ? -i : -i - d));
        received.push_back(part(gathers ? -i - d : -i));
        if (std::ssize(sent) == fits) flush();
      }
      flush();
    }
  };
  return {[](std::int32_t) { return std::string("member"); }, write};
}

}  // namespace orrery::collective
