#include "calibration/host_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"

namespace orrery {
namespace {

// Samples of one transfer in a step.
constexpr std::int32_t kRepeats = 12;

// Four layers, so that a kernel finds in the caches what it finds there in a model: little of its own.
TransformerConfig model_of(std::int64_t hidden) {
  TransformerConfig config;
  config.name = fmt::format("sweep-{}", hidden);
  config.hidden = hidden;
  config.layers = 4;
  config.head_dim = 32;
  config.heads = hidden / config.head_dim;
  config.kv_heads = std::max<std::int64_t>(2, config.heads / 2);
  config.ffn = 3 * hidden;
  config.vocab = 256;
  config.max_positions = 1024;
  return config;
}

struct SweepPoint {
  std::int64_t hidden = 128, sequence = 128, microbatch = 1;
  std::int32_t tp = 1;
  bool training = false;  // With recompute and ordered sums, whose kernels are others.
};

ComputeSweep sweep_of(const SweepPoint& point) {
  const Graph graph = build_training_graph(model_of(point.hidden), DType::kFp32);
  PlanShorthand shorthand;
  shorthand.tp = point.tp;
  shorthand.dp = 1;
  shorthand.global_batch = 2 * point.microbatch;
  Plan& settings = shorthand.settings;
  settings.sequence = point.sequence;
  settings.microbatch_size = point.microbatch;
  settings.compute_dtype = DType::kFp32;
  settings.kernel_set = "orrery-host";
  settings.vocab_multiple = 1;
  if (point.training) {
    settings.recompute = Recompute::kFull;
    settings.gradient_sum = GradientSum::kOrdered;
  }
  const std::string name = fmt::format("hidden {}, {} x {} tokens, tp {}", point.hidden, point.microbatch,
                                       point.sequence, point.tp);
  return plan_sweep(name, graph, expand(shorthand, graph, point.tp));
}

// ---- Transfers: one tensor, whole on every rank.

Graph one_tensor(std::int64_t elements) {
  Graph graph;
  graph.name = "transfer";
  graph.dims.push_back({"elements", DimRole::kOther, elements});
  Tensor tensor;
  tensor.name = "x";
  tensor.dtype = DType::kFp32;
  tensor.shape = {DimId(0)};
  graph.tensors.push_back(tensor);
  return graph;
}

// The k-th of a role's instructions, on its one stream and its one buffer.
void append(Program& program, Role& role, std::int32_t k, const Work& work, bool writes) {
  Instruction instruction;
  instruction.label = program.intern("transfer");
  instruction.microbatch = k;
  instruction.stream = StreamId(0);
  instruction.work = work;
  instruction.operands = {static_cast<std::int32_t>(role.operands.size()),
                          static_cast<std::int32_t>(role.operands.size()) + 1};
  role.operands.push_back({BufferId(0), writes});
  role.instructions.push_back(instruction);
}

Role role_with_buffer(Program& program, const std::string& name, std::int64_t bytes) {
  Role role;
  role.name = name;
  role.streams.push_back({"data", 0});
  Buffer buffer;
  buffer.label = program.intern("x");
  buffer.bytes = bytes;
  buffer.persistent = true;
  buffer.tensor = TensorId(0);
  role.buffers.push_back(buffer);
  return role;
}

TransferSweep transfer(const std::string& kind, std::int32_t ranks, std::int64_t bytes) {
  TransferSweep sweep;
  sweep.kind = kind;
  sweep.ranks = ranks;
  sweep.bytes = static_cast<double>(bytes);
  const std::int64_t elements = bytes / size_bytes(DType::kFp32);
  sweep.graph = one_tensor(elements);
  Program& program = sweep.program;
  program.name = "transfer";
  program.sizes = {elements};
  Axis axis;
  axis.name = "all";
  axis.groups.emplace_back();
  for (std::int32_t r = 0; r < ranks; ++r) {
    axis.groups.front().emplace_back(r);
    program.device_of.push_back(r);
  }
  program.axes.push_back(axis);
  const auto add_role = [&](const std::string& name, const Work& work, bool writes) {
    Role role = role_with_buffer(program, name, bytes);
    for (std::int32_t k = 0; k < kRepeats; ++k) append(program, role, k, work, writes);
    program.roles.push_back(std::move(role));
  };
  if (kind == "message") {
    add_role("sender", Send{AxisId(0), 1, bytes}, false);
    add_role("receiver", Recv{AxisId(0), -1, bytes}, true);
    program.role_of = {RoleId(0), RoleId(1)};
  } else {
    CollectiveKind of = CollectiveKind::kAllReduce;
    for (const CollectiveKind each : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      if (to_string(each) == kind) of = each;
    }
    add_role("member", Collective{of, AxisId(0), bytes, DType::kFp32}, true);
    program.role_of.assign(static_cast<std::size_t>(ranks), RoleId(0));
  }
  place_buffers(program);
  return sweep;
}

}  // namespace

ComputeSweep plan_sweep(const std::string& name, const Graph& graph, const Plan& plan) {
  ComputeSweep sweep;
  sweep.name = name;
  sweep.graph = graph;
  sweep.program = lower(graph, plan);
  place_buffers(sweep.program);
  for (std::size_t role = 0; role < sweep.program.roles.size(); ++role) {
    for (std::size_t rank = 0; rank < sweep.program.role_of.size(); ++rank) {
      if (sweep.program.role_of[rank].value != static_cast<std::int32_t>(role)) continue;
      sweep.ranks.emplace_back(static_cast<std::int64_t>(rank));
      break;
    }
  }
  return sweep;
}

std::vector<ComputeSweep> general_sweeps() {
  std::vector<ComputeSweep> sweeps;
  for (const std::int64_t hidden : {64, 128, 256}) {
    for (const std::int64_t microbatch : {1, 2, 4}) {
      for (const std::int32_t tp : {1, 2}) sweeps.push_back(sweep_of({hidden, 128, microbatch, tp, tp == 1}));
    }
    for (const std::int64_t sequence : {64, 256}) sweeps.push_back(sweep_of({hidden, sequence, 1, 1, false}));
  }
  return sweeps;
}

std::vector<TransferSweep> transfer_sweeps(std::int32_t most_ranks) {
  std::vector<TransferSweep> sweeps;
  for (std::int64_t bytes = 1024; bytes <= std::int64_t{4} << 20; bytes *= 8) {
    sweeps.push_back(transfer("message", 2, bytes));
    for (std::int32_t ranks = 2; ranks <= most_ranks; ranks *= 2) {
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
        sweeps.push_back(transfer(std::string(to_string(kind)), ranks, bytes));
      }
    }
  }
  return sweeps;
}

}  // namespace orrery
