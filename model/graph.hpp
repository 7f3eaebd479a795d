#pragma once
// What is computed: a static, typed graph of tensors and ops with symbolic sizes. Forward, backward
// and optimiser ops stand in one graph, in an order in which they could run. Nothing here knows how
// many devices there are: a Plan decides that, and lowering divides dimensions by their role.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/ids.hpp"

namespace orrery {

using DimId = Id<struct DimTag>;
using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;

// What a dimension counts. Parallel degrees divide dimensions by role: data parallelism splits
// batch; sequence and context parallelism split sequence; tensor parallelism splits heads, kv
// heads, ffn and vocab.
enum class DimRole : std::uint8_t {
  kBatch,
  kSequence,
  kHidden,
  kHeads,
  kKvHeads,
  kHeadDim,
  kFfn,
  kVocab,
  kPositions,
  kOther
};

struct Dim {
  std::string name;
  DimRole role = DimRole::kOther;
  std::int64_t size = 0;  // 0: bound late (batch and sequence), so one graph serves every micro-batch size.
};

enum class TensorKind : std::uint8_t {
  kInput,              // Token ids, labels.
  kParameter,          // Trained weights, in the compute type.
  kActivation,         // Made by a forward op.
  kGradient,           // Of an activation; made by a backward op.
  kParameterGradient,  // Accumulated over micro-batches: an op that outputs one adds into it (see below).
  kOptimizerState,     // fp32 master weights and both Adam moments.
};

// Every tensor but a parameter gradient is written by exactly one op. A parameter gradient is a sum that
// outlives the micro-batch, so each op that lists it as an output adds into it; where two ops use one
// parameter (a tied head and token table) both their gradient ops list the same tensor and no op
// joins them: on different pipeline stages each holds its own part of the sum.
struct Tensor {
  std::string name;
  TensorKind kind = TensorKind::kActivation;
  DType dtype = DType::kBf16;
  std::vector<DimId> shape;  // Outermost first. Empty: a scalar.
  OpId producer;  // Invalid for inputs, parameters and state; the first writer of a parameter gradient.
  std::int32_t block = 0;  // See Op::block.
  TensorId gradient_of;    // For both gradient kinds and for optimiser state: the tensor they belong to.
};

enum class OpKind : std::uint8_t {
  // Forward. Inputs → outputs.
  kEmbedding,     // ids[b,s], table[vocab,h] → x[b,s,h]
  kAddPositions,  // x[b,s,h], table[positions,h] → y[b,s,h]
  kNorm,          // x[…,h], weight[h] (, bias[h]) → y
  kMatmul,        // x[…,K], w1[K,N1] … wn[K,Nn] (, bias1 … biasn) → y1[…,N1] … yn: one packed projection
  kRope,          // q, k → q', k'
  kAttention,     // q[b,s,a,d], k[b,s,g,d], v[b,s,g,d] → o[b,s,a,d], lse[b,s,a]
  kUnary,         // x → activation(x)
  kGated,         // gate, up → activation(gate) · up
  kAdd,           // a, b → a + b
  kDropout,       // x → y, mask
  kCrossEntropy,  // logits[b,s,vocab], labels[b,s] → loss[], lse[b,s]
  // Backward of the above.
  kEmbeddingGrad,     // ids, dx → dtable
  kAddPositionsGrad,  // dy → dtable (dx is dy itself)
  kNormGrad,          // x, weight, dy → dx, dweight (, dbias)
  kMatmulGradInput,   // dy1 … dyn, w1 … wn → dx = Σ dyi · wiᵀ
  kMatmulGradWeight,  // x, dy1 … dyn → dw1 … dwn (, dbias1 … dbiasn)
  kRopeGrad,          // dq', dk' → dq, dk
  kAttentionGrad,     // q, k, v, o, lse, do → dq, dk, dv
  kUnaryGrad,         // x, dy → dx
  kGatedGrad,         // gate, up, dy → dgate, dup
  kDropoutGrad,       // dy, mask → dx
  kCrossEntropyGrad,  // logits, labels, lse → dlogits
  // Optimiser.
  kAdamW,  // w, dw, master, m, v → (updates w, master, m, v in place)
};
std::string_view to_string(OpKind kind);

enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer };
std::string_view to_string(Phase phase);

enum class NormKind : std::uint8_t { kRms, kLayer };
enum class Activation : std::uint8_t { kSilu, kGelu, kRelu };

// Only what changes the mathematics or the cost of an op; which fields count depends on the kind.
struct OpAttributes {
  NormKind norm = NormKind::kRms;
  double epsilon = 1e-5;
  Activation activation = Activation::kSilu;
  bool bias = false;             // kMatmul, kNorm and their gradients.
  bool causal = true;            // kAttention.
  double rotary_fraction = 1.0;  // kRope: the part of each head that is rotated.
  double rope_theta = 10000.0;   // kRope: base of the rotation frequencies.
  double rate = 0.0;             // kDropout.
};

struct Op {
  std::string name;  // "layer3.qkv", "layer3.qkv.grad_weight", …: the number is the block.
  OpKind kind = OpKind::kAdd;
  Phase phase = Phase::kForward;
  // Where the op stands in the model: 0 is the embedding, 1 … L are the decoder layers, L + 1 is
  // the final norm, head and loss. A pipeline stage is an interval of blocks.
  std::int32_t block = 0;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  OpAttributes attributes;
  // For backward ops: the op they differentiate. A kAdd that sums the gradients of a tensor with several
  // uses names the use whose gradient came last.
  OpId forward_of;
};

struct Graph {
  std::string name;
  std::vector<Dim> dims;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  // In a runnable order: forward, then backward, then optimiser.
  std::int32_t layers = 0;

  const Dim& operator[](DimId id) const { return dims[id.index()]; }
  const Tensor& operator[](TensorId id) const { return tensors[id.index()]; }
  const Op& operator[](OpId id) const { return ops[id.index()]; }
  std::int32_t block_count() const { return layers + 2; }
};

// A size for every dimension: `sizes[dim.index()]`. Lowering passes local (divided) sizes.
using Sizes = std::vector<std::int64_t>;

// The graph's own sizes with batch and sequence bound.
Sizes bind(const Graph& graph, std::int64_t batch, std::int64_t sequence);

std::int64_t element_count(const Graph& graph, TensorId tensor, const Sizes& sizes);
std::int64_t size_bytes(const Graph& graph, TensorId tensor, const Sizes& sizes);

// The dimensions of one matmul pair (x, w → y), read off the shapes: contracted, rows of y, columns of y.
// For gradients of a matmul the roles follow from the same rule: a dimension of both operands that the
// result lacks is contracted.
struct Contraction {
  std::int64_t m = 1, n = 1, k = 1;
};
Contraction contraction(const Graph& graph, const Op& op, std::size_t pair, const Sizes& sizes);

// Arithmetic of one op (a multiply-add is 2). Matmuls count their products, 2·m·n·k a pair, and no bias.
// Attention counts its matrix products over the causal half, s²/2 pairs of a query and a key; its backward
// is 2.5 times its forward (five products against two, as FlashAttention recomputes the scores).
double flops(const Graph& graph, const Op& op, const Sizes& sizes);

// Bytes that must at least cross the memory interface: every input read once, every output written once.
// Of a token or position table only the rows that the tokens pick count, and AdamW doesn't read the
// compute-type weights that it replaces.
struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;
};
Traffic traffic(const Graph& graph, const Op& op, const Sizes& sizes);

// Number of trained elements. `block` restricts the count to one block; −1 counts all.
std::int64_t parameter_count(const Graph& graph, std::int32_t block = -1);

// Everything that is wrong, each with the name of the op or tensor; empty when the graph is sound:
// ids in range, names unique, producers consistent, no use before definition, shapes that fit the op's kind,
// every parameter with exactly one gradient and one optimiser op (once there are any), gradients shaped like
// what they differentiate, one loss reached from every input.
std::vector<std::string> verify(const Graph& graph);

}  // namespace orrery
