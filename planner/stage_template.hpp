#pragma once
// What one stage does for one micro-batch, before the schedule repeats it: the forward and the backward
// as lists of launches and collectives with their dependencies and buffers. Lowering instantiates these
// lists for every micro-batch, so the cost of looking at the graph is paid once a stage.

#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/kernel_set.hpp"
#include "planner/sharding.hpp"

namespace orrery {

// The graph's ops by block and phase, with each tensor's readers.
struct GraphIndex {
  explicit GraphIndex(const Graph& graph);
  std::vector<std::vector<OpId>> forward, backward;  // By block, in graph order.
  std::vector<OpId> optimizer;
  std::vector<std::vector<OpId>> readers;  // By tensor.
};

// Fixed streams of every lowered role.
enum LoweredStream : std::int32_t {
  kComputeStream,
  kTensorStream,
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kDataStream
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

struct TemplateInstruction {
  LabelId label;
  std::int32_t layer = -1;
  std::int32_t stream = kComputeStream;
  Purpose purpose = Purpose::kOther;
  Work work;
  std::vector<std::int32_t> after;  // Into the same list; only what the stream's order doesn't give.
  std::vector<TemplateOperand> operands;
  bool reads_input = false;              // First on its stream to read what the previous (next) stage sent.
  std::vector<std::int32_t> new_blocks;  // Forward: blocks whose parameters are read here for the first time.
};

struct StageTemplate {
  std::vector<TemplateInstruction> forward, backward;
  std::vector<Buffer> microbatch_buffers;  // One set per micro-batch in flight.
  std::vector<Buffer> persistent_buffers;  // Parameters, gradients; optimiser state is added by lowering.
  // What crosses the stage's borders. Bytes are one rank's; 0: nothing (first or last stage).
  std::int64_t input_bytes = 0, output_bytes = 0;
  std::int32_t input_buffer = -1, output_gradient_buffer = -1;       // Written by receives.
  std::vector<std::int32_t> output_buffers, input_gradient_buffers;  // Read by sends.
  std::int32_t output_ready = -1;                                    // Into forward: what a send waits for.
  std::int32_t input_gradient_ready = -1;                            // Into backward.
  // By block − first block: where in `backward` the block's last gradient is written (−1: no parameters), and
  // what it holds on one rank.
  std::vector<std::int32_t> gradients_ready;
  std::vector<std::int64_t> parameter_elements;
  std::vector<std::vector<std::int32_t>> gradient_buffers;  // By block: persistent buffers.
  std::vector<std::vector<std::int32_t>> parameter_buffers;
  // Elements of replicated parameters whose gradient is partial over the tensor-parallel group.
  std::int64_t partial_gradient_elements = 0;
  std::int64_t tied_elements = 0;  // Of the token table shared by first and last stage.
};

struct BlockRange {
  std::int32_t first = 0, last = 0;
  bool contains(std::int32_t block) const { return block >= first && block < last; }
};

StageTemplate build_stage(const Graph& graph, const GraphIndex& index, const Plan& plan,
                          const Sharding& sharding, const KernelSet& kernels, BlockRange blocks,
                          AxisId tensor_axis, SymbolTable& symbols);

}  // namespace orrery
