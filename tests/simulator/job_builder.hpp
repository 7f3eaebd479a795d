#pragma once
// Jobs written by hand for tests and benchmarks, without costs, clusters or lowering in between.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/program.hpp"
#include "simulator/job.hpp"

namespace orrery::testing {

// Each class gets a role and a rank of its own unless it is added as a copy of another one.
class JobBuilder {
 public:
  struct Place {
    std::int32_t rank_class = 0;
    std::int32_t stream = 0;
    std::vector<Edge> after = {};
  };

  JobBuilder() : program_(std::make_unique<Program>()) { job.program = program_.get(); }

  std::int32_t add_link(std::int64_t bytes_per_s) {
    job.link_capacity.push_back(bytes_per_s);
    return static_cast<std::int32_t>(job.link_capacity.size()) - 1;
  }

  // By stream: its priority.
  std::int32_t add_class(const std::vector<std::int32_t>& priorities = {0, 0, 0}) {
    Role role;
    role.name = "role" + std::to_string(program_->roles.size());
    for (std::size_t s = 0; s < priorities.size(); ++s)
      role.streams.push_back({"stream" + std::to_string(s), priorities[s]});
    program_->roles.push_back(std::move(role));
    const auto id = static_cast<std::int32_t>(job.classes.size());
    const RoleId of(static_cast<std::int64_t>(program_->roles.size()) - 1);
    job.classes.push_back({{of, {RankId(id)}}, {}, {}});
    program_->role_of.push_back(of);
    program_->device_of.push_back(id);
    return id;
  }

  // A class that shares `other`'s role; its rendezvous have to be named by set_rendezvous().
  std::int32_t add_copy(std::int32_t other) {
    const auto id = static_cast<std::int32_t>(job.classes.size());
    job.classes.push_back(job.classes[static_cast<std::size_t>(other)]);
    job.classes.back().ranks.ranks = {RankId(id)};
    program_->role_of.push_back(job.classes.back().ranks.role);
    program_->device_of.push_back(id);
    return id;
  }

  std::int32_t add_transfer(SimTime latency, std::int64_t bytes, std::int64_t rate_cap,
                            const std::vector<LinkUse>& uses) {
    const auto begin = static_cast<std::int32_t>(job.link_uses.size());
    job.link_uses.insert(job.link_uses.end(), uses.begin(), uses.end());
    job.transfers.push_back(
        {latency, bytes, rate_cap, {begin, static_cast<std::int32_t>(job.link_uses.size())}});
    return static_cast<std::int32_t>(job.transfers.size()) - 1;
  }

  std::int32_t add_compute(std::int32_t rank_class, SimTime work, const std::vector<Edge>& after = {},
                           std::int32_t stream = 0) {
    return add_instruction({rank_class, stream, after}, Compute{}, work, -1);
  }

  // One instruction at each place; returns the first one's number.
  std::int32_t add_rendezvous(std::int32_t transfer, const std::vector<Place>& places) {
    const auto met = static_cast<std::int32_t>(job.rendezvous.size());
    const auto begin = static_cast<std::int32_t>(job.participants.size());
    std::int32_t first = -1;
    for (const Place& place : places) {
      const std::int32_t instruction = add_instruction(place, Collective{}, {}, met);
      job.participants.push_back({place.rank_class, instruction});
      if (first < 0) first = instruction;
    }
    job.rendezvous.push_back({transfer, {begin, static_cast<std::int32_t>(job.participants.size())}});
    return first;
  }

  // Of classes added as copies: the meeting of their (existing) instructions.
  void set_rendezvous(std::int32_t transfer, const std::vector<Participant>& participants) {
    const auto met = static_cast<std::int32_t>(job.rendezvous.size());
    const auto begin = static_cast<std::int32_t>(job.participants.size());
    for (const Participant& participant : participants) {
      job.participants.push_back(participant);
      job.classes[static_cast<std::size_t>(participant.rank_class)]
          .rendezvous[static_cast<std::size_t>(participant.instruction)] = met;
    }
    job.rendezvous.push_back({transfer, {begin, static_cast<std::int32_t>(job.participants.size())}});
  }

  // A communication whose meeting set_rendezvous() names later.
  std::int32_t add_open(const Place& place) { return add_instruction(place, Collective{}, {}, -1); }

  Program& program() { return *program_; }

  Job job;

 private:
  std::int32_t add_instruction(const Place& place, Work kind, SimTime work, std::int32_t met) {
    JobClass& rank_class = job.classes[static_cast<std::size_t>(place.rank_class)];
    Role& role = program_->roles[rank_class.ranks.role.index()];
    const auto number = static_cast<std::int32_t>(role.instructions.size());
    Instruction instruction;
    if (program_->labels.empty()) program_->labels.push_back("i");
    instruction.label = LabelId(0);
    instruction.microbatch = number;  // Makes the name unique: "i.m3".
    instruction.stream = StreamId(place.stream);
    instruction.work = kind;
    instruction.after.begin = static_cast<std::int32_t>(role.edges.size());
    role.edges.insert(role.edges.end(), place.after.begin(), place.after.end());
    instruction.after.end = static_cast<std::int32_t>(role.edges.size());
    role.instructions.push_back(instruction);
    rank_class.work.push_back(work);
    rank_class.rendezvous.push_back(met);
    return number;
  }

  std::unique_ptr<Program> program_;
};

}  // namespace orrery::testing
