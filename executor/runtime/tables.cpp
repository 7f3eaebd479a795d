#include "executor/runtime/tables.hpp"

#include <algorithm>
#include <cassert>

namespace orrery::host {

Tables::Tables(const Graph& graph, const World& world)
    : graph_(graph), world_(world), program_(world.program()), at_(coordinates(world.program())) {}

const std::vector<RankId>& Tables::group(RankId rank, AxisId axis) const {
  return program_.axes[axis.index()].groups[static_cast<std::size_t>(at(rank, axis).group)];
}

Tables::OfRank& Tables::of(RankId rank) {
  const auto [found, inserted] = ranks_.try_emplace(rank.value);
  OfRank& known = found->second;
  if (!inserted) return known;
  for (const auto& axis : at_) known.at.push_back(axis[rank.index()]);
  const auto& instructions = role(rank).instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (std::holds_alternative<Compute>(instructions[i].work) ||
        std::holds_alternative<Copy>(instructions[i].work)) {
      continue;
    }
    known.meetings[meeting(rank, instructions[i].work)].push_back(static_cast<std::int32_t>(i));
  }
  return known;
}

const Shard& Tables::shard(RankId rank, BufferId buffer) {
  OfRank& known = of(rank);
  const auto [found, inserted] = known.shards.try_emplace(buffer.value);
  if (inserted) {
    const Buffer& of_role = role(rank).buffers[buffer.index()];
    assert(of_role.tensor.valid());
    found->second = shard_of(graph_, program_, of_role.tensor, of_role.placement, known.at);
  }
  return found->second;
}

const std::vector<std::int64_t>& Tables::elements(RankId rank) {
  OfRank& known = of(rank);
  if (!known.elements.empty()) return known.elements;
  const auto& buffers = role(rank).buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const bool tensor = buffers[b].tensor.valid();
    known.elements.push_back(
        tensor ? static_cast<std::int64_t>(shard(rank, BufferId(static_cast<std::int64_t>(b))).size())
               : buffers[b].bytes / size_bytes(DType::kFp32));
  }
  return known.elements;
}

const std::vector<DividedGradient>& Tables::divided(RankId rank) {
  OfRank& known = of(rank);
  if (known.divided.empty()) known.divided = divided_gradients(program_, rank, elements(rank));
  return known.divided;
}

TensorView Tables::view(RankId rank, BufferId buffer) {
  const Buffer& of_role = role(rank).buffers[buffer.index()];
  const std::int64_t count = elements(rank)[buffer.index()];
  const DType dtype = of_role.tensor.valid() ? dtype_of(graph_, program_, of_role) : DType::kFp32;
  return {world_.arena(rank) + of_role.offset, dtype, count};
}

BufferId Tables::gradient_of(RankId rank, BufferId parameter) const {
  const auto& buffers = role(rank).buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const bool gradient = buffers[b].persistent && buffers[b].category == MemoryCategory::kGradients;
    if (gradient && buffers[b].tensor == buffers[parameter.index()].tensor)
      return BufferId(static_cast<std::int64_t>(b));
  }
  return {};
}

bool Tables::counts(RankId rank, BufferId buffer) {
  const Buffer& mine = role(rank).buffers[buffer.index()];
  const Elements own = divided(rank)[buffer.index()].own;
  for (std::int32_t r = 0; r < rank.value; ++r) {
    const RankId other(r);
    if (!program_.role_of[other.index()].valid()) continue;
    const auto& buffers = role(other).buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const Buffer& theirs = buffers[b];
      if (!theirs.persistent || theirs.tensor != mine.tensor || theirs.category != mine.category) continue;
      const bool same =
          divided(other)[b].own == own &&
          shard(other, BufferId(static_cast<std::int64_t>(b))).indices == shard(rank, buffer).indices;
      if (same) return false;
    }
  }
  return true;
}

std::vector<Operand> Tables::operands(RankId rank, const Instruction& instruction) const {
  const Role& of_rank = role(rank);
  std::vector<Operand> found;
  for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
    const Operand& operand = of_rank.operands[static_cast<std::size_t>(o)];
    if (of_rank.buffers[operand.buffer.index()].tensor.valid()) found.push_back(operand);
  }
  return found;
}

std::string Tables::name(RankId rank, const Instruction& instruction) const {
  return "rank " + std::to_string(rank.value) + ", " + instruction_name(program_, instruction);
}

Tables::Meeting Tables::meeting(RankId rank, const Work& work) const {
  const auto peer = [&](AxisId axis, std::int32_t offset) {
    const auto& ranks = group(rank, axis);
    const auto size = static_cast<std::int32_t>(ranks.size());
    return ranks[static_cast<std::size_t>(((at(rank, axis).position + offset) % size + size) % size)].value;
  };
  if (const auto* const send = std::get_if<Send>(&work)) {
    return {work.index(), send->axis.value, peer(send->axis, send->offset)};
  }
  if (const auto* const recv = std::get_if<Recv>(&work)) {
    return {work.index(), recv->axis.value, peer(recv->axis, recv->offset)};
  }
  return {work.index(), std::get<Collective>(work).axis.value, -1};
}

std::int32_t Tables::number(RankId rank, std::int32_t instruction) {
  const Work& work = role(rank).instructions[static_cast<std::size_t>(instruction)].work;
  const std::vector<std::int32_t>& all = of(rank).meetings.at(meeting(rank, work));
  return static_cast<std::int32_t>(std::lower_bound(all.begin(), all.end(), instruction) - all.begin());
}

std::pair<RankId, std::int32_t> Tables::other_side(RankId rank, std::int32_t instruction) {
  const Work& work = role(rank).instructions[static_cast<std::size_t>(instruction)].work;
  const auto [kind, axis, other] = meeting(rank, work);
  const bool sends = std::holds_alternative<Send>(work);
  const std::size_t other_kind = sends ? Work(Recv{}).index() : Work(Send{}).index();
  const RankId peer(other);
  const auto& theirs = of(peer).meetings.at({other_kind, axis, rank.value});
  return {peer, theirs[static_cast<std::size_t>(number(rank, instruction))]};
}

std::vector<std::pair<RankId, std::int32_t>> Tables::sides(RankId rank, std::int32_t instruction) {
  const Work& work = role(rank).instructions[static_cast<std::size_t>(instruction)].work;
  const AxisId axis = std::get<Collective>(work).axis;
  const auto position = static_cast<std::size_t>(number(rank, instruction));
  std::vector<std::pair<RankId, std::int32_t>> found;
  for (const RankId member : group(rank, axis)) {
    found.emplace_back(member, of(member).meetings.at({work.index(), axis.value, -1})[position]);
  }
  return found;
}

}  // namespace orrery::host
