#pragma once
// What a device is asked to do, as plain data: one struct for each kind of kernel, with the addresses it
// works on. Lowering (lower_step.hpp) writes them, a module (executor/cuda) performs them.
//
// Arrays are dense and row-major, but where a stride says that their rows stand further apart: those are some
// columns of a matrix (packs.hpp). A stride counts elements; 0: dense. Arithmetic is fp32 whatever the type;
// results are rounded to nearest even. Every sum has a fixed order, so that a launch repeats bit by bit;
// attention's gradient alone may not, unless it is asked to. "T" below is the type of activations (bf16, fp16
// or fp32), the same for all arrays of a launch that say T.

#include <cstdint>
#include <tuple>
#include <variant>
#include <vector>

#include "base/dtype.hpp"
#include "model/fp8_scales.hpp"

namespace orrery::device {

// Device memory.
struct Array {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;
  explicit operator bool() const { return data != nullptr; }
};

// ---- Products.

// Row-major [rows, columns] with rows `stride` elements apart; `turned`: the transpose of what lies there so.
struct Matrix {
  Array array;
  std::int64_t stride = 0;
  std::int64_t batch_stride = 0;  // From one product's matrix to the next one's; 0: all have the same.
  bool turned = false;
};
// D[m,n] = A[m,k] · B[k,n] (+ bias[n]) (+ D), `batch` times. A and B have one type.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Matrix a, b, d;           // D isn't turned.
  Array bias;               // T [n], the same for all of a batch; none: no data.
  bool accumulate = false;  // Adds to D instead of replacing it.
  // Of FP8 operands, with k innermost in both: what their numbers are to be multiplied by, on the device.
  const float *a_scale = nullptr, *b_scale = nullptr;
  Fp8Scales a_scales = Fp8Scales::kOne, b_scales = Fp8Scales::kOne;
  bool a_e5m2 = false, b_e5m2 = false;  // Else E4M3.
  bool fast_sums = false;               // Sums may be held in fewer bits than fp32 has.
};
// to[width] (+)= sum over rows of x[rows, width].
struct ColumnSum {
  std::int64_t rows = 0, width = 0;
  Array x, to;
  bool accumulate = false;
  std::int64_t x_stride = 0;
};

// ---- Attention. q[b,s,heads,d], k[b,keys,kv_heads,d], v[b,keys,kv_heads,e] → o[b,s,heads,e],
// lse[b,heads,s].

// From token to token.
struct HeadStrides {
  std::int64_t q = 0, k = 0, v = 0, dq = 0, dk = 0, dv = 0;
  bool operator==(const HeadStrides& other) const {
    return q == other.q && k == other.k && v == other.v && dq == other.dq && dk == other.dk && dv == other.dv;
  }
};
struct AttentionShape {
  std::int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, d = 0, e = 0;
  float scale = 1;
  bool causal = true;
  std::int64_t window = 0, chunk = 0;  // As OpAttributes has them; 0: none.
  float softcap = 0;                   // 0: none.
  // Positions in the sequence, on the device, by query and by key; null: 0, 1, …
  const std::int64_t* positions = nullptr;
  const std::int64_t* key_positions = nullptr;
  HeadStrides strides = {};
  bool operator==(const AttentionShape& other) const {
    const auto all = [](const AttentionShape& x) {
      return std::make_tuple(x.batch, x.queries, x.keys, x.heads, x.kv_heads, x.d, x.e, x.scale, x.causal,
                             x.window, x.chunk, x.softcap, x.positions, x.key_positions);
    };
    return all(*this) == all(other) && strides == other.strides;
  }
};
struct Attention {
  AttentionShape shape;
  Array q, k, v, sink;  // T; sink[heads] or none.
  Array o;              // T
  float* lse = nullptr;
};
struct AttentionGrad {
  AttentionShape shape;
  Array q, k, v, sink, o;  // T
  const float* lse = nullptr;
  Array dout;        // T
  Array dq, dk, dv;  // T, replaced.
  Array dsink;       // fp32, added into; none.
  bool deterministic = false;
};
// Ring attention: what one block of keys gave, added to what those before gave. With a sum of exponentials
// for each row the two are weighted. Results may be the first operand's arrays.
struct AttentionMerge {
  std::int64_t batch = 0, queries = 0, heads = 0, e = 0;
  Array o, o_block;  // T
  const float *lse = nullptr, *lse_block = nullptr;
  Array o_to;
  float* lse_to = nullptr;
};

// ---- Rows.

enum class NormKind : std::uint8_t { kRms, kLayer };
// Norms, gates and their gradients raise a number to the largest |y| that they write; or none.

// sum = x + residual;  y = norm(sum) · weight + bias. Without a residual there is no sum.
struct Norm {
  NormKind kind = NormKind::kRms;
  std::int64_t rows = 0, width = 0;
  float epsilon = 1e-5f;
  Array x, residual, sum, weight, bias, y;  // T; residual, sum, weight, bias: or none.
  float* largest = nullptr;
};
// dx = gradient of y = norm(x) · weight + bias, given dy (+ residual). Statistics are worked out again.
struct NormGrad {
  NormKind kind = NormKind::kRms;
  std::int64_t rows = 0, width = 0;
  float epsilon = 1e-5f;
  Array x, weight, dy, residual, dx;  // T; weight, residual: or none.
  Array dweight, dbias;               // Any floating-point type; or none.
  float* largest = nullptr;           // Of dx.
  bool accumulate = false;            // dweight and dbias are added into.
};
// Rotates dimension i of each head with i + rotated/2, for i < rotated/2, by position · theta^(−2i/rotated);
// the rest of the head is copied. x and y may be the same.
struct Rope {
  std::int64_t batch = 0, sequence = 0, heads = 0, width = 0, rotated = 0;
  double theta = 10000;
  bool back = false;
  const std::int64_t* positions = nullptr;  // By place in the local sequence; null: 0, 1, …
  Array x, y;                               // T
  std::int64_t x_stride = 0, y_stride = 0;  // From token to token.
};
struct HeadConcat {  // x[tokens,heads,c], y[tokens,shared,e] → z[tokens,heads,c+e]
  std::int64_t tokens = 0, heads = 0, shared = 0, c = 0, e = 0;
  bool back = false;  // z → x, y: a shared y is the sum over its heads.
  Array x, y, z;
};
struct Embedding {  // Ids that lie outside of the table's part give rows of zeros.
  std::int64_t tokens = 0, width = 0, entries = 0, first_entry = 0;
  Array ids, table, y;  // int64 (or int32); T; T
};
struct EmbeddingGrad {  // table[id] += dy
  std::int64_t tokens = 0, width = 0, entries = 0, first_entry = 0;
  Array ids, dy, table;
};
struct AddPositions {  // y[b,s,h] = x + table[position]
  std::int64_t batch = 0, sequence = 0, width = 0;
  const std::int64_t* positions = nullptr;
  Array x, table, y;
};
struct AddPositionsGrad {  // table[position] += dy
  std::int64_t batch = 0, sequence = 0, width = 0;
  const std::int64_t* positions = nullptr;
  Array dy, table;
};

// ---- Element by element.

enum class Activation : std::uint8_t { kSilu, kGelu, kRelu, kTanhCap, kClampedSilu };  // As model/graph.hpp.
struct Unary {  // y = f(x), or dx = f'(x) · dy where dy has data.
  std::int64_t elements = 0;
  Activation activation = Activation::kSilu;
  float limit = 0;
  Array x, dy, y;
};
struct Gated {  // y = f(gate) · up
  std::int64_t elements = 0;
  Activation activation = Activation::kSilu;
  float limit = 0;
  Array gate, up, y;
  std::int64_t width = 0, stride = 0;  // With a stride: of rows of gate and up, so wide.
  float* largest = nullptr;
};
struct GatedGrad {
  std::int64_t elements = 0;
  Activation activation = Activation::kSilu;
  float limit = 0;
  Array gate, up, dy, dgate, dup;
  // With a stride: of rows of gate and up, or of dgate and dup, so wide.
  std::int64_t width = 0, stride = 0, gradient_stride = 0;
  float* largest = nullptr;  // Of dgate and dup.
};
struct RowGate {  // y[r,:] = sigmoid(gate[r]) · x[r,:]
  std::int64_t rows = 0, width = 0;
  Array gate, x, y;
};
struct RowGateGrad {
  std::int64_t rows = 0, width = 0;
  Array gate, x, dy, dgate, dx;
};
// y = scale · x (+ addend).
struct AddScaled {
  std::int64_t elements = 0;
  float scale = 1;
  Array x, addend, y;  // T each, or different ones: y is rounded to its own.
};
// All but every third element of a row are kept: element i is dropped where (position + i) mod 3 is 1.
struct Dropout {
  std::int64_t batch = 0, sequence = 0, width = 0;
  float keep_scale = 1;  // 1 / (1 − rate)
  const std::int64_t* positions = nullptr;
  Array x, addend, y, mask;  // addend: none, or a residual that is added to what is left. mask: its own type.
};
struct DropoutGrad {
  std::int64_t elements = 0;
  float keep_scale = 1;
  Array dy, mask, dx;
};

// ---- Loss. Entries from `real` on are padding: they count nothing and get a gradient of 0.

struct CrossEntropy {  // loss = Σ (lse − logit of the label) / tokens_of_mean
  std::int64_t tokens = 0, vocab = 0, real = 0, first_entry = 0;
  double tokens_of_mean = 1;
  Array logits, labels;  // T (or fp32); int64
  Array loss;            // [1]
  float* lse = nullptr;  // [tokens]
  Array dlogits;         // The gradient too, as CrossEntropyGrad has it; or none.
};
struct CrossEntropyGrad {  // dlogits may be the logits.
  std::int64_t tokens = 0, vocab = 0, real = 0, first_entry = 0;
  double tokens_of_mean = 1;
  Array logits, labels;
  const float* lse = nullptr;
  Array dlogits;
};
// Over a divided vocabulary: 0: logits → maximum; 1: logits, labels, maximum → sum, logit of the label;
// 2: maximum, sum, label's logit → loss, lse.
struct CrossEntropyPart {
  std::int32_t part = 0;
  std::int64_t tokens = 0, vocab = 0, real = 0, first_entry = 0;
  double tokens_of_mean = 1;
  Array logits, labels;
  Array maximum, sum, label_logit, loss, lse;  // fp32.
};

// ---- Experts; see OpKind::kRoute and its like.

struct Route {
  std::int64_t tokens = 0, experts = 0, picks_per_token = 0, groups = 1, top_groups = 1;
  bool sigmoid = false, normalized = true;
  float scale = 1;
  Array logits, bias, weights, picks;  // T; T or none; T; whole numbers.
};
struct RouteGrad {
  std::int64_t tokens = 0, experts = 0, picks_per_token = 0;
  bool sigmoid = false, normalized = true;
  float scale = 1;
  Array logits, picks, dweights, dlogits;
};
struct Dispatch {
  std::int64_t tokens = 0, width = 0, experts = 0, slots = 0, picks_per_token = 0;
  Array x, picks, weights, rows, place;  // weights: or none. place: whole numbers.
};
struct DispatchGrad {
  std::int64_t tokens = 0, width = 0, experts = 0, slots = 0, picks_per_token = 0;
  Array drows, place, x, weights, dx, dweights;  // x, weights, dweights: or none.
};
struct Combine {
  std::int64_t tokens = 0, width = 0, experts = 0, slots = 0, picks_per_token = 0;
  Array rows, place, weights, y;
};
struct CombineGrad {
  std::int64_t tokens = 0, width = 0, experts = 0, slots = 0, picks_per_token = 0;
  Array dy, place, rows, weights, drows, dweights;
};

// ---- Optimiser.

// What changes from step to step, written by the host before each.
struct StepScalars {
  float step_size = 0;      // lr / (1 − β1^t)
  float decay = 0;          // lr · weight decay
  float inverse_bias2 = 1;  // 1 / √(1 − β2^t)
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float rest1 = 0.1f, rest2 = 0.001f;  // 1 − β1, 1 − β2, before β is rounded.
  float gradient_scale = 1;
  float clip_norm = 0;  // 0: gradients aren't clipped.
};
struct UpdateSegment {
  Array gradient, weights;  // weights of fp32 are the master weights themselves.
  float *master = nullptr, *first_moment = nullptr, *second_moment = nullptr;
  std::int64_t elements = 0;
  bool decays = true;
};
// As host::adamw; with `norm_squared` the gradient is scaled by min(1, clip / (√norm² · scale + 1e-6)) too.
struct AdamW {
  std::vector<UpdateSegment> segments;
  const StepScalars* scalars = nullptr;  // On the device.
  const double* norm_squared = nullptr;  // On the device; null: nobody asked for a norm.
};
struct SumPart {
  Array array;
  std::int64_t elements = 0;
};
struct SumSquares {  // to = Σ x², in fp64 above a block's sums.
  std::vector<SumPart> parts;
  double* to = nullptr;
};

// ---- Memory.

struct Zero {
  std::byte* to = nullptr;
  std::int64_t bytes = 0;
};
struct CopyBytes {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
};
// Rows of bytes that stand so far apart.
struct CopyRows {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t row_bytes = 0, rows = 0, to_stride = 0, from_stride = 0;
};
struct Accumulate {  // to += from
  std::int64_t elements = 0;
  Array from, to;
};
struct Convert {
  std::int64_t elements = 0;
  Array from, to;
};
// x / scale as FP8, where scale = (largest |x|) / (largest number of the format): |x| of the whole matrix, or
// of what has a scale of its own, which then depends on which way the copy lies. Numbers are rounded to
// nearest even. Sizes, stride and the address of x are multiples of 16.
struct Quantize {
  std::int64_t rows = 0, width = 0, stride = 0;  // Of x: rows stand `stride` elements apart.
  Array x;                                       // bf16
  std::byte* to = nullptr;                       // Dense [rows, width]; or none.
  std::byte* turned = nullptr;                   // Dense [width, rows]; or none.
  bool e5m2 = false;                             // Else E4M3.
  Fp8Scales scales = Fp8Scales::kOne;
  float* scale = nullptr;         // Of `to`; kOne: of both.
  float* turned_scale = nullptr;  // Of `turned`, but for kOne.
  // kOne alone.
  float* largest = nullptr;              // Where the largest |x| is left; or none.
  const float* known_largest = nullptr;  // Where it stands already; none: it is looked for.
};
// The bits that host::initial_value draws, for elements [first, first + elements) of a tensor: key is
// mix64(seed ^ hash of its name). scale 0: all elements are `constant`.
struct InitialValues {
  std::int64_t elements = 0, first = 0;
  std::uint64_t key = 0;
  double scale = 0;
  float constant = 0;
  Array to;
  std::int64_t width = 0, stride = 0;  // With a stride: of rows, so wide.
};
// Adds to hash[2] what host::parameter_hash adds for these elements: `name` is the tensor's hash.
struct HashElements {
  std::int64_t elements = 0, first = 0;
  std::uint64_t name = 0;
  Array from;
  std::uint64_t* hash = nullptr;
  std::int64_t width = 0, stride = 0;  // With a stride: of rows, so wide.
};

using Launch = std::variant<Gemm, ColumnSum, Attention, AttentionGrad, AttentionMerge, Norm, NormGrad, Rope,
                            HeadConcat, Embedding, EmbeddingGrad, AddPositions, AddPositionsGrad, Unary,
                            Gated, GatedGrad, RowGate, RowGateGrad, AddScaled, Dropout, DropoutGrad,
                            CrossEntropy, CrossEntropyGrad, CrossEntropyPart, Route, RouteGrad, Dispatch,
                            DispatchGrad, Combine, CombineGrad, AdamW, SumSquares, Zero, CopyBytes, CopyRows,
                            Accumulate, Convert, Quantize, InitialValues, HashElements>;

}  // namespace orrery::device
