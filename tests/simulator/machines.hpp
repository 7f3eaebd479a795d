#pragma once
// Small machines and programs for tests, with numbers that can be checked by hand.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "model/program.hpp"
#include "simulator/engine.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery::testing {

// One node with two GPUs joined by one cable.
inline Cluster two_ranks(double bytes_per_s, SimTime latency) {
  Cluster cluster;
  cluster.name = "two";
  cluster.node.name = "pair";
  cluster.node.gpus = 2;
  cluster.node.devices = {{"gpu0", DeviceKind::kGpu}, {"gpu1", DeviceKind::kGpu}};
  cluster.node.links = {{"cable", 0, 1, LinkKind::kNvLink, bytes_per_s, latency.seconds()}};
  return cluster;
}

// `nodes` of the catalogue's `name`, under leaf switches of `nodes_per_leaf`.
inline Cluster cluster_of(const char* name, std::int32_t nodes, double oversubscription = 1,
                          std::int32_t nodes_per_leaf = 32) {
  Cluster cluster;
  cluster.name = name;
  cluster.node = catalogue_node(name).value();
  cluster.nodes = nodes;
  cluster.fabric.nodes_per_leaf = nodes_per_leaf;
  cluster.fabric.oversubscription = oversubscription;
  return cluster;
}

// Any kind of fabric with any routing, for the cluster's nodes. Some take more nodes than there were.
inline void randomize_fabric(Random& random, Cluster& cluster) {
  Fabric& fabric = cluster.fabric;
  const FabricKind kinds[] = {FabricKind::kRailOptimised, FabricKind::kFatTree, FabricKind::kRailOnly,
                              FabricKind::kDragonfly, FabricKind::kTorus};
  fabric.kind = kinds[random.between(0, 4)];
  fabric.routing = random.between(0, 1) == 0 ? FabricRouting::kAdaptive : FabricRouting::kEcmp;
  fabric.hash_seed = static_cast<std::uint64_t>(random.between(0, 1000));
  if (random.between(0, 2) == 0) fabric.tiers = {{2, 1.5}};
  fabric.switches_per_group = 2;
  fabric.global_links = 8;
  if (fabric.kind != FabricKind::kTorus) return;
  const std::int32_t width = cluster.nodes > 3 ? 2 : 1, height = (cluster.nodes + width - 1) / width;
  fabric.torus = {width, height};
  cluster.nodes = width * height;
}

// One isolated step on an ideal machine.
inline Timeline simulate(const Program& program, const Cluster& cluster, const JobOptions& options = {}) {
  EngineOptions one_step;
  one_step.max_steps = 1;
  return orrery::simulate(program, cluster, Profile(), options, one_step);
}

// Ranks as tensor × pipeline × data parallel, tensor parallel next to each other:
// rank = (replica · pp + stage) · tp + t.
struct Grid {
  std::int32_t tp = 1, pp = 1, dp = 1;
  std::int32_t microbatches = 2;
  std::int32_t layers = 2;  // Per stage.
};

// Appends instructions to a role; dependencies by index.
class RoleWriter {
 public:
  RoleWriter(Program& program, std::string name, std::vector<Stream> streams) : program_(program) {
    role_.name = std::move(name);
    role_.streams = std::move(streams);
  }

  std::int32_t add(const std::string& label, std::int32_t stream, Work work, std::int32_t microbatch,
                   std::int32_t layer, const std::vector<std::int32_t>& after) {
    const auto begin = static_cast<std::int32_t>(role_.edges.size());
    for (const std::int32_t instruction : after)
      if (instruction >= 0) role_.edges.push_back({instruction, false});
    Instruction instruction;
    instruction.label = program_.intern(label);
    instruction.layer = layer;
    instruction.microbatch = microbatch;
    instruction.stream = StreamId(stream);
    instruction.work = work;
    instruction.after = {begin, static_cast<std::int32_t>(role_.edges.size())};
    role_.instructions.push_back(instruction);
    return static_cast<std::int32_t>(role_.instructions.size()) - 1;
  }

  Role take() { return std::move(role_); }

 private:
  Program& program_;
  Role role_;
};

inline KernelId fixed_kernel(Program& program, SimTime time) {
  Kernel kernel;
  kernel.label = program.intern("kernel");
  kernel.kind = KernelKind::kFixed;
  kernel.fixed = time;
  program.kernels.push_back(kernel);
  return KernelId(static_cast<std::int64_t>(program.kernels.size()) - 1);
}

inline void add_axes(Program& program, const Grid& grid) {
  const std::int32_t world = grid.tp * grid.pp * grid.dp;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<RankId>> tp, pp, dp;
  for (std::int32_t rank = 0; rank < world; ++rank) {
    const std::int32_t t = rank % grid.tp, stage = rank / grid.tp % grid.pp,
                       replica = rank / grid.tp / grid.pp;
    tp[{stage, replica}].push_back(RankId(rank));
    pp[{t, replica}].push_back(RankId(rank));
    dp[{t, stage}].push_back(RankId(rank));
    program.role_of.push_back(RoleId(stage));
    program.device_of.push_back(rank);
  }
  const auto add = [&](const char* name, auto& groups) {
    Axis axis;
    axis.name = name;
    for (auto& [key, group] : groups) axis.groups.push_back(std::move(group));
    program.axes.push_back(std::move(axis));
  };
  add("tp", tp);
  add("pp", pp);
  add("dp", dp);
}

// All forwards, then all backwards (GPipe); an all-reduce over tp after each layer, gradients reduced over dp
// layer by layer while the last backward still runs.
inline Program grid_program(const Grid& grid) {
  using enum CollectiveKind;
  const AxisId tp(0), pp(1), dp(2);
  Program program;
  program.name = "grid";
  add_axes(program, grid);
  const KernelId forward = fixed_kernel(program, {50'000'000}),
                 backward = fixed_kernel(program, {100'000'000});
  constexpr std::int64_t kActivation = 16 << 20, kGradient = 256 << 20;
  for (std::int32_t stage = 0; stage < grid.pp; ++stage) {
    RoleWriter role(program, "stage" + std::to_string(stage),
                    {{"compute", 0}, {"tp", 0}, {"send", 0}, {"recv", 0}, {"dp", 0}});
    const bool first = stage == 0, last = stage == grid.pp - 1;
    for (std::int32_t m = 0; m < grid.microbatches; ++m) {
      std::int32_t ready = first ? -1 : role.add("rf", 3, Recv{pp, -1, kActivation}, m, -1, {});
      for (std::int32_t l = 0; l < grid.layers; ++l) {
        ready = role.add("f", 0, Compute{forward}, m, l, {ready});
        if (grid.tp > 1) ready = role.add("af", 1, Collective{kAllReduce, tp, kActivation}, m, l, {ready});
      }
      if (!last) role.add("sf", 2, Send{pp, 1, kActivation}, m, -1, {ready});
    }
    for (std::int32_t m = 0; m < grid.microbatches; ++m) {
      std::int32_t ready = last ? -1 : role.add("rb", 3, Recv{pp, 1, kActivation}, m, -1, {});
      for (std::int32_t l = grid.layers; l-- > 0;) {
        ready = role.add("b", 0, Compute{backward}, m, l, {ready});
        if (grid.tp > 1) ready = role.add("ab", 1, Collective{kAllReduce, tp, kActivation}, m, l, {ready});
        if (grid.dp > 1 && m == grid.microbatches - 1)
          role.add("g", 4, Collective{kAllReduce, dp, kGradient}, -1, l, {ready});
      }
      if (!first) role.add("sb", 2, Send{pp, -1, kActivation}, m, -1, {ready});
    }
    program.roles.push_back(role.take());
  }
  return program;
}

}  // namespace orrery::testing
