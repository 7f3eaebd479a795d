#include "simulator/transfer_lists.hpp"

#include <algorithm>
#include <set>

namespace orrery::folding {
namespace {

std::int32_t wrapped(std::int32_t offset, std::int32_t size) { return ((offset % size) + size) % size; }

std::int32_t offset_of(const Work& work) {
  const auto* send = std::get_if<Send>(&work);
  return send != nullptr ? send->offset : std::get<Recv>(work).offset;
}

}  // namespace

ListId RoleTraffic::recv_from(std::int32_t offset) const {
  const auto found = std::ranges::find(recvs, offset, &PeerList::offset);
  return found == recvs.end() ? -1 : found->list;
}

TrafficLists::TrafficLists(const Program& program) : program_(program) {
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const std::vector<Instruction>& instructions = program.roles[r].instructions;
    std::vector<Raw> raw(program.axes.size());
    std::vector<std::vector<std::int32_t>> rings(program.axes.size()), all_to_alls(program.axes.size());
    std::array<std::vector<std::int32_t>, 2> copies;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      const Work& work = instructions[i].work;
      if (const auto* collective = std::get_if<Collective>(&work)) {
        const bool all_to_all = collective->kind == CollectiveKind::kAllToAll;
        (all_to_all ? all_to_alls : rings)[collective->axis.index()].push_back(at);
      } else if (const auto* send = std::get_if<Send>(&work)) {
        raw[send->axis.index()].sends.push_back(at);
      } else if (const auto* recv = std::get_if<Recv>(&work)) {
        raw[recv->axis.index()].recvs.push_back(at);
      } else if (const auto* copy = std::get_if<Copy>(&work)) {
        copies[copy->to_host ? 0 : 1].push_back(at);
      }
    }
    const RoleId role(static_cast<std::int64_t>(r));
    for (std::size_t axis = 0; axis < raw.size(); ++axis) {
      raw[axis].rings = add(role, std::move(rings[axis]));
      raw[axis].all_to_alls = add(role, std::move(all_to_alls[axis]));
    }
    raw_.push_back(std::move(raw));
    copies_.push_back({add(role, std::move(copies[0])), add(role, std::move(copies[1]))});
  }
}

ListId TrafficLists::add(RoleId role, std::vector<std::int32_t> instructions) {
  if (instructions.empty()) return -1;
  std::set<StreamId> streams;
  for (const std::int32_t i : instructions)
    streams.insert(program_.roles[role.index()].instructions[static_cast<std::size_t>(i)].stream);
  lists_.push_back({role, std::move(instructions), static_cast<std::int32_t>(streams.size())});
  return static_cast<ListId>(lists_.size()) - 1;
}

const Work& TrafficLists::work(ListId list, std::size_t k) const {
  const List& it = at(list);
  return program_.roles[it.role.index()].instructions[static_cast<std::size_t>(it.instructions[k])].work;
}

std::vector<PeerList> TrafficLists::by_peer(RoleId role, const std::vector<std::int32_t>& instructions,
                                            std::int32_t group_size) {
  std::map<std::int32_t, std::vector<std::int32_t>> peers;
  for (const std::int32_t i : instructions) {
    const Work& work = program_.roles[role.index()].instructions[static_cast<std::size_t>(i)].work;
    peers[wrapped(offset_of(work), group_size)].push_back(i);
  }
  std::vector<PeerList> lists;
  for (auto& [offset, list] : peers) lists.push_back({offset, add(role, std::move(list))});
  return lists;
}

const std::vector<RoleTraffic>& TrafficLists::on_axis(AxisId axis, std::int32_t group_size) {
  const auto [table, fresh] = tables_.try_emplace({axis.value, group_size});
  if (fresh) {
    for (std::size_t r = 0; r < raw_.size(); ++r) {
      const RoleId role(static_cast<std::int64_t>(r));
      const Raw& raw = raw_[r][axis.index()];
      table->second.push_back({raw.rings, raw.all_to_alls, by_peer(role, raw.sends, group_size),
                               by_peer(role, raw.recvs, group_size)});
    }
  }
  return table->second;
}

}  // namespace orrery::folding
