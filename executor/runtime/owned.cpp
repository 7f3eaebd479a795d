#include "executor/runtime/owned.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <variant>

#include "executor/runtime/tables.hpp"

namespace orrery::host {
namespace {

std::vector<Operand> operands_of(const Role& role, const Instruction& instruction) {
  return {role.operands.begin() + instruction.operands.begin,
          role.operands.begin() + instruction.operands.end};
}

// All operands are read and written: it works in place on their concatenation.
bool in_place(const std::vector<Operand>& operands) {
  return !operands.empty() &&
         std::all_of(operands.begin(), operands.end(), [](const Operand& operand) { return operand.writes; });
}

Elements intersection(const Elements& a, const Elements& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

const Coordinate coordinate(const Program& program, RankId rank, AxisId axis) {
  const auto& groups = program.axes[axis.index()].groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto found = std::find(groups[g].begin(), groups[g].end(), rank);
    if (found != groups[g].end()) {
      return {static_cast<std::int32_t>(g), static_cast<std::int32_t>(found - groups[g].begin())};
    }
  }
  return {};
}

// Where the optimiser's segments of one collective's parameters keep their state: cells in a row.
struct Cell {
  BufferId state;
  std::int64_t begin = 0, capacity = 0;
};

// A parameter of an update: gradient (read), weights and state (written), in this order.
struct Updated {
  BufferId gradient, weights, state;
};

std::vector<Updated> updated_parameters(const Role& role, const Instruction& update) {
  const std::vector<Operand> operands = operands_of(role, update);
  assert(operands.size() % 3 == 0);
  std::vector<Updated> parameters;
  for (std::size_t o = 0; o < operands.size(); o += 3) {
    parameters.push_back({operands[o].buffer, operands[o + 1].buffer, operands[o + 2].buffer});
  }
  return parameters;
}

}  // namespace

DType dtype_of(const Graph& graph, const Program& program, const Buffer& buffer) {
  const DType declared = graph[buffer.tensor].dtype;
  // Where ranks divide a dimension unevenly each has room for the largest part.
  std::int64_t room = 1;
  for (const DimId dim : graph[buffer.tensor].shape) {
    std::int64_t size = program.sizes[dim.index()];
    if (buffer.placement.valid()) {
      for (const Split& split : program.placements[buffer.placement.index()].splits) {
        if (split.dim != dim) continue;
        const std::int64_t ranks = std::ssize(program.axes[split.axis.index()].groups.front());
        size = split.zigzag ? 2 * ((size + 2 * ranks - 1) / (2 * ranks)) : (size + ranks - 1) / ranks;
      }
    }
    room *= size;
  }
  if (room == 0 || buffer.bytes == room * size_bytes(declared)) return declared;
  return buffer.bytes == 4 * room ? DType::kFp32 : DType::kBf16;
}

Elements own_part(std::int64_t elements, std::int64_t ranks, std::int64_t position) {
  const std::int64_t part = (elements + ranks - 1) / ranks;
  return {std::min(elements, position * part), std::min(elements, (position + 1) * part)};
}

std::vector<DividedGradient> divided_gradients(const Program& program, RankId rank,
                                               const std::vector<std::int64_t>& elements) {
  const Role& role = program.roles[program.role_of[rank.index()].index()];
  std::vector<DividedGradient> divided(role.buffers.size());
  for (std::size_t b = 0; b < divided.size(); ++b) {
    divided[b].buffer = BufferId(static_cast<std::int64_t>(b));
    divided[b].own = {0, elements[b]};
  }
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const auto* const collective = std::get_if<Collective>(&role.instructions[i].work);
    if (collective == nullptr || collective->kind != CollectiveKind::kReduceScatter) continue;
    const std::vector<Operand> operands = operands_of(role, role.instructions[i]);
    if (!in_place(operands)) continue;
    std::int64_t total = 0;
    for (const Operand& operand : operands) total += elements[operand.buffer.index()];
    const Coordinate at = coordinate(program, rank, collective->axis);
    const auto& group = program.axes[collective->axis.index()].groups[static_cast<std::size_t>(at.group)];
    const Elements own = own_part(total, std::ssize(group), at.position);
    std::int64_t begin = 0;
    for (const Operand& operand : operands) {
      const std::int64_t count = elements[operand.buffer.index()];
      const Elements mine = intersection(own, {begin, begin + count});
      divided[operand.buffer.index()] = {operand.buffer,
                                         {mine.begin - begin, mine.end - begin},
                                         static_cast<std::int64_t>(i),
                                         mine.begin - own.begin};
      if (mine.size() == 0) divided[operand.buffer.index()].own = {0, 0};
      begin += count;
    }
  }
  return divided;
}

std::vector<UpdateSegment> update_segments(Tables& tables, RankId rank, const Instruction& update) {
  const Role& role = tables.role(rank);
  const std::vector<DividedGradient>& divided = tables.divided(rank);
  const std::vector<Updated> parameters = updated_parameters(role, update);
  const auto capacity = [&](const Updated& of) {
    const bool fp32 = tables.view(rank, of.weights).dtype == DType::kFp32;
    return role.buffers[of.state.index()].bytes / (fp32 ? 8 : 12);
  };
  std::map<std::int64_t, std::vector<Cell>> cells;  // By the collective that divides the gradients.
  for (const Updated& of : parameters) {
    std::vector<Cell>& row = cells[divided[of.gradient.index()].collective];
    const std::int64_t begin = row.empty() ? 0 : row.back().begin + row.back().capacity;
    row.push_back({of.state, begin, capacity(of)});
  }
  std::vector<UpdateSegment> segments;
  for (const Updated& of : parameters) {
    const DividedGradient& gradient = divided[of.gradient.index()];
    if (gradient.collective < 0) {
      const std::int64_t count = gradient.own.size();
      if (count > 0) segments.push_back({of.gradient, of.weights, of.state, 0, 0, count, capacity(of)});
      continue;
    }
    for (const Cell& cell : cells[gradient.collective]) {
      const Elements here = intersection({gradient.at, gradient.at + gradient.own.size()},
                                         {cell.begin, cell.begin + cell.capacity});
      if (here.size() == 0) continue;
      segments.push_back({of.gradient, of.weights, cell.state, gradient.own.begin + here.begin - gradient.at,
                          here.begin - cell.begin, here.size(), cell.capacity});
    }
  }
  return segments;
}

}  // namespace orrery::host
