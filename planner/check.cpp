// Rules that every normal-form plan must keep, and habits that cost when broken.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "base/units.hpp"
#include "planner/groups.hpp"
#include "planner/kernel_set.hpp"
#include "planner/plan.hpp"
#include "planner/recompute.hpp"
#include "planner/sharding.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

using Faults = std::vector<std::string>;

std::string where(std::size_t replica, std::size_t stage) {
  return fmt::format("plan: replica {}, stage {}", replica, stage);
}

void check_blocks(const Plan& plan, const Graph& graph, Faults& faults) {
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const PipelineReplica& replica = plan.replicas[r];
    if (replica.stages.empty()) faults.push_back(fmt::format("plan: replica {} has no stages", r));
    if (replica.microbatches < 1) {
      faults.push_back(
          fmt::format("plan: replica {} has {} micro-batches; give each at least 1, or list its "
                      "ranks as idle",
                      r, replica.microbatches));
    }
    std::int32_t next = 0;
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const Stage& stage = replica.stages[s];
      if (stage.first_block != next || stage.last_block < stage.first_block) {
        faults.push_back(fmt::format("{} covers blocks from {} to before {}; expected to start at {}",
                                     where(r, s), stage.first_block, stage.last_block, next));
      }
      next = stage.last_block;
    }
    if (next != graph.block_count() && !replica.stages.empty()) {
      faults.push_back(fmt::format("plan: replica {} ends at block {} of {}", r, next, graph.block_count()));
    }
  }
}

void check_ranks(const Plan& plan, Faults& faults) {
  const std::int32_t world = plan.world_size();
  std::vector<bool> seen(static_cast<std::size_t>(world));
  const auto take = [&](RankId rank, const std::string& place) {
    if (rank.value < 0 || rank.value >= world) {
      faults.push_back(fmt::format("{}: rank {} is outside 0 … {}", place, rank.value, world - 1));
    } else if (seen[rank.index()]) {
      faults.push_back(fmt::format("{}: rank {} is used twice", place, rank.value));
    } else {
      seen[rank.index()] = true;
    }
  };
  std::size_t degree = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto positions = pipeline_positions(plan.replicas[r]);
    for (std::size_t p = 0; p < positions.size(); ++p) {
      const std::string place = fmt::format("plan: replica {}, pipeline position {}", r, p);
      for (const RankId rank : *positions[p]) take(rank, place);
      if (positions[p]->empty()) faults.push_back(place + " has no ranks");
      if (degree == 0) degree = positions[p]->size();
      if (positions[p]->size() != degree) {
        faults.push_back(fmt::format("{} has {} ranks, others {}; every one needs tp × cp ranks", place,
                                     positions[p]->size(), degree));
      }
    }
  }
  if (plan.context_parallel < 1 || degree % static_cast<std::size_t>(plan.context_parallel) != 0) {
    faults.push_back(
        fmt::format("plan.cp: {} doesn't divide the {} ranks of a stage into tensor-parallel groups",
                    plan.context_parallel, degree));
  }
  for (const RankId rank : plan.idle) take(rank, "plan: idle");
  if (plan.device_of.empty()) return;
  std::vector<std::int32_t> devices = plan.device_of;
  std::sort(devices.begin(), devices.end());
  const bool distinct = std::adjacent_find(devices.begin(), devices.end()) == devices.end();
  if (std::ssize(devices) != world || devices.front() < 0 || !distinct) {
    faults.push_back(fmt::format("plan.placement: {} GPUs for {} ranks; give every rank a GPU of its own",
                                 devices.size(), world));
  }
}

// The order of passes exists, and the stages lie where it expects them.
void check_schedule(const Plan& plan, Faults& faults) {
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const PipelineReplica& replica = plan.replicas[r];
    const ScheduleShape shape = schedule_shape(plan, replica);
    if (const std::string fault = schedule_fault(shape); !fault.empty()) {
      faults.push_back(fmt::format("plan: replica {}: {}", r, fault));
      continue;
    }
    const Schedule schedule = build_schedule(shape);
    if (schedule.stages() != static_cast<std::int32_t>(std::ssize(replica.stages))) {
      faults.push_back(fmt::format("plan: replica {} has {} stages on {} positions; {} needs {}", r,
                                   replica.stages.size(), shape.ranks, to_string(plan.schedule),
                                   schedule.stages()));
      continue;
    }
    const auto positions = pipeline_positions(replica);
    for (std::int32_t s = 0; s < schedule.stages(); ++s) {
      const auto expected = static_cast<std::size_t>(schedule.place_of(s, 0).rank);
      if (replica.stages[static_cast<std::size_t>(s)].ranks != *positions[expected]) {
        faults.push_back(fmt::format("{} is not on the ranks of pipeline position {}, where {} puts it",
                                     where(r, static_cast<std::size_t>(s)), expected,
                                     to_string(plan.schedule)));
      }
    }
  }
}

// A dimension of the experts' matrices.
bool of_experts(const Graph& graph, DimId dim) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(), [&](const Tensor& tensor) {
    return tensor.kind == TensorKind::kParameter && tensor.shape.size() > 1 &&
           graph[tensor.shape[0]].role == DimRole::kExperts &&
           std::find(tensor.shape.begin() + 1, tensor.shape.end(), dim) != tensor.shape.end();
  });
}

void check_divisible(const Plan& plan, const Graph& graph, Faults& faults) {
  const std::int64_t degree = plan.tensor_parallel();
  for (std::size_t d = 0; d < graph.dims.size(); ++d) {
    const Dim& dim = graph.dims[d];
    const bool divided =
        dim.role == DimRole::kHeads || dim.role == DimRole::kKvHeads || dim.role == DimRole::kFfn;
    const bool experts = of_experts(graph, DimId(static_cast<std::int64_t>(d)));
    const std::int64_t by = experts ? plan.expert_tensor_parallel() : degree;
    if (!divided || dim.size % by == 0) continue;
    std::int64_t fits = by;
    while (dim.size % fits != 0) --fits;
    const char* const key = experts && plan.expert_tensor > 0 ? "expert_tensor_parallel" : "tp";
    faults.push_back(
        fmt::format("plan.{}: {} {} don't divide by {} {} (remainder {}) on every stage; use {} {}", key,
                    dim.size, dim.name, key, by, dim.size % by, key, fits));
  }
  const std::int64_t context = plan.context_parallel;
  if (context > 1 && plan.sequence % (2 * context) != 0) {
    faults.push_back(
        fmt::format("plan.cp: sequence {} doesn't divide into 2 × cp {} pieces of equal work; use a multiple "
                    "of {}, e.g. {}",
                    plan.sequence, context, 2 * context,
                    (plan.sequence + 2 * context - 1) / (2 * context) * (2 * context)));
  } else if (plan.sequence_parallel && plan.sequence / context % degree != 0) {
    const std::int64_t unit = degree * context;
    faults.push_back(
        fmt::format("plan.sequence_parallel: sequence {} doesn't divide by tp {}{}; use a multiple, e.g. "
                    "{}, or switch sequence_parallel off",
                    plan.sequence, degree, context > 1 ? fmt::format(" × cp {}", context) : "",
                    (plan.sequence + unit - 1) / unit * unit));
  }
}

// What the roles' rules (planner/sharding.hpp) would divide wrongly, each once.
void check_mechanisms(const Plan& plan, const Graph& graph, Faults& faults) {
  bool across_heads = false;
  for (const Op& op : graph.ops) {
    const OpAttributes& attributes = op.attributes;
    across_heads = across_heads ||
                   (op.kind == OpKind::kNorm && attributes.weight && graph[op.inputs[1]].shape.size() > 1);
  }
  if (across_heads && plan.tensor_parallel() > 1) {
    faults.push_back("plan.tp: the norm of q and k over all heads would see one rank's alone; use tp 1");
  }
}

void check_expert_tensor(const Plan& plan, Faults& faults) {
  const std::int64_t tensor = plan.tensor_parallel(), inner = plan.expert_tensor_parallel();
  if (tensor % inner != 0) {
    faults.push_back(
        fmt::format("plan.expert_tensor_parallel: {} doesn't divide tp {}; use 1 (whole experts), "
                    "or a divisor of tp",
                    inner, tensor));
  } else if (inner < tensor && !plan.sequence_parallel) {
    faults.push_back(fmt::format(
        "plan.expert_tensor_parallel: {} ranks of tp {} would send the same tokens to experts; switch "
        "sequence_parallel on, so that each has its own, or leave expert_tensor_parallel out",
        tensor / inner, tensor));
  }
}

void check_experts(const Plan& plan, const Graph& graph, Faults& faults) {
  const std::int64_t degree = plan.expert_parallel, inner = plan.expert_tensor_parallel();
  if (degree <= 1) return;
  const std::int64_t of_tensor = plan.tensor_parallel() / inner;
  const std::int64_t ranks = std::ssize(plan.replicas) * plan.context_parallel * of_tensor;
  if (ranks % degree != 0) {
    faults.push_back(fmt::format(
        "plan.ep: {} doesn't divide dp {} × cp {}{} = {} (tokens are exchanged among them)", degree,
        plan.replicas.size(), plan.context_parallel,
        of_tensor > 1 ? fmt::format(" × tp {} / expert_tensor_parallel {}", plan.tensor_parallel(), inner)
                      : "",
        ranks));
  }
  for (const PipelineReplica& replica : plan.replicas) {
    if (replica.microbatches == plan.replicas.front().microbatches &&
        replica.stages.size() == plan.replicas.front().stages.size()) {
      continue;
    }
    faults.push_back("plan.ep: replicas that exchange tokens must have the same stages and micro-batches");
    break;
  }
  const auto experts = std::find_if(graph.dims.begin(), graph.dims.end(),
                                    [](const Dim& dim) { return dim.role == DimRole::kExperts; });
  if (experts == graph.dims.end()) {
    faults.push_back(fmt::format("plan.ep: {}, but the model has no experts; leave ep out", degree));
  } else if (experts->size % degree != 0) {
    faults.push_back(fmt::format("plan.ep: {} doesn't divide the model's {} experts", degree, experts->size));
  }
}

// A tree over micro-batches closes within every replica, and no parameter's sum has a second part elsewhere.
void check_ordered(const Plan& plan, const Graph& graph, Faults& faults) {
  if (plan.gradient_sum != GradientSum::kOrdered) return;
  for (const PipelineReplica& replica : plan.replicas) {
    const auto here = static_cast<std::uint64_t>(replica.microbatches);
    if (std::has_single_bit(here) && replica.microbatches == plan.replicas.front().microbatches) continue;
    faults.push_back(
        fmt::format("plan.reduction: ordered needs a power of two of micro-batches on each replica, "
                    "the same on all; they have {} (global batch over dp and microbatch)",
                    replica.microbatches));
    break;
  }
  if (plan.schedule == PipelineSchedule::kDualPipe) {
    faults.push_back(
        "plan.reduction: ordered doesn't work with dualpipe, which sums each gradient on two ranks; "
        "use dualpipe-v");
  }
  if (plan.gradient_dtype != DType::kFp32) {
    faults.push_back(fmt::format("plan.reduction: ordered sums are fp32; gradient_type is {}",
                                 to_string(plan.gradient_dtype)));
  }
  const bool pipelined =
      std::any_of(plan.replicas.begin(), plan.replicas.end(),
                  [](const PipelineReplica& replica) { return replica.stages.size() > 1; });
  if (pipelined && tied_embedding(graph)) {
    faults.push_back(
        "plan.reduction: ordered sums of a tied embedding would depend on pp; use native, or pp: 1");
  }
}

// Gradients and parameters that are divided travel with every micro-batch.
void check_zero(const Plan& plan, Faults& faults) {
  if (plan.zero_stage < 0 || plan.zero_stage > 3) {
    faults.push_back(fmt::format("plan.zero: no stage {}; use 0, 1, 2 or 3", plan.zero_stage));
  }
  if (plan.zero_prefetch < 0) {
    faults.push_back(fmt::format("plan.zero_prefetch: {}; give 0 or more", plan.zero_prefetch));
  }
  const bool both_ways = plan.schedule == PipelineSchedule::kDualPipe;
  if (plan.zero_group != 0) {
    const std::int64_t ranks = std::ssize(plan.replicas) * plan.context_parallel * (both_ways ? 2 : 1);
    if (plan.zero_group < 1 || ranks % plan.zero_group != 0) {
      faults.push_back(
          fmt::format("plan.zero_group: {} doesn't divide the {} ranks that have the same parameters",
                      plan.zero_group, ranks));
    } else if (plan.zero_group % plan.expert_parallel != 0 && plan.expert_parallel % plan.zero_group != 0) {
      faults.push_back(fmt::format("plan.zero_group: {} and ep {}: one must divide the other",
                                   plan.zero_group, plan.expert_parallel));
    }
  }
  if (plan.zero_stage < 2) return;
  const PipelineReplica& first = plan.replicas.front();
  for (const PipelineReplica& replica : plan.replicas) {
    const bool alike = std::equal(replica.stages.begin(), replica.stages.end(), first.stages.begin(),
                                  first.stages.end(), [](const Stage& a, const Stage& b) {
                                    return a.first_block == b.first_block && a.last_block == b.last_block;
                                  });
    if (alike && replica.microbatches == first.microbatches) continue;
    faults.push_back(
        fmt::format("plan.zero: stage {} exchanges gradients after every micro-batch, so all replicas need "
                    "the same stages "
                    "and micro-batches; use zero: 1",
                    plan.zero_stage));
    break;
  }
  if (both_ways) {
    faults.push_back(
        fmt::format("plan.zero: with dualpipe the two holders of a stage run different micro-batches at a "
                    "time, so stage {}'s "
                    "collectives would wait for each other for ever; use zero: 1 or schedule: dualpipe-v",
                    plan.zero_stage));
  }
}

void check_settings(const Plan& plan, const Graph& graph, Faults& faults) {
  if (plan.sequence < 1) faults.push_back(fmt::format("sequence: {} tokens; give 1 or more", plan.sequence));
  if (plan.microbatch_size < 1) faults.push_back("plan.microbatch: give 1 sequence or more");
  if (find_kernel_set(plan.kernel_set) == nullptr) {
    faults.push_back(fmt::format("plan.kernel_set: unknown \"{}\"; known are {}", plan.kernel_set,
                                 fmt::join(kernel_set_names(), ", ")));
  }
  if (plan.fp8 != Fp8::kNone && plan.compute_dtype != DType::kBf16) {
    faults.push_back(fmt::format("plan.fp8: {} makes copies of bf16; plan.precision is {}: use bf16",
                                 to_string(plan.fp8), to_string(plan.compute_dtype)));
  }
  if (plan.fp8 == Fp8::kBlock && plan.fp8_format != Fp8Format::kE4m3) {
    faults.push_back(
        fmt::format("plan.fp8_format: {} has one scale for each operand; plan.fp8 is block: use "
                    "e4m3, or plan.fp8: tensor",
                    to_string(plan.fp8_format)));
  }
  for (const Dim& dim : graph.dims) {
    if (dim.role == DimRole::kPositions && plan.sequence > dim.size) {
      faults.push_back(fmt::format("sequence: {} tokens, but the model's learned position table ends at {}",
                                   plan.sequence, dim.size));
    }
  }
}

// A step is written out instruction by instruction; this many of them take a few GiB.
constexpr double kMaxInstructions = 20e6;

void check_size(const Plan& plan, const Graph& graph, Faults& faults) {
  std::vector<double> ops(static_cast<std::size_t>(graph.block_count()), 0.0);
  for (const Op& op : graph.ops) ops[static_cast<std::size_t>(op.block)] += 1;
  const double of_microbatch = std::accumulate(ops.begin(), ops.end(), 0.0);
  const auto most = std::max_element(
      plan.replicas.begin(), plan.replicas.end(),
      [](const PipelineReplica& a, const PipelineReplica& b) { return a.microbatches < b.microbatches; });
  const double instructions = of_microbatch * static_cast<double>(most->microbatches);
  if (instructions <= kMaxInstructions) return;
  faults.push_back(fmt::format(
      "plan: {} micro-batches of {} layers make a Program of about {:.0f} million instructions, more than "
      "the "
      "{:.0f} million that can be simulated; lower global_batch, or raise dp or microbatch",
      format_count(most->microbatches), graph.layers, instructions / 1e6, kMaxInstructions / 1e6));
}

}  // namespace

std::vector<std::string> check(const Plan& plan, const Graph& graph) {
  Faults faults;
  if (plan.replicas.empty()) return {"plan: no pipeline replicas"};
  check_blocks(plan, graph, faults);
  check_ranks(plan, faults);
  if (faults.empty()) check_schedule(plan, faults);
  if (faults.empty()) check_expert_tensor(plan, faults);
  if (faults.empty()) check_divisible(plan, graph, faults);
  if (faults.empty()) check_experts(plan, graph, faults);
  if (faults.empty()) check_mechanisms(plan, graph, faults);
  if (faults.empty()) check_zero(plan, faults);
  if (faults.empty()) check_ordered(plan, graph, faults);
  check_settings(plan, graph, faults);
  for (std::string& fault : recompute_faults(plan, graph)) faults.push_back(std::move(fault));
  check_size(plan, graph, faults);
  return faults;
}

std::vector<std::string> warnings(const Plan& plan, const Graph& graph, const Cluster& cluster) {
  Faults found;
  const std::int32_t per_node = cluster.gpus_per_domain();
  std::int32_t crossing = 0;
  const std::int32_t degree = plan.tensor_parallel();
  for (const PipelineReplica& replica : plan.replicas) {
    for (const auto* const ranks : pipeline_positions(replica)) {
      for (auto first = ranks->begin(); first != ranks->end(); first += degree) {
        std::set<std::int32_t> nodes;
        for (auto rank = first; rank != first + degree; ++rank) nodes.insert(plan.device(*rank) / per_node);
        crossing += nodes.size() > 1 ? 1 : 0;
      }
    }
  }
  if (crossing > 0) {
    found.push_back(
        fmt::format("{} tensor-parallel groups of {} cross {} of {} GPUs: their collectives run at "
                    "network speed; keep tp at {} or less",
                    crossing, degree, cluster.nodes_per_nvlink_domain > 1 ? "NVLink domains" : "nodes",
                    per_node, per_node));
  }
  for (const Dim& dim : graph.dims) {
    if (dim.role != DimRole::kVocab) continue;
    const std::int64_t padded = padded_vocab(dim.size, plan.vocab_multiple, degree);
    // A tenth of a percent is below anything else in a prediction.
    if (padded > dim.size + dim.size / 1000) {
      found.push_back(fmt::format("vocabulary padded from {} to {} (a multiple of {} × tp {})", dim.size,
                                  padded, plan.vocab_multiple, degree));
    }
  }
  if (!plan.idle.empty()) found.push_back(fmt::format("{} GPUs stay idle", plan.idle.size()));
  for (std::string& warning : recompute_warnings(plan, graph)) found.push_back(std::move(warning));
  return found;
}

}  // namespace orrery
