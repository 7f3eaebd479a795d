#pragma once
// What was decided, as data: who does which layers of which micro-batches, and how state is kept. Small
// enough to read, diff and write by hand. `tp: 8, pp: 16, dp: 128` is shorthand (PlanShorthand) that
// expands to the normal form below, which can also say what a shorthand can't: replicas of
// different depth after a shrink, unequal shares of the micro-batches, idle ranks.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/ids.hpp"
#include "model/graph.hpp"
#include "planner/lowering_pass.hpp"
#include "planner/pipeline_schedule.hpp"
#include "planner/schedule_layout.hpp"

namespace orrery {

struct Cluster;

// What the forward keeps for the backward: kNone recomputes nothing; of a layer, kFull keeps its input alone,
// kTensors all that the backward reads but the tensors named. kAuto is still to be chosen
// (planner/recompute_choice.hpp).
enum class Recompute : std::uint8_t { kNone, kFull, kTensors, kAuto };
std::string_view to_string(Recompute recompute);

// How queries meet the keys and values of other context-parallel ranks: gathered before attention, or block
// by block as they travel round the ranks (ring attention; Megatron-LM's cp-comm-type all_gather and p2p).
enum class ContextForm : std::uint8_t { kAllGather, kRing };
std::string_view to_string(ContextForm form);

// How gradients are summed. kNative: micro-batch after micro-batch in one buffer, then over ranks. kOrdered:
// one fp32 partial a micro-batch, added by a binary tree over the global micro-batch index, so that the bits
// don't depend on how many ranks have shared the work (they do where tp, cp or ep divide a sum within a
// micro-batch). It holds up to 1 + log2(micro-batches) partials, and ZeRO 2 and 3 scatter the step's sum
// alone.
enum class GradientSum : std::uint8_t { kNative, kOrdered };
std::string_view to_string(GradientSum sum);

// What a layer's products run in (planner/fp8.hpp). kNone: the compute type. kTensor: FP8, one scale for each
// operand. kBlock: FP8, a scale for each 1 × 128 of activations and gradients and each 128 × 128 of weights.
enum class Fp8 : std::uint8_t { kNone, kTensor, kBlock };
std::string_view to_string(Fp8 fp8);
// Of gradients in FP8; activations and weights are E4M3. kHybrid: E5M2.
enum class Fp8Format : std::uint8_t { kE4m3, kHybrid };
std::string_view to_string(Fp8Format format);
// Whose sums tensor cores may hold in fewer bits than fp32 has, which is quicker: the forward's products, or
// both gradients' too. Not of blocks, whose parts of a sum are added in fp32.
enum class Fp8FastSums : std::uint8_t { kNone, kForward, kAll };
std::string_view to_string(Fp8FastSums sums);

// A half-open interval of the Graph's blocks (0 the embedding, 1 … L the layers, L + 1 the head). It may be
// empty.
struct Stage {
  std::int32_t first_block = 0;
  std::int32_t last_block = 0;  // One past the end.
  // Who does it, tensor parallel innermost: rank t of context-parallel position c is ranks[c · tp + t].
  // Virtual stages of one pipeline position have the same ranks.
  std::vector<RankId> ranks;
  bool operator==(const Stage&) const = default;
};

struct PipelineReplica {
  std::vector<Stage> stages;  // All virtual stages, in the order of the blocks.
  std::int64_t microbatches = 0;
  bool operator==(const PipelineReplica&) const = default;
};

struct Plan {
  std::vector<PipelineReplica> replicas;
  std::vector<RankId> idle;
  // By rank: its GPU, node · GPUs per node + index, each once; empty: rank i is on GPU i
  // (planner/placement.hpp).
  std::vector<std::int32_t> device_of;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  std::int32_t interleave_group = 0;  // Micro-batches per group of the interleaved schedule; 0: its default.
  std::int32_t context_parallel = 1;
  ContextForm context_form = ContextForm::kAllGather;
  // An expert's matrices are divided over this many ranks, consecutive ones of a tensor-parallel group; 0:
  // over all of the group. Experts are divided over expert-parallel groups of what is left: of a stage's
  // tensor · context · data parallel ranks, groups of both degrees' product hold all experts once.
  std::int32_t expert_tensor = 0;
  std::int32_t expert_parallel = 1;
  // Rows that an expert has room for, relative to its equal share of the tokens: full or not it works on all
  // of them, and what is beyond is dropped (GShard, Lepikhin et al. 2020; Switch, Fedus et al. 2021). 0:
  // dropless.
  double expert_capacity_factor = 0;
  // Load of the busiest rank's experts relative to the mean. Of a dropless plan it sets the time, the
  // messages and the memory of every rank: the others wait for the busiest.
  double expert_imbalance = 1;
  std::int64_t microbatch_size = 1;  // Sequences.
  std::int64_t sequence = 0;         // Tokens per sequence.
  bool sequence_parallel = false;
  // What data-parallel ranks divide among themselves (ZeRO): 0 nothing, 1 optimiser state, 2 gradients as
  // well, 3 (fully sharded) parameters too, which are gathered for each use.
  std::int32_t zero_stage = 0;
  std::int32_t zero_group = 0;     // Ranks that divide it; groups of them are replicas. 0: all (no hybrid).
  std::int32_t zero_prefetch = 1;  // ZeRO-3: gathers under way or kept ahead of the one in use.
  bool zero_reshard = true;  // ZeRO-3: drop gathered parameters after each use; else after the step's last.
  Recompute recompute = Recompute::kNone;
  std::vector<std::string> recompute_tensors;  // kTensors: names of planner/recompute.hpp.
  std::int32_t recompute_layers = 0;    // In the first so many layers of each virtual stage; 0: in all.
  std::int64_t recompute_memory = 0;    // kAuto: what a rank may take; 0: what its GPU has.
  DType compute_dtype = DType::kBf16;   // Master weights and moments are fp32.
  DType gradient_dtype = DType::kFp32;  // Accumulated and reduced in this type.
  GradientSum gradient_sum = GradientSum::kNative;
  Fp8 fp8 = Fp8::kNone;
  Fp8Format fp8_format = Fp8Format::kE4m3;
  Fp8FastSums fp8_fast_sums = Fp8FastSums::kForward;
  std::int64_t bucket_bytes = 0;           // Gradient bucket; 0: one bucket per layer.
  bool overlap_gradient_reduce = true;     // Reduce a bucket as soon as its last gradient is there.
  bool overlap_parameter_gather = true;    // ZeRO-1: gather layer by layer under the next forward.
  bool clip_gradients = true;              // Global norm: one scalar all-reduce that every rank waits for.
  std::string kernel_set = "orrery-cuda";  // See planner/kernel_set.hpp.
  std::int64_t vocab_multiple = 128;  // The vocabulary is padded to a multiple of this times the TP degree.
  bool cuda_graphs = false;
  LoweringPasses passes;  // Rewrites that lowering does.

  std::int32_t tensor_parallel() const;
  std::int32_t expert_tensor_parallel() const;
  // Rows of an expert relative to its equal share of the tokens, as the Graph's bind takes it.
  double expert_slot_factor() const {
    return expert_capacity_factor > 0 ? expert_capacity_factor : expert_imbalance;
  }
  std::int32_t world_size() const;
  std::int32_t device(RankId rank) const { return device_of.empty() ? rank.value : device_of[rank.index()]; }
  std::int64_t global_batch() const;  // Sequences per step.
  bool operator==(const Plan&) const = default;
};

// The distinct ranks of a replica's stages, by pipeline position.
std::vector<const std::vector<RankId>*> pipeline_positions(const PipelineReplica& replica);
// Which order of passes a replica follows.
ScheduleShape schedule_shape(const Plan& plan, const PipelineReplica& replica);

// What people write. Degrees multiply to the number of GPUs used.
struct PlanShorthand {
  std::int32_t tp = 1, pp = 1, dp = 0;  // dp 0: whatever is left of the GPUs.
  std::int32_t virtual_stages = 0;      // Per pipeline position; 0: what the schedule usually has.
  std::vector<std::int32_t>
      layers_per_stage;  // Empty: even; else one entry per virtual stage, summing to the layers.
  // Instead: what each virtual stage holds, as a Megatron-LM layout says it. Prediction layers are passed
  // over, since the Graph has none. Without virtual_stages it also says how many of them a position has.
  std::vector<StageContent> layout;
  std::int64_t global_batch = 0;  // Sequences.
  Plan settings;                  // Everything that isn't a degree.
};

// The normal form. Rank order is Megatron's default: tensor parallel innermost, then context, data, pipeline.
// THROWS Error(kInfeasible) saying which constraint fails (heads, kv heads, ffn, batch, GPUs, layers), by how
// much, and the nearest values that would work.
Plan expand(const PlanShorthand& shorthand, const Graph& graph, std::int32_t gpus);

// Broken rules of a normal-form plan, each with its stage: shared ranks, blocks missing or done twice,
// indivisible dimensions, replicas without micro-batches.
std::vector<std::string> check(const Plan& plan, const Graph& graph);

// What works but costs: tensor-parallel groups that cross nodes, padded vocabulary, idle ranks.
std::vector<std::string> warnings(const Plan& plan, const Graph& graph, const Cluster& cluster);

}  // namespace orrery
