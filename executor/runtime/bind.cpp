#include <cassert>

#include "base/error.hpp"
#include "executor/runtime/bind_parts.hpp"

namespace orrery::host {
namespace {

void bind_order(const Role& role, BoundRank& bound) {
  bound.streams.resize(role.streams.size());
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Instruction& instruction = role.instructions[i];
    bound.streams[instruction.stream.index()].push_back(static_cast<std::int32_t>(i));
    for (std::int32_t e = instruction.after.begin; e < instruction.after.end; ++e) {
      const Edge& edge = role.edges[static_cast<std::size_t>(e)];
      BoundInstruction& of = bound.instructions[i];
      (edge.previous_step ? of.after_previous : of.after).push_back(edge.instruction);
    }
  }
}

void bind_actions(Tables& tables, const Role& role, std::byte* scratch, LaunchScratch& layout,
                  BoundRank& bound) {
  std::vector<bool> begun(role.buffers.size());
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    if (!std::holds_alternative<Compute>(role.instructions[i].work)) continue;
    bound.instructions[i].actions =
        bind_compute(tables, bound.rank, static_cast<std::int32_t>(i), scratch, layout, begun);
  }
}

}  // namespace

void refuse(const Tables& tables, RankId rank, const Instruction& instruction, const std::string& what) {
  fail(ErrorKind::kRuntime,
       "this plan can't be run, though it can be simulated: {}: {}; this is a fault of orrery: please report "
       "it "
       "with the scenario",
       tables.name(rank, instruction), what);
}

BoundRank bind_computes(const Graph& graph, const World& world, RankId rank, const ScratchSource& scratch) {
  Tables tables(graph, world);
  const Role& role = world.role(rank);
  BoundRank bound;
  bound.rank = rank;
  bound.instructions.resize(role.instructions.size());
  bind_order(role, bound);
  // Twice: once to learn how much scratch the largest launch takes.
  LaunchScratch layout;
  bind_actions(tables, role, nullptr, layout, bound);
  bound.scratch_bytes = layout.bytes();
  std::byte* memory = nullptr;
  if (scratch) {
    memory = scratch(bound.scratch_bytes + 64);
  } else {
    bound.scratch = std::make_unique<std::byte[]>(static_cast<std::size_t>(bound.scratch_bytes + 64));
    memory = bound.scratch.get();
  }
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64);
  bind_actions(tables, role, aligned, layout, bound);
  return bound;
}

BoundRank bind_rank(const Graph& graph, const World& world, RankId rank) {
  BoundRank bound = bind_computes(graph, world, rank);
  Tables tables(graph, world);
  const auto& instructions = world.role(rank).instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Work& work = instructions[i].work;
    if (std::holds_alternative<Compute>(work) || std::holds_alternative<Copy>(work)) continue;
    bound.instructions[i].exchange = bind_exchange(tables, rank, static_cast<std::int32_t>(i));
  }
  return bound;
}

}  // namespace orrery::host
