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
// heads, ffn and vocab; expert parallelism splits experts.
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
  kExperts,
  kTopK,   // Experts that a token picks.
  kSlots,  // Rows that one expert takes: tokens by another order. A graph has one dimension of each of the
           // three.
  kOther
};

struct Dim {
  std::string name;
  DimRole role = DimRole::kOther;
  // 0: bound late (batch, sequence, slots), so that one graph serves every micro-batch size.
  std::int64_t size = 0;
};

enum class TensorKind : std::uint8_t {
  kInput,              // Token ids, labels.
  kParameter,          // Trained weights, in the compute type.
  kBuffer,             // Read by the step, changed by other rules than gradients: a router's balancing bias.
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
  kNorm,          // x[…,h] (, weight[h] (, bias[h])) → y: over the dimensions of the weight, or the last one
  kMatmul,        // x[…,K], w1[K,N1] … wn[K,Nn] (, bias1 … biasn) → y1[…,N1] … yn: one packed projection.
                  // A dimension of x, w and y is a batch of products: x[E,…,K], w[E,K,N] (, bias[E,N]).
  kRope,          // x1 (, x2) → x1', x2': heads rotated by position
  kHeadConcat,    // x[b,s,a,c], y[b,s,a|1,e] → z[b,s,a,c+e]: y is shared by all heads where it has one
  // q[b,s,a,d], k[b,s,g,d], v[b,s,g,e] (, sink[a]) → o[b,s,a,e], lse[b,s,a]. A sink is one more score of each
  // row, which takes of the softmax and has no value.
  kAttention,
  kUnary,         // x → activation(x)
  kGated,         // gate, up → activation(gate) · up
  kRowGate,       // gate[…], x[…,h] → sigmoid(gate) · x
  kScale,         // x → scale · x. Its own backward.
  kAdd,           // a, b → a + b
  kDropout,       // x → y, mask
  kCrossEntropy,  // logits[b,s,vocab], labels[b,s] → loss[], lse[b,s]
  // Forward of experts. A token's k-th pick stands in row place[b,s,k] = expert · slots + slot, or was
  // dropped (−1): an expert takes tokens in their order until its slots are full. Other rows are zero.
  kRoute,     // logits[b,s,E] (, bias[E]) → weights[b,s,k], picks[b,s,k]. The bias moves the choice alone.
  kDispatch,  // x[b,s,h], picks (, weights) → rows[E,slots,h], place[b,s,k]: rows (times weight)
  kCombine,   // rows[E,slots,h], place (, weights) → y[b,s,h]: the sum of a token's rows (times weight)
  // Backward of the above.
  kEmbeddingGrad,     // ids, dx → dtable
  kAddPositionsGrad,  // dy → dtable (dx is dy itself)
  kNormGrad,          // x (, weight), dy → dx (, dweight (, dbias))
  kMatmulGradInput,   // dy1 … dyn, w1 … wn → dx = Σ dyi · wiᵀ
  kMatmulGradWeight,  // x, dy1 … dyn → dw1 … dwn (, dbias1 … dbiasn)
  kRopeGrad,          // dx1' (, dx2') → dx1 (, dx2)
  kHeadConcatGrad,    // dz → dx, dy: a shared dy is the sum over heads
  kAttentionGrad,     // q, k, v (, sink), o, lse, do → dq, dk, dv (, dsink)
  kUnaryGrad,         // x, dy → dx
  kGatedGrad,         // gate, up, dy → dgate, dup
  kRowGateGrad,       // gate, x, dy → dgate, dx
  kDropoutGrad,       // dy, mask → dx
  kCrossEntropyGrad,  // logits, labels, lse → dlogits
  kRouteGrad,         // logits, picks, dweights → dlogits
  kDispatchGrad,      // drows, place (, x, weights) → dx (, dweights)
  kCombineGrad,       // dy, place (, rows, weights) → drows (, dweights)
  // Optimiser.
  kAdamW,  // w, dw, master, m, v → (updates w, master, m, v in place)
  // Of imported graphs only, for what none of the kinds above says. `word` tells the operator. Sizes count,
  // not dimensions: operands broadcast as in NumPy. docs/importing-graphs.md lists what becomes which.
  kElementwise,      // x1 … xn → y1 … ym, each as large as the inputs broadcast to
  kReduce,           // x (, …) → y1 … ym, over `axes`, kept with size 1 or dropped
  kSoftmax,          // x → y, over `axes`
  kReshape,          // x → y: the same elements under another shape; moves no bytes
  kTranspose,        // x → y: dimension i of y is dimension axes[i] of x
  kExpand,           // x → y, repeated along some dimensions
  kSlice,            // x → y1 … yn: parts of x
  kConcat,           // x1 … xn → y, along axes[0]
  kGather,           // x, indices → elements or rows of x
  kScatter,          // x, … → x with some elements replaced
  kFill,             // (nothing, or what seeds it) → constants, ranges, random numbers
  kBatchMatmul,      // a[…,M,K], b[…,K,N] (, bias) → y[…,M,N]; word "nt": b[…,N,K]
  kMaskedAttention,  // q[…,s,d], k[…,t,d], v[…,t,e] (, mask) → o[…,s,e]: heads and lengths as they come
  kConvolution,      // x[n,c,…], w[o,c/groups,…] (, bias) → y[n,o,…]
};
std::string_view to_string(OpKind kind);
// Whether it is one of the kinds that only imported graphs have.
constexpr bool only_imported(OpKind kind) { return kind >= OpKind::kElementwise; }

enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer };
std::string_view to_string(Phase phase);

enum class NormKind : std::uint8_t { kRms, kLayer };
enum class Activation : std::uint8_t {
  kSilu,
  kGelu,
  kRelu,
  kTanhCap,      // kUnary: limit · tanh(x / limit).
  kClampedSilu,  // kGated: g · sigmoid(1.702 g) · (u + 1), g = min(gate, limit), u = up within ± limit.
};
// What a router makes of its logits before it picks the largest.
enum class RouterScore : std::uint8_t { kSoftmax, kSigmoid };

// Only what changes the mathematics or the cost of an op; which fields count depends on the kind.
struct OpAttributes {
  NormKind norm = NormKind::kRms;
  double epsilon = 1e-5;
  Activation activation = Activation::kSilu;
  double limit = 0.0;            // kUnary, kGated: of the activations that have one.
  bool bias = false;             // kMatmul, kNorm and their gradients.
  bool weight = true;            // kNorm.
  bool causal = true;            // kAttention.
  std::int64_t window = 0;       // kAttention: keys that a query sees at most, itself included; 0: all.
  std::int64_t chunk = 0;        // kAttention: a query sees the keys of its own chunk; 0: one chunk.
  double softcap = 0.0;          // kAttention: scores become softcap · tanh(score / softcap); 0: they don't.
  double score_scale = 0.0;      // kAttention: of q · k; 0: 1/√d.
  double rotary_fraction = 1.0;  // kRope: the part of each head that is rotated.
  double rope_theta = 10000.0;   // kRope: base of the rotation frequencies.
  double rate = 0.0;             // kDropout.
  double scale = 1.0;            // kScale, kRoute: of the result.
  RouterScore score = RouterScore::kSoftmax;  // kRoute.
  bool normalized = true;                     // kRoute: a token's weights sum to 1 (before `scale`).
  // kRoute: experts stand in `groups` equal groups, of which a token's experts come from the best
  // `top_groups`. Softmax: a group is as good as its best expert (DeepSeek-V2); sigmoid: as its two best
  // (DeepSeek-V3).
  std::int32_t groups = 1, top_groups = 1;
  // Of imported graphs.
  std::string word;                // Which operator: "mul", "mean", "nt".
  std::vector<std::int64_t> axes;  // From 0.
  std::vector<double> constants;   // Scalar operands and settings, in the operator's order.
  bool view = false;               // The result shares its input's memory: no bytes move.
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
  std::vector<TensorId> outputs;  // What an imported graph returns. Empty: the loss of its cross entropy.

  const Dim& operator[](DimId id) const { return dims[id.index()]; }
  const Tensor& operator[](TensorId id) const { return tensors[id.index()]; }
  const Op& operator[](OpId id) const { return ops[id.index()]; }
  std::int32_t block_count() const { return layers + 2; }
};

// A size for every dimension: `sizes[dim.index()]`. Lowering passes local (divided) sizes.
using Sizes = std::vector<std::int64_t>;

// The graph's own sizes with batch and sequence bound, and with them the slots of experts:
//   slots = min(tokens, ⌈tokens · k / experts · slot_factor⌉), tokens = batch · sequence.
// What `slot_factor` is depends on the question. 1: every expert gets its equal share and nothing is dropped,
// which is what a dropless implementation takes on average; for costs of an uneven one, how much the busiest
// expert has above its share. With a capacity factor the slots are the capacity, and what is beyond it is
// dropped. From experts / k on there are slots for the worst case, every token at one expert.
Sizes bind(const Graph& graph, std::int64_t batch, std::int64_t sequence, double slot_factor = 1.0);

std::int64_t element_count(const Graph& graph, TensorId tensor, const Sizes& sizes);
std::int64_t size_bytes(const Graph& graph, TensorId tensor, const Sizes& sizes);

// The dimensions of one matmul pair (x, w → y), read off the shapes: rows of y, columns of y, contracted, and
// what all three have, a batch of products. For gradients of a matmul the roles follow from the same rule: a
// dimension of both operands that the result lacks is contracted.
struct Contraction {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
};
Contraction contraction(const Graph& graph, const Op& op, std::size_t pair, const Sizes& sizes);

// Pairs of a query and a key that attention looks at in a sequence of s: s²; causal s²/2 (as the field counts
// it, Megatron, FlashAttention); with a window w < s the area under the diagonal that it leaves, s·w − w²/2;
// with chunks c < s, c²/2 each.
double attention_pairs(const OpAttributes& attributes, std::int64_t sequence);

// Arithmetic of one op (a multiply-add is 2). Matmuls count their products, 2·m·n·k a pair, and no bias.
// Attention counts its matrix products for the pairs above, 2·(d + e) a pair and head, and its backward
// 2·(3d + 2e), which is 2.5 times as much for d = e (FlashAttention recomputes the scores).
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

// The part of them that a token meets: k of the experts' own parameters, which are those with experts as the
// outermost of several dimensions (a router's have them last), and all others.
std::int64_t active_parameter_count(const Graph& graph);
// That part of one parameter: k / experts, or 1.
double active_share(const Graph& graph, TensorId parameter);

// Everything that is wrong, each with the name of the op or tensor; empty when the graph is sound:
// ids in range, names unique, producers consistent, no use before definition, shapes that fit the op's kind,
// every parameter with exactly one gradient and one optimiser op (once there are any), gradients shaped like
// what they differentiate, one loss reached from every input. Of a graph with outputs: one output reached
// from every input, and gradients either of all inputs that are parameters or of none.
std::vector<std::string> verify(const Graph& graph);

}  // namespace orrery
