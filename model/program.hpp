#pragma once
// What each rank does in one step of an endless loop: the value that the simulator predicts and the
// executor performs. Ranks with the same work share one Role; whatever differs between them (peers,
// groups) is an expression in the rank's coordinates, so 16,384 ranks of a 16-stage pipeline are
// 16 roles and a table.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.hpp"
#include "base/ids.hpp"
#include "base/sim_time.hpp"
#include "model/graph.hpp"

namespace orrery {

using RoleId = Id<struct RoleTag>;
using AxisId = Id<struct AxisTag>;
using KernelId = Id<struct KernelTag>;
using LabelId = Id<struct LabelTag>;
using StreamId = Id<struct StreamTag>;
using BufferId = Id<struct BufferTag>;
using PlacementId = Id<struct PlacementTag>;

// ---- Kernels: what one launch costs, shared by all instructions that launch the same shape.

enum class KernelKind : std::uint8_t {
  kFixed,  // Takes Kernel::fixed, whatever the device.
  kMatmul,
  kAttention,
  kAttentionBackward,
  kElementwise,  // Memory-bound: activations, norms, rope, residuals, casts.
  kEmbedding,
  kCrossEntropy,
  kOptimizer,
  kAccumulate,  // Adds what it only reads to what it writes, tensor by tensor.
};
std::string_view to_string(KernelKind kind);

// How a product of kFp8 matrices is worked out (planner/fp8.hpp says of which).
enum class Fp8Scaling : std::uint8_t {
  kOne,      // Each operand has one scale.
  kSquares,  // Weights have one for each 128 × 128, the other operand one for each 128 elements.
  kRows,     // Both have one for each 128 elements.
};
struct Fp8Arithmetic {
  Fp8Scaling scaling = Fp8Scaling::kOne;
  bool e5m2 = false;  // Gradients are E5M2; else E4M3, as all else.
  bool fast = false;  // Tensor cores hold sums in fewer bits than fp32 has.
  bool operator==(const Fp8Arithmetic&) const = default;
};

struct Kernel {
  LabelId label;
  KernelKind kind = KernelKind::kElementwise;
  DType dtype = DType::kBf16;
  Fp8Arithmetic fp8 = {};  // Of kMatmul with kFp8; otherwise unused.
  // kMatmul: D[m,n] = A[m,k] · B[k,n], `batch` times. Attention: m queries, n keys, k head
  // dimension, batch = sequences × query heads. Otherwise unused.
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  double flops = 0;
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;
  SimTime fixed;
  bool operator==(const Kernel&) const = default;
};

// ---- Instructions.

struct Compute {
  KernelId kernel;
  bool operator==(const Compute&) const = default;
};

// A peer is given relative to the rank's own position in its group on `axis`; positions wrap around,
// so offset +1 is "next" and −1 is "previous". k-th send from A to B on an axis meets the k-th receive
// of B from A on that axis (both in their role's order).
struct Send {
  AxisId axis;
  std::int32_t offset = 1;
  std::int64_t bytes = 0;
  bool operator==(const Send&) const = default;
};
struct Recv {
  AxisId axis;
  std::int32_t offset = -1;
  std::int64_t bytes = 0;
  bool operator==(const Recv&) const = default;
};

enum class CollectiveKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };
std::string_view to_string(CollectiveKind kind);  // "all-reduce", …

enum class Reduction : std::uint8_t {
  kSum,
  kMax,
  // By a binary tree over the positions in the group, whose left part is the largest power of two below their
  // number: the same bits whoever holds equal blocks of what is summed.
  kTreeSum,
};

// Over the rank's whole group on `axis`, and on each stream a communicator of its own. `bytes` is nccl-tests'
// size: the whole (gathered, unscattered) buffer of one rank. The k-th collective of each member on an axis
// is one operation.
//
// What it does to its operands follows from their placements (see Placement): an operand that is only read is
// the source of the one that is written and holds the same tensor. Where all are read and written the
// collective works in place on the concatenation of its operands, of which the n ranks of the group own n
// equal parts in the order of their positions: reduce-scatter leaves the sum in the own part, all-gather
// brings the parts of the others.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  AxisId axis;
  std::int64_t bytes = 0;
  DType dtype = DType::kBf16;
  Reduction reduction = Reduction::kSum;
  bool operator==(const Collective&) const = default;
};

// Between device and host memory.
struct Copy {
  bool to_host = true;
  std::int64_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

using Work = std::variant<Compute, Send, Recv, Collective, Copy>;

// Why an instruction is there; reports group by it.
enum class Purpose : std::uint8_t {
  kForward,
  kBackward,
  kRecompute,
  kOptimizer,
  kTensorParallel,
  kSequenceParallel,
  kContextParallel,
  kExpertParallel,
  kPipeline,
  kGradientReduce,
  kParameterGather,
  kOther
};
inline constexpr int kPurposeCount = 12;
std::string_view to_string(Purpose purpose);

// A dependency: an index into the same role's instructions; `previous_step` means that instruction
// one step earlier (ZeRO's gather hides in the next forward).
struct Edge {
  std::int32_t instruction = 0;
  bool previous_step = false;
  bool operator==(const Edge&) const = default;
};

// What an instruction touches. Lifetimes follow from the first and last toucher.
struct Operand {
  BufferId buffer;
  bool writes = false;
  bool operator==(const Operand&) const = default;
};

// Of the sequence: a rank's positions are cut into `segments` equal runs (what a gather brings from each rank
// of its group), each of these into `of` equal pieces; the instruction works on the piece `index` of every
// run. of 1: on all.
struct Piece {
  std::int32_t index = 0, of = 1, segments = 1;
  bool operator==(const Piece&) const = default;
};

// Starts once everything in `after` has ended and its stream is free.
struct Instruction {
  LabelId label;                 // With layer and microbatch, its name within the role.
  std::int32_t layer = -1;       // Block of the Graph; −1: none.
  std::int32_t microbatch = -1;  // Global index within the pipeline replica; −1: once a step.
  StreamId stream;
  Purpose purpose = Purpose::kOther;
  Work work;
  Range after;     // Into Role::edges.
  Range operands;  // Into Role::operands.
  Range ops;       // Into Role::ops: what a compute does, in order; empty where the Graph has no op for it.
  // Of an op that several instructions share: which of them; −1: all of it. The loss over a divided
  // vocabulary has three. Of ring attention 2i is the product with the i-th block of keys and values, 2i + 1
  // what adds its result to those before.
  std::int32_t part = -1;
  Piece piece;  // Of its operands that have a sequence; bytes and kernel are the piece's.
};

struct Stream {
  std::string name;
  std::int32_t priority = 0;  // Higher runs first when two computes of one device are ready.
  bool operator==(const Stream&) const = default;
};

enum class MemoryCategory : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kWorkspace,
  kCommunication
};
inline constexpr int kMemoryCategoryCount = 6;
std::string_view to_string(MemoryCategory category);

// How a tensor of the Graph lies on the ranks that share a role: each split divides one dimension among the
// group of the rank on an axis, in order of position. Splits of one dimension nest, the first is outermost.
// No split: every rank has the whole tensor. A product over a divided dimension leaves a partial sum on each
// rank; its bias is the part of the rank at position 0.
struct Split {
  DimId dim;
  AxisId axis;
  bool zigzag =
      false;  // Of 2n equal pieces, position i has pieces i and 2n − 1 − i: balances causal attention.
  // The part is that of the rank so many positions before (cyclic): of a block that travels round a ring.
  std::int32_t shift = 0;
  bool operator==(const Split&) const = default;
};
struct Placement {
  std::vector<Split> splits;
  bool operator==(const Placement&) const = default;
};

struct Buffer {
  LabelId label;
  std::int32_t layer = -1;
  std::int32_t microbatch = -1;
  MemoryCategory category = MemoryCategory::kActivations;
  std::int64_t bytes = 0;
  bool persistent =
      false;  // Lives across steps; otherwise from its first toucher's start to its last toucher's end.
  std::int64_t offset = -1;    // In the rank's arena, once a memory plan has placed it.
  TensorId tensor = {};        // Of the Graph; invalid: the buffer holds none.
  PlacementId placement = {};  // Of `tensor`; invalid: the whole of it.
  // A buffer before this one, right behind which a memory plan should place it; invalid: anywhere. Such a
  // chain has one lifetime, and together they are the columns of one matrix.
  BufferId behind = {};
  // A transient buffer before this one, of the same size and category, whose memory this one takes over;
  // invalid: it has memory of its own. The first instruction to touch this one writes it, and is the last
  // that may touch the other.
  BufferId in_place_of = {};
  bool operator==(const Buffer&) const = default;
};

struct Role {
  std::string name;
  std::vector<Stream> streams;
  std::vector<Instruction> instructions;  // In issue order: the host thread launches them so.
  std::vector<Edge> edges;
  std::vector<Operand> operands;
  std::vector<OpId> ops;  // Of the Graph.
  std::vector<Buffer> buffers;
  // Same instructions with the same dependencies and operands, wherever those stand in the shared arrays.
  bool operator==(const Role& other) const;
};

// ---- Ranks.

// A way of grouping ranks: "tp", "dp", "pp". A rank is in at most one group of an axis; its position
// there is its coordinate.
struct Axis {
  std::string name;
  std::vector<std::vector<RankId>> groups;
  bool operator==(const Axis&) const = default;
};

struct Program {
  std::string name;
  std::vector<std::string> labels;
  std::vector<Kernel> kernels;
  std::vector<Role> roles;
  std::vector<Axis> axes;
  std::vector<Placement> placements;
  // By dimension of the Graph: its size over all ranks, padding included; empty where no Graph stands behind.
  std::vector<std::int64_t> sizes;
  std::vector<RoleId> role_of;          // By rank; invalid: the rank idles.
  std::vector<std::int32_t> device_of;  // By rank: GPU of the Cluster, node · GPUs per node + index.
  // By rank: global index of its replica's micro-batch 0; empty: all begin at 0.
  std::vector<std::int32_t> first_microbatch;
  // True when steps are replayed as captured graphs (a node costs less than a launch).
  bool captured = false;

  std::int32_t world_size() const { return static_cast<std::int32_t>(role_of.size()); }
  LabelId intern(std::string_view label);  // Linear in the number of labels, which is small.
  bool operator==(const Program&) const = default;
};

// Where each rank stands on each axis.
struct Coordinate {
  std::int32_t group = -1;  // −1: the rank is in no group of this axis.
  std::int32_t position = 0;
};
// By axis, then by rank.
std::vector<std::vector<Coordinate>> coordinates(const Program& program);

// "qkv.l3.m0": the label with its layer and micro-batch, unique within a role.
std::string instruction_name(const Program& program, const Instruction& instruction);
// Buffers are named likewise.
std::string buffer_name(const Program& program, const Buffer& buffer);

// Everything that is wrong: ids out of range, dependencies that point forward or form a cycle with a
// stream, names that repeat, sends without their receive (count and bytes, for every pair of ranks),
// collectives whose order, kind or bytes differ between members of a group, ranks in two groups of one
// axis or on the same device, buffers that are touched after another has taken over their memory.
std::vector<std::string> verify(const Program& program);

// Text that people can write by hand and that reads back to the same Program, byte for byte:
//
//   role first (ranks 0):  f0 = compute 10us
//                          s0 = send 1MB to next after f0
//   role second (ranks 1): r0 = recv 1MB from previous
//                          f1 = compute 10us after r0
//
// docs/program-text.md has the grammar. THROWS Error(kInput) with "place:line:column: …". Reading checks
// names, sizes and order; whether ranks agree with each other is verify's business. REQUIRES for to_text: ids
// in range and labels that don't repeat, as verify checks.
Program parse_program(std::string_view text, std::string_view place = "program");
std::string to_text(const Program& program);

}  // namespace orrery
