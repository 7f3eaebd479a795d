#include "executor/device/lower_exchange.hpp"

#include <algorithm>

#include "executor/device/exchange_writer.hpp"
#include "executor/runtime/bind_parts.hpp"

namespace orrery::device {
namespace {

using host::dtype_of;
using host::Run;
using host::Shard;
using host::TensorView;

class ExchangeLowering {
 public:
  ExchangeLowering(host::Tables& tables, RankId rank, std::int32_t index, std::vector<Group>& groups)
      : tables_(tables),
        rank_(rank),
        index_(index),
        instruction_(tables.role(rank).instructions[static_cast<std::size_t>(index)]),
        groups_(groups) {}

  LoweredExchange message();
  LoweredExchange collective(std::byte* scratch, double* norm_squared);

 private:
  [[noreturn]] void fault(const std::string& what) const { refuse(tables_, rank_, instruction_, what); }
  const Collective& work() const { return std::get<Collective>(instruction_.work); }
  bool sums() const {
    return work().kind == CollectiveKind::kReduceScatter || work().kind == CollectiveKind::kAllReduce;
  }

  void check_type(DType dtype) const {
    if (sums() && work().reduction == Reduction::kTreeSum && dtype != DType::kFp32) {
      fault("a sum over a tree of another type than fp32");
    }
  }

  // ---- Groups.

  const Instruction& theirs(RankId rank, std::int32_t index) const {
    return tables_.role(rank).instructions[static_cast<std::size_t>(index)];
  }
  const std::string& stream_name(RankId rank, std::int32_t index) const {
    return tables_.role(rank).streams[theirs(rank, index).stream.index()].name;
  }
  std::string axis_name(AxisId axis) const {
    return tables_.program().axes[axis.index()].name + " " + std::to_string(tables_.at(rank_, axis).group);
  }
  std::int32_t intern(Group group) {
    const auto found = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const Group& known) { return known.name == group.name; });
    if (found != groups_.end()) return static_cast<std::int32_t>(found - groups_.begin());
    groups_.push_back(std::move(group));
    return static_cast<std::int32_t>(std::ssize(groups_) - 1);
  }
  std::int32_t group_of_collective();
  std::int32_t group_of_message(RankId from, std::int32_t sends, RankId to, std::int32_t receives,
                                AxisId axis);

  // ---- In place.

  // Elements of an operand that take part, where they are in the member's arena.
  struct Part {
    std::int64_t offset = 0, elements = 0;
    DType dtype = DType::kFp32;
    std::int64_t bytes() const { return elements * size_bytes(dtype); }
  };
  std::vector<Part> parts_of(std::size_t member);
  std::vector<std::vector<Part>> joined_parts();
  void in_place(ExchangeWriter& writer);
  bool divided_by_placement();
  BufferId updated_by(std::size_t member, const Operand& operand) const;
  void gather_updated(ExchangeWriter& writer);

  // ---- Between operands.

  void between(ExchangeWriter& writer);
  TensorId tensor_of(std::size_t member, const Operand& operand) const {
    return tables_.role(sides_[member].first).buffers[operand.buffer.index()].tensor;
  }
  BufferId operand_of(std::size_t member, TensorId tensor, bool writes) const;
  // Of each member, what holds the tensor of one of this rank's targets.
  struct Ends {
    std::vector<const Shard*> sources, targets;
    std::vector<Shard> wanted;  // Of the target, what the instruction brings.
    Arrays from, to;            // This rank's.
    bool one_want = true;       // All members want the same.
    bool one_target = true;     // All members' targets hold the same.
  };
  Ends ends_of(const Operand& target);
  void gather(const Ends& ends, ExchangeWriter& writer);
  void reduce(const Ends& ends, ExchangeWriter& writer);
  std::vector<Slot> slots_to(const Ends& ends, std::size_t member) const;

  host::Tables& tables_;
  RankId rank_;
  std::int32_t index_;
  const Instruction& instruction_;
  std::vector<Group>& groups_;
  std::vector<std::pair<RankId, std::int32_t>> sides_;
  std::vector<std::vector<Operand>> operands_;  // By member.
  std::size_t own_ = 0;
};

std::int32_t ExchangeLowering::group_of_collective() {
  Group group;
  std::vector<std::string> streams;
  for (const auto& [member, index] : sides_) {
    if (member == rank_) group.position = static_cast<std::int32_t>(std::ssize(group.ranks));
    group.ranks.push_back(member.value);
    // All have one name as a rule. Where they don't each stream still meets the same others only.
    const std::string& stream = stream_name(member, index);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  }
  group.name = axis_name(work().axis) + " on stream";
  for (const std::string& stream : streams) group.name += " " + stream;
  return intern(std::move(group));
}

std::int32_t ExchangeLowering::group_of_message(RankId from, std::int32_t sends, RankId to,
                                                std::int32_t receives, AxisId axis) {
  Group group;
  group.ranks = {from.value, to.value};
  group.position = rank_ == from ? 0 : 1;
  group.name = axis_name(axis) + " from " + std::to_string(from.value) + " on stream " +
               stream_name(from, sends) + " to " + std::to_string(to.value) + " on stream " +
               stream_name(to, receives);
  return intern(std::move(group));
}

LoweredExchange ExchangeLowering::message() {
  LoweredExchange exchange;
  const auto [peer, other] = tables_.other_side(rank_, index_);
  if (peer == rank_) fault("a message to the rank itself");
  const Send* const sends = std::get_if<Send>(&instruction_.work);
  const auto mine = tables_.operands(rank_, instruction_);
  const auto others = tables_.operands(peer, theirs(peer, other));
  if (mine.size() != others.size()) fault("the message's two ends hold different tensors");
  for (std::size_t o = 0; o < mine.size(); ++o) {
    const TensorView view = tables_.view(rank_, mine[o].buffer);
    const Buffer& buffer = tables_.role(peer).buffers[others[o].buffer.index()];
    const bool fits = tables_.elements(peer)[others[o].buffer.index()] == view.elements &&
                      dtype_of(tables_.graph(), tables_.program(), buffer) == view.dtype;
    if (!fits) fault("the message's two ends differ in size or type");
    if (view.elements == 0) continue;
    Call call;
    call.kind = sends != nullptr ? CallKind::kSend : CallKind::kReceive;
    call.peer = sends != nullptr ? 1 : 0;
    call.count = view.elements;
    call.dtype = view.dtype;
    if (sends != nullptr)
      call.from = view.data;
    else
      call.to = view.data;
    exchange.calls.push_back(call);
  }
  if (exchange.calls.empty()) return exchange;
  exchange.group = sends != nullptr
                       ? group_of_message(rank_, index_, peer, other, sends->axis)
                       : group_of_message(peer, other, rank_, index_, std::get<Recv>(instruction_.work).axis);
  return exchange;
}

LoweredExchange ExchangeLowering::collective(std::byte* scratch, double* norm_squared) {
  LoweredExchange exchange;
  sides_ = tables_.sides(rank_, index_);
  for (std::size_t m = 0; m < sides_.size(); ++m) {
    const auto& [member, index] = sides_[m];
    operands_.push_back(tables_.operands(member, theirs(member, index)));
    if (member == rank_) own_ = m;
  }
  const auto& mine = operands_[own_];
  ExchangeWriter writer(exchange, sides_.size(), own_, scratch);
  if (mine.empty()) {
    if (instruction_.operands.begin != instruction_.operands.end) fault("its operands hold no tensor");
    Call norm;
    norm.fp64 = true;
    norm.count = 1;
    norm.from = norm.to = reinterpret_cast<std::byte*>(norm_squared);
    if (sides_.size() > 1) exchange.calls.push_back(norm);
  } else if (std::all_of(mine.begin(), mine.end(), [](const Operand& operand) { return operand.writes; })) {
    in_place(writer);
  } else {
    between(writer);
  }
  // Also without calls of its own: others may have some, and the group is made by all.
  if (sides_.size() > 1) exchange.group = group_of_collective();
  return exchange;
}

// ---- In place, on the concatenation of all operands. Of a gradient that an earlier collective has divided
// only the rank's own elements are a sum, so only they take part.

std::vector<ExchangeLowering::Part> ExchangeLowering::parts_of(std::size_t member) {
  const auto [rank, index] = sides_[member];
  const Role& role = tables_.role(rank);
  std::vector<Part> parts;
  for (const Operand& operand : operands_[member]) {
    const Buffer& buffer = role.buffers[operand.buffer.index()];
    Part part = {buffer.offset, tables_.elements(rank)[operand.buffer.index()],
                 dtype_of(tables_.graph(), tables_.program(), buffer)};
    const host::DividedGradient& divided = tables_.divided(rank)[operand.buffer.index()];
    const bool earlier = divided.collective >= 0 && divided.collective < index;
    if (earlier && buffer.category == MemoryCategory::kGradients) {
      part.offset += divided.own.begin * size_bytes(part.dtype);
      part.elements = divided.own.size();
    }
    parts.push_back(part);
  }
  return parts;
}

// By member, those that lie one after the other on all members as one.
std::vector<std::vector<ExchangeLowering::Part>> ExchangeLowering::joined_parts() {
  std::vector<std::vector<Part>> all, joined(sides_.size());
  for (std::size_t m = 0; m < sides_.size(); ++m) all.push_back(parts_of(m));
  for (std::size_t o = 0; o < all[own_].size(); ++o) {
    bool joins = !joined[own_].empty();
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      if (all[m].size() != all[own_].size() || all[m][o].elements != all[own_][o].elements) {
        fault("the ranks' operands differ in size");
      }
      if (all[m][o].dtype != all[own_].front().dtype) fault("its operands differ in type");
      joins = joins && joined[m].back().offset + joined[m].back().bytes() == all[m][o].offset;
    }
    if (all[own_][o].elements == 0) continue;
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      if (joins)
        joined[m].back().elements += all[m][o].elements;
      else
        joined[m].push_back(all[m][o]);
    }
  }
  return joined;
}

void ExchangeLowering::in_place(ExchangeWriter& writer) {
  const std::vector<Part> parts = joined_parts()[own_];
  if (!sums() && divided_by_placement()) return gather_updated(writer);
  if (parts.empty()) return;
  check_type(parts.front().dtype);
  Arrays arrays;
  std::vector<std::int64_t> lengths;
  for (const Part& part : parts) {
    arrays.push_back({tables_.world().arena(rank_) + part.offset, part.dtype, part.elements});
    lengths.push_back(part.elements);
  }
  const std::int64_t members = std::ssize(sides_);
  if (work().kind == CollectiveKind::kAllReduce) {
    return writer.all_reduce(own_slot(lengths, 1, 0), arrays, arrays, true, work().reduction);
  }
  std::vector<Slot> slots;
  for (std::int64_t m = 0; m < members; ++m) slots.push_back(own_slot(lengths, members, m));
  if (sums()) {
    writer.reduce_scatter(slots, arrays, arrays, work().reduction);
  } else {
    writer.gather(slots, arrays, arrays, true, true);
  }
}

// ZeRO 2: a rank has updated what its gradients are of, not a part of the concatenation.
bool ExchangeLowering::divided_by_placement() {
  return std::any_of(operands_[own_].begin(), operands_[own_].end(), [&](const Operand& operand) {
    const BufferId gradient = updated_by(own_, operand);
    return gradient.valid() &&
           tables_.shard(rank_, gradient).indices != tables_.shard(rank_, operand.buffer).indices;
  });
}

BufferId ExchangeLowering::updated_by(std::size_t member, const Operand& operand) const {
  const RankId rank = sides_[member].first;
  const Buffer& buffer = tables_.role(rank).buffers[operand.buffer.index()];
  const bool parameter = buffer.persistent && buffer.category == MemoryCategory::kParameters;
  return parameter ? tables_.gradient_of(rank, operand.buffer) : BufferId();
}

void ExchangeLowering::gather_updated(ExchangeWriter& writer) {
  Arrays arrays;
  for (const Operand& operand : operands_[own_]) arrays.push_back(tables_.view(rank_, operand.buffer));
  std::vector<Slot> slots;
  for (std::size_t m = 0; m < sides_.size(); ++m) {
    Slot& slot = slots.emplace_back();
    for (std::size_t o = 0; o < operands_[own_].size(); ++o) {
      const RankId rank = sides_[m].first;
      const Shard& mine = tables_.shard(rank_, operands_[own_][o].buffer);
      if (tables_.shard(rank, operands_[m][o].buffer).indices != mine.indices) {
        fault("the ranks' parameters are different parts");
      }
      const BufferId gradient = updated_by(m, operands_[m][o]);
      if (!gradient.valid()) fault("a parameter without a gradient");
      for (const Run& run : runs_between(mine, tables_.shard(rank, gradient))) {
        slot.push_back({static_cast<std::int32_t>(o), run.to, run.to, run.count});
      }
    }
  }
  writer.gather(slots, arrays, arrays, true, true);
}

// ---- From an operand that is only read to the one that is written and holds the same tensor.

BufferId ExchangeLowering::operand_of(std::size_t member, TensorId tensor, bool writes) const {
  for (const Operand& operand : operands_[member]) {
    if (operand.writes == writes && tensor_of(member, operand) == tensor) return operand.buffer;
  }
  fault(writes ? "the ranks' operands differ" : "has no source for what it writes");
}

ExchangeLowering::Ends ExchangeLowering::ends_of(const Operand& target) {
  Ends ends;
  const TensorId tensor = tensor_of(own_, target);
  const Piece& of = instruction_.piece;
  const std::int32_t segments = work().kind == CollectiveKind::kReduceScatter ? 1 : of.segments;
  for (std::size_t m = 0; m < sides_.size(); ++m) {
    const RankId member = sides_[m].first;
    ends.sources.push_back(&tables_.shard(member, operand_of(m, tensor, false)));
    ends.targets.push_back(&tables_.shard(member, operand_of(m, tensor, true)));
    ends.wanted.push_back(piece_of(tables_.graph(), tensor, *ends.targets[m], of, segments));
    ends.one_want = ends.one_want && ends.wanted[m].indices == ends.wanted.front().indices;
    ends.one_target = ends.one_target && ends.targets[m]->indices == ends.targets.front()->indices;
  }
  ends.from = {tables_.view(rank_, operand_of(own_, tensor, false))};
  ends.to = {tables_.view(rank_, target.buffer)};
  if (ends.from.front().dtype != ends.to.front().dtype) fault("source and target differ in type");
  check_type(ends.to.front().dtype);
  return ends;
}

void ExchangeLowering::between(ExchangeWriter& writer) {
  for (const Operand& target : operands_[own_]) {
    if (!target.writes) continue;
    const Ends ends = ends_of(target);
    if (sums())
      reduce(ends, writer);
    else
      gather(ends, writer);
  }
}

// What `member` takes from each one: every element from the first that has it.
std::vector<Slot> ExchangeLowering::slots_to(const Ends& ends, std::size_t member) const {
  const std::vector<Run> into = runs_between(*ends.targets[member], ends.wanted[member]);
  std::vector<Slot> slots;
  std::int64_t found = 0;
  for (const std::vector<Run>& runs : first_sources(ends.wanted[member], ends.sources)) {
    slots.push_back(through(into, runs));
    found += elements(slots.back());
  }
  if (found != static_cast<std::int64_t>(ends.wanted[member].size())) {
    fault("nobody has a part of what it brings");
  }
  return slots;
}

void ExchangeLowering::gather(const Ends& ends, ExchangeWriter& writer) {
  const std::vector<Slot> in = slots_to(ends, own_);
  if (ends.one_want) return writer.gather(in, ends.from, ends.to, ends.one_target, false);
  std::vector<Slot> out;
  for (std::size_t m = 0; m < sides_.size(); ++m) out.push_back(slots_to(ends, m)[own_]);
  writer.all_to_all(in, out, ends.from, ends.to);
}

void ExchangeLowering::reduce(const Ends& ends, ExchangeWriter& writer) {
  std::vector<Slot> slots;
  for (std::size_t m = 0; m < sides_.size(); ++m) {
    if (ends.sources[m]->indices != ends.sources.front()->indices) {
      fault("partial sums that lie in different ways");
    }
    const std::vector<Run> into = runs_between(*ends.targets[m], ends.wanted[m]);
    slots.push_back(through(into, runs_between(ends.wanted[m], *ends.sources[m])));
    if (elements(slots.back()) != static_cast<std::int64_t>(ends.wanted[m].size())) {
      fault("nobody has a part of what it brings");
    }
  }
  if (ends.one_want) {
    writer.all_reduce(slots[own_], ends.from, ends.to, ends.one_target, work().reduction);
  } else {
    writer.reduce_scatter(slots, ends.from, ends.to, work().reduction);
  }
}

}  // namespace

LoweredExchange lower_exchange(host::Tables& tables, RankId rank, std::int32_t instruction,
                               std::vector<Group>& groups, std::byte* scratch, double* norm_squared) {
  ExchangeLowering lowering(tables, rank, instruction, groups);
  const Work& work = tables.role(rank).instructions[static_cast<std::size_t>(instruction)].work;
  return std::holds_alternative<Collective>(work) ? lowering.collective(scratch, norm_squared)
                                                  : lowering.message();
}

}  // namespace orrery::device
