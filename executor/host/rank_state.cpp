#include "executor/host/rank_state.hpp"

#include <algorithm>

namespace orrery::host {

RankState::RankState(const Graph& graph, const Program& program, RankId rank, std::vector<Coordinate> at)
    : role_(&program.roles[program.role_of[rank.index()].index()]), rank_(rank), at_(std::move(at)) {
  own_.resize(role_->buffers.size());
  written_.resize(role_->buffers.size());
  std::int64_t end = 0;
  for (std::size_t b = 0; b < role_->buffers.size(); ++b) {
    const Buffer& buffer = role_->buffers[b];
    shards_.push_back(buffer.tensor.valid() ? shard_of(graph, program, buffer.tensor, buffer.placement, at_)
                                            : Shard{});
    if (buffer.offset >= 0) {
      end = std::max(end, buffer.offset + buffer.bytes);
    } else if (buffer.tensor.valid()) {
      own_[b].assign(shards_[b].size(), kNoValue);
    }
  }
  arena_.assign(static_cast<std::size_t>(end), kNoValue);
}

Values RankState::load(BufferId id) const {
  const Buffer& buffer = role_->buffers[id.index()];
  if (buffer.offset < 0) return own_[id.index()];
  const std::size_t count = shard(id).size();
  Values values(count);
  if (count == 0) return values;
  const std::size_t width = static_cast<std::size_t>(buffer.bytes) / count;
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = arena_[static_cast<std::size_t>(buffer.offset) + i * width];
  }
  return values;
}

void RankState::store(BufferId id, const Values& values) {
  const Buffer& buffer = role_->buffers[id.index()];
  written_[id.index()] = true;
  if (buffer.offset < 0) {
    own_[id.index()] = values;
    return;
  }
  const auto begin = arena_.begin() + buffer.offset;
  std::fill(begin, begin + buffer.bytes, kNoValue);
  if (values.empty()) return;
  const std::size_t width = static_cast<std::size_t>(buffer.bytes) / values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    arena_[static_cast<std::size_t>(buffer.offset) + i * width] = values[i];
  }
}

void RankState::store(BufferId id, const Shard& part, const Values& values) {
  Values all = written(id) ? load(id) : Values(shard(id).size(), kNoValue);
  const std::vector<std::int64_t> at = positions_in(part, shard(id));
  for (std::size_t i = 0; i < at.size(); ++i) all[static_cast<std::size_t>(at[i])] = values[i];
  store(id, all);
}

std::vector<Operand> RankState::operands(const Instruction& instruction) const {
  std::vector<Operand> found;
  for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
    const Operand& operand = role_->operands[static_cast<std::size_t>(o)];
    if (has_tensor(operand.buffer)) found.push_back(operand);
  }
  return found;
}

}  // namespace orrery::host
