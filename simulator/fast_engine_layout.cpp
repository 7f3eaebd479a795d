#include "simulator/fast_engine_layout.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "simulator/engine.hpp"

namespace orrery::fast {
namespace {

// A stream is in order, so an edge within it says nothing new.
void add_dependencies(const Role& role, const Instruction& instruction, Node& node, RoleLayout& layout) {
  const auto add = [&](bool previous_step) {
    for (std::int32_t e = instruction.after.begin; e < instruction.after.end; ++e) {
      const Edge& edge = role.edges[static_cast<std::size_t>(e)];
      const Instruction& on = role.instructions[static_cast<std::size_t>(edge.instruction)];
      if (edge.previous_step == previous_step && on.stream != instruction.stream)
        layout.dependencies.push_back(edge.instruction);
    }
  };
  node.same_step = static_cast<std::int32_t>(layout.dependencies.size());
  add(false);
  node.previous_step = static_cast<std::int32_t>(layout.dependencies.size());
  add(true);
  node.end = static_cast<std::int32_t>(layout.dependencies.size());
}

RoleLayout lay_out(const Role& role) {
  RoleLayout layout;
  std::vector<std::int32_t> next(role.streams.size() + 1, 0);
  for (const Instruction& instruction : role.instructions) ++next[instruction.stream.index() + 1];
  for (std::size_t s = 1; s < next.size(); ++s) next[s] += next[s - 1];
  for (std::size_t s = 0; s + 1 < next.size(); ++s) layout.streams.push_back({next[s], next[s + 1]});

  layout.nodes.resize(role.instructions.size());
  std::vector<char> computes(role.streams.size(), 0);
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Instruction& instruction = role.instructions[i];
    Node& node = layout.nodes[static_cast<std::size_t>(next[instruction.stream.index()]++)];
    node.instruction = static_cast<std::int32_t>(i);
    add_dependencies(role, instruction, node, layout);
    if (std::holds_alternative<Compute>(instruction.work)) computes[instruction.stream.index()] = 1;
  }
  layout.compute_streams = static_cast<std::int32_t>(std::count(computes.begin(), computes.end(), 1));
  return layout;
}

}  // namespace

Layout::Layout(const Job& the_job) : job(the_job) {
  lay_out_classes();
  seats.reserve(job.participants.size());
  for (const Participant& participant : job.participants) {
    const JobClass& rank_class = job.classes[static_cast<std::size_t>(participant.rank_class)];
    const Role& role = job.program->roles[rank_class.ranks.role.index()];
    const StreamId stream = role.instructions[static_cast<std::size_t>(participant.instruction)].stream;
    const auto c = static_cast<std::size_t>(participant.rank_class);
    seats.push_back({first_stream[c] + stream.value, first_instruction[c] + participant.instruction});
  }
  lay_out_transfers(links_that_can_fill(*this));
}

void Layout::lay_out_classes() {
  for (const Role& role : job.program->roles) roles.push_back(lay_out(role));
  first_stream.push_back(0);
  first_instruction.push_back(0);
  for (const JobClass& rank_class : job.classes) {
    const std::size_t r = rank_class.ranks.role.index();
    const Role& role = job.program->roles[r];
    const RoleLayout& layout = roles[r];
    assert(rank_class.work.size() == role.instructions.size());
    assert(rank_class.rendezvous.size() == role.instructions.size());
    for (std::size_t s = 0; s < layout.streams.size(); ++s) {
      StreamLayout stream;
      stream.rank_class = static_cast<std::int32_t>(first_stream.size()) - 1;
      stream.base = first_instruction.back();
      stream.priority = role.streams[s].priority;
      stream.step_launch = static_cast<std::int64_t>(role.instructions.size()) * job.launch.picoseconds;
      stream.begin = layout.nodes.data() + layout.streams[s].begin;
      stream.end = layout.nodes.data() + layout.streams[s].end;
      stream.dependencies = layout.dependencies.data();
      stream.work = rank_class.work.data();
      stream.rendezvous = rank_class.rendezvous.data();
      streams.push_back(stream);
    }
    first_stream.push_back(static_cast<std::int32_t>(streams.size()));
    first_instruction.push_back(first_instruction.back() +
                                static_cast<std::int32_t>(role.instructions.size()));
  }
}

void Layout::lay_out_transfers(const std::vector<char>& can_fill) {
  transfers.reserve(job.transfers.size());
  for (const Transfer& transfer : job.transfers) {
    TransferLayout laid;
    laid.latency = transfer.latency.picoseconds;
    laid.duration = uncontended_time(transfer).picoseconds - laid.latency;
    laid.bytes = transfer.bytes;
    assert(transfer.rate_cap < std::numeric_limits<Rate>::max() / kRatePerByte);
    laid.cap = transfer.rate_cap * kRatePerByte;
    laid.slowed_cap = std::max<Rate>(
        1, static_cast<Rate>(std::llround(static_cast<double>(laid.cap) / job.transfer_interference)));
    laid.uses.begin = static_cast<std::int32_t>(uses.size());
    if (laid.duration > 0)
      for (std::int32_t u = transfer.links.begin; u < transfer.links.end; ++u) {
        const LinkUse& use = job.link_uses[static_cast<std::size_t>(u)];
        if (can_fill[static_cast<std::size_t>(use.link)]) uses.push_back(use);
      }
    laid.uses.end = static_cast<std::int32_t>(uses.size());
    transfers.push_back(laid);
  }
}

}  // namespace orrery::fast
