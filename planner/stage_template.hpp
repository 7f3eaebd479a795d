#pragma once
// What one stage does for one micro-batch, before the schedule repeats it: the forward and the backward
// (whole, or split into the gradients of activations and those of weights) as lists of launches and
// collectives with their dependencies and buffers. Lowering instantiates these
// lists for every micro-batch, so the cost of looking at the graph is paid once a stage.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/kernel_set.hpp"
#include "planner/pipeline_schedule.hpp"
#include "planner/sharding.hpp"

namespace orrery {

inline constexpr std::size_t kPassKindCount = 4;

// The graph's ops by block and phase, with each tensor's readers.
struct GraphIndex {
  explicit GraphIndex(const Graph& graph);
  std::vector<std::vector<OpId>> forward, backward;  // By block, in graph order.
  std::vector<OpId> optimizer;
  std::vector<std::vector<OpId>> readers;  // By tensor.
};

// Fixed streams of every lowered role. Sends and receives have one each per neighbour in the pipeline.
enum LoweredStream : std::int32_t {
  kComputeStream,
  kTensorStream,
  kSendNext,
  kRecvPrevious,
  kSendPrevious,
  kRecvNext,
  kDataStream,
  kContextStream,
  kExpertStream,
  kGatherStream  // ZeRO-3's parameters: they must not queue behind gradients.
};
std::vector<Stream> lowered_streams();

// Labels and kernels of one stage, later merged into the Program's tables.
struct SymbolTable {
  std::vector<std::string> labels;
  std::vector<Kernel> kernels;
  LabelId label(const std::string& text);
  KernelId kernel(const Kernel& kernel);
};

// A buffer of the stage: one of its persistent ones, or one of the micro-batch that is being instantiated.
struct TemplateOperand {
  std::int32_t buffer = 0;
  bool persistent = false;
  bool writes = false;
};

// A trained tensor that the stage holds.
struct TemplateParameter {
  TensorId tensor;
  std::int32_t block = 0;
  std::int64_t elements = 0;                 // One rank's.
  std::int32_t weights = -1, gradient = -1;  // Persistent buffers.
  // By PassKind: the last instruction of the list to add into the gradient; −1: none does. Set with
  // dependencies.
  std::array<std::int32_t, kPassKindCount> ready = {-1, -1, -1, -1};
  bool partial = false;  // Each rank of the tensor-parallel group has a part of the gradient's sum.
  bool of_expert = false;
  bool tied = false;  // Used on both ends of the pipeline: by the embedding and by the head.
};

struct TemplateInstruction {
  LabelId label;
  std::int32_t layer = -1;
  std::int32_t stream = kComputeStream;
  Purpose purpose = Purpose::kOther;
  Work work;
  std::vector<TemplateOperand> operands;
  std::vector<OpId> ops;
  std::int32_t part = -1;
  std::int32_t region =
      0;               // Of a collective: a block in one phase. What a region moves twice can be moved once.
  bool ahead = false;  // Starts when the launch that it stands behind has ended, not earlier.
  // Set with dependencies.
  std::vector<std::int32_t> after;       // Into the same list; only what the stream's order doesn't give.
  bool reads_input = false;              // First on its stream to read what the neighbouring stage sent.
  std::vector<std::int32_t> new_blocks;  // Forward: blocks whose parameters are read here for the first time.
};

struct StageTemplate {
  // By PassKind; those that the schedule doesn't use are empty.
  std::array<std::vector<TemplateInstruction>, kPassKindCount> lists;
  std::vector<Buffer> microbatch_buffers;  // One set per micro-batch in flight.
  std::vector<Buffer> persistent_buffers;  // Parameters, gradients; optimiser state is added by lowering.
  // What crosses the stage's borders. Bytes are one rank's; 0: nothing (first or last stage).
  std::int64_t input_bytes = 0, output_bytes = 0;
  std::int32_t input_buffer = -1, output_gradient_buffer = -1;  // Written by receives.
  // By PassKind: what the list makes for a neighbour (a forward its output, a backward or its input part the
  // input's gradient), and by which instruction; −1: nothing.
  std::array<std::int32_t, kPassKindCount> sent_buffer = {-1, -1, -1, -1}, sent_ready = {-1, -1, -1, -1};
  std::vector<TemplateParameter> parameters;  // Block by block.
};

struct BlockRange {
  std::int32_t first = 0, last = 0;
  bool contains(std::int32_t block) const { return block >= first && block < last; }
  auto operator<=>(const BlockRange&) const = default;
};

// What a template is built from; everything outlives the call.
struct StageInput {
  const Graph& graph;
  const GraphIndex& index;
  const Plan& plan;
  const Sharding& sharding;
  const KernelSet& kernels;
  BlockRange blocks;
  bool whole_backward = true;                     // The schedule has whole backwards, and
  bool split_backward = false;                    // backwards in two parts.
  const std::vector<bool>* recomputed = nullptr;  // By tensor (recomputed_tensors); empty: none.
};

// In the order of the Graph, without dependencies.
StageTemplate build_stage(const StageInput& input, SymbolTable& symbols);

}  // namespace orrery
