#pragma once
// In which order each rank of a pipeline does its passes: the library of schedules, as data. A schedule is
// one list of passes per rank; what a pass waits for follows from the virtual stages alone:
//   forward(s, k)  waits for forward(s − 1, k);
//   backward(s, k) or its input part waits for forward(s, k) and for backward(s + 1, k) or its input part;
//   the weight part of a backward waits for its input part.
// Times are in schedule_timing.hpp, the verifier in schedule_verify.hpp, the picture in schedule_diagram.hpp.
//
// Where the orders come from (p ranks, m micro-batches, v chunks per rank, r the rank):
//   gpipe           Huang et al., NeurIPS 2019. All forwards, then all backwards, the last one first.
//   1f1b            Narayanan et al., SC'21. min(p − 1 − r, m) forwards, then forward and backward in turn.
//   eager-1f1b      The same with 2(p − r) − 2 forwards first, which hides the messages' latency.
//   interleaved     Narayanan et al., SC'21; groups as in Megatron-LM's
//                   megatron/core/pipeline_parallel/schedules.py.
//   looped-bfs      Lamy-Poirier 2022, "Breadth-first pipeline parallelism". GPipe chunk after chunk.
//   zb-h1, zb-h2    Qi et al. 2023, arXiv 2401.10241; ZB1P and ZB2P of
//                   sail-sg/zero-bubble-pipeline-parallelism.
//   zb-v            Qi et al. 2023, section 6; pytorch's torch/distributed/pipelining/schedules.py.
//   v-half, v-min   Qi et al. 2024, arXiv 2405.15362. The stable patterns of sail-sg's
//                   scheduler/zbv_greedy.py, squeezed, without its re-ordering pass.
//   dualpipe(-v)    deepseek-ai/DualPipe, dualpipe/dualpipe.py, eight steps; the V form also in pytorch's
//                   schedules.py.
//   wave            Liu et al., SC'23 (Hanayo) for the zigzag placement; the order is the list scheduler's
//                   (schedule_list.hpp), not the paper's.
//   list            The list scheduler under a cap on activations, for placement and times of the caller.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class PipelineSchedule : std::uint8_t {
  kGPipe,
  kOneForwardOneBackward,
  kEagerOneForwardOneBackward,
  kInterleaved,
  kLoopedBfs,
  kZeroBubbleH1,
  kZeroBubbleH2,
  kZeroBubbleV,
  kVHalf,
  kVMin,
  kDualPipe,
  kDualPipeV,
  kWave,
  kList
};
std::string_view to_string(PipelineSchedule kind);
std::optional<PipelineSchedule> pipeline_schedule_from(std::string_view name);
std::span<const PipelineSchedule> all_pipeline_schedules();

enum class PassKind : std::uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct Pass {
  PassKind kind = PassKind::kForward;
  std::int32_t chunk = 0;
  std::int32_t microbatch = 0;
  bool overlaps_next = false;  // Runs together with the next pass: a forward, then another chunk's backward.
  bool operator==(const Pass&) const = default;
};

// How long each virtual stage takes for one micro-batch, in any one unit. A whole backward takes both parts.
struct StageTimes {
  std::vector<double> forward, input, weight;  // By virtual stage.
  double latency = 0;                          // Of a message between two ranks; within a rank it is free.
  // Passes that overlap (DualPipe). Nothing: they run one after the other, as PyTorch runs them, and each
  // hands on its output when it ends. A number g: they start together, end together and take (1 − g) of their
  // sum, but never less than the longer of the two, as deepseek-ai/DualPipe runs them.
  std::optional<double> overlap_gain;
};

// Looped: virtual stage s on rank s mod p. Zigzag: every odd chunk runs through the ranks backwards.
enum class ChunkPlacement : std::uint8_t { kLooped, kZigzag };

struct ScheduleShape {
  PipelineSchedule kind = PipelineSchedule::kOneForwardOneBackward;
  std::int32_t ranks = 1;
  std::int32_t chunks = 0;  // Per rank; 0: what the kind usually has (default_chunks).
  std::int32_t microbatches = 1;
  std::int32_t group = 0;  // Interleaved: micro-batches per group; 0: default_group.
  // Wave and list only.
  std::int32_t memory_cap = 0;                         // Chunk activations per rank; 0: ranks · chunks.
  ChunkPlacement placement = ChunkPlacement::kLooped;  // List only.
  bool split_backward = true;                          // List only.
  std::optional<StageTimes> times;                     // Nothing: forward, input and weight take as long.
};

// Where a virtual stage lives.
struct StagePlace {
  std::int32_t rank = 0;
  std::int32_t chunk = 0;
  bool operator==(const StagePlace&) const = default;
};

struct Schedule {
  ScheduleShape shape;                              // Chunks, group and cap filled in.
  std::vector<std::vector<std::int32_t>> stage_of;  // [rank][chunk] → virtual stage.
  std::vector<std::vector<Pass>> passes;            // [rank], in order.
  bool splits_backward = false;                     // Some backwards are two passes; DualPipe has both kinds.
  // DualPipe: chunk 0 of rank r holds stage r and chunk 1 stage p − 1 − r of the same model, so that every
  // stage exists twice; micro-batches below m/2 run up the ranks in chunk 0, the others down in chunk 1.
  bool bidirectional = false;
  std::vector<StagePlace> places;  // By virtual stage; bidirectional: then again for the other direction.

  std::int32_t stages() const { return shape.ranks * (bidirectional ? 1 : shape.chunks); }
  // Which (rank, chunk) does this virtual stage of this micro-batch.
  StagePlace place_of(std::int32_t stage, std::int32_t microbatch) const {
    const bool down = bidirectional && microbatch >= shape.microbatches / 2;
    return places[static_cast<std::size_t>(down ? stages() + stage : stage)];
  }
};

// 1; 2 for interleaved, looped-bfs, wave and all V and dual forms.
std::int32_t default_chunks(PipelineSchedule kind);

// The smallest group that leaves no dependency bubble: g ≥ ranks with a last group that is whole or has at
// least `ranks` micro-batches; all micro-batches when they are fewer than the ranks. Equals ranks where that
// divides, and m / ⌊m/p⌋ wherever that is a whole number, which is PyTorch's rule.
std::int32_t default_group(std::int32_t ranks, std::int32_t microbatches);

// `shape` with default chunks, group and memory cap filled in. REQUIRES: ranks, microbatches ≥ 1.
ScheduleShape with_defaults(ScheduleShape shape);

// Why there is no such schedule, with the nearest values that work; "" when there is one.
std::string schedule_fault(const ScheduleShape& shape);

// REQUIRES: schedule_fault is empty. The schedule then finishes: verify(schedule) is empty.
Schedule build_schedule(const ScheduleShape& shape);

// Whose output the pass reads through a message or within its rank; nothing at either end of the chain and
// for weight passes. A backward also reads its own forward, which is in the same place.
std::optional<StagePlace> source_of(const Schedule& schedule, std::int32_t rank, const Pass& pass);
// Who reads the pass's output.
std::optional<StagePlace> destination_of(const Schedule& schedule, std::int32_t rank, const Pass& pass);

// Messages between ranks for the whole batch, forward and backward.
std::int64_t message_count(const Schedule& schedule);

}  // namespace orrery
