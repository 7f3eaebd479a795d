// Kernels on parts of tensors: what ranks see of a divided dimension, and what narrow types do.
#include <algorithm>
#include <numeric>

#include "tests/executor/kernel_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// A graph of one op.
struct OneOp {
  Graph graph;
  Op op;
  host::OpView view;

  DimId dim(DimRole role, std::int64_t size) {
    graph.dims.push_back({"d" + std::to_string(graph.dims.size()), role, size});
    view.sizes.push_back(size);
    return DimId(static_cast<std::int64_t>(graph.dims.size()) - 1);
  }
  TensorId tensor(const std::vector<DimId>& shape, DType dtype, TensorKind kind) {
    Tensor& made = graph.tensors.emplace_back();
    made.name = "t" + std::to_string(graph.tensors.size());
    made.kind = kind;
    made.dtype = dtype;
    made.shape = shape;
    return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
  }
  void reads(const std::vector<DimId>& shape, DType dtype = DType::kFp32) {
    op.inputs.push_back(tensor(shape, dtype, TensorKind::kActivation));
  }
  void writes(const std::vector<DimId>& shape, DType dtype = DType::kFp32,
              TensorKind kind = TensorKind::kActivation) {
    op.outputs.push_back(tensor(shape, dtype, kind));
  }
};

Values numbers(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  Values values(n);
  for (double& x : values) x = static_cast<double>(static_cast<float>(random.uniform() - 0.5));
  return values;
}

// Elements [begin, end) of the middle dimension of x[outer, middle, inner], in the order of `indices`.
Values part(const Values& x, std::size_t outer, std::size_t inner, const std::vector<std::int64_t>& indices) {
  const std::size_t middle = x.size() / outer / inner;
  Values found;
  for (std::size_t o = 0; o < outer; ++o) {
    for (const std::int64_t i : indices) {
      const auto at =
          x.begin() + static_cast<std::ptrdiff_t>((o * middle + static_cast<std::size_t>(i)) * inner);
      found.insert(found.end(), at, at + static_cast<std::ptrdiff_t>(inner));
    }
  }
  return found;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

constexpr std::size_t kBatch = 2, kSequence = 70, kHeads = 4, kPairs = 2, kDim = 20, kValue = 12;

// Attention with sinks and a window, or its gradient; of the local queries, heads and keys.
struct AttentionOp : OneOp {
  explicit AttentionOp(bool backward, std::int64_t queries = kSequence, std::int64_t heads = kHeads) {
    const DimId b = dim(DimRole::kBatch, kBatch), s = dim(DimRole::kSequence, queries);
    const DimId a = dim(DimRole::kHeads, heads), g = dim(DimRole::kKvHeads, heads / (kHeads / kPairs));
    const DimId d = dim(DimRole::kHeadDim, kDim), e = dim(DimRole::kHeadDim, kValue);
    reads({b, s, a, d}), reads({b, s, g, d}), reads({b, s, g, e}), reads({a});
    if (backward) {
      reads({b, s, a, e}), reads({b, s, a}), reads({b, s, a, e});
      writes({b, s, a, d}), writes({b, s, g, d}), writes({b, s, g, e});
      writes({a}, DType::kFp32, TensorKind::kParameterGradient);
    } else {
      writes({b, s, a, e}), writes({b, s, a});
    }
    op.kind = backward ? OpKind::kAttentionGrad : OpKind::kAttention;
    op.attributes.window = 40;
  }
};

struct AttentionValues {
  Values q = numbers(kBatch * kSequence * kHeads * kDim, 1),
         k = numbers(kBatch * kSequence * kPairs * kDim, 2);
  Values v = numbers(kBatch * kSequence * kPairs * kValue, 3), sink = numbers(kHeads, 4);
  Values dy = numbers(kBatch * kSequence * kHeads * kValue, 5);
  Values context = Values(dy.size()), log_sum = Values(kBatch * kSequence * kHeads);
};

std::vector<Values> run(const OneOp& one, const std::vector<Values>& inputs, std::vector<Values> outputs) {
  host::Workspace workspace;
  const std::vector<Bytes> made = run_kernel(one.graph, one.op, one.view, inputs, outputs, workspace);
  for (std::size_t i = 0; i < made.size(); ++i) {
    outputs[i] = to_values(made[i], one.graph[one.op.outputs[i]].dtype);
  }
  return outputs;
}

}  // namespace

TEST_CASE("attention's bits don't depend on how queries and heads are divided", "[kernels][attention]") {
  const AttentionValues x;
  const auto whole = run(AttentionOp(false), {x.q, x.k, x.v, x.sink}, {x.context, x.log_sum});
  const std::size_t width = kHeads * kDim, value_width = kHeads * kValue;
  for (const auto& queries : {range(0, 23), range(23, 70)}) {
    AttentionOp one(false, static_cast<std::int64_t>(queries.size()));
    one.view.positions = queries;
    one.view.key_positions = range(0, kSequence);
    const Values context = part(whole[0], kBatch, value_width, queries);
    const Values log_sum = part(whole[1], kBatch, kHeads, queries);
    const auto made = run(one, {part(x.q, kBatch, width, queries), x.k, x.v, x.sink},
                          {Values(context.size()), Values(log_sum.size())});
    CHECK(made[0] == context);
    CHECK(made[1] == log_sum);
  }
  const std::size_t rows = kBatch * kSequence;
  for (const std::int64_t pair : {0, 1}) {  // Two heads and their pair of key and value.
    const auto heads = range(2 * pair, 2 * pair + 2), own = range(pair, pair + 1);
    const Values context = part(whole[0], rows, kValue, heads), log_sum = part(whole[1], rows, 1, heads);
    const auto made = run(AttentionOp(false, kSequence, 2),
                          {part(x.q, rows, kDim, heads), part(x.k, rows, kDim, own),
                           part(x.v, rows, kValue, own), part(x.sink, 1, 1, heads)},
                          {Values(context.size()), Values(log_sum.size())});
    CHECK(made[0] == context);
    CHECK(made[1] == log_sum);
  }
}

TEST_CASE("attention block by block round a ring is attention to all keys", "[kernels][attention]") {
  AttentionValues x;
  AttentionOp forward(false), backward(true);
  std::vector<Values> whole = {x.context, x.log_sum};
  check_op(forward.graph, forward.op, forward.view, {x.q, x.k, x.v, x.sink}, whole);
  x.context = whole[0], x.log_sum = whole[1];
  const std::vector<Values> in = {x.q, x.k, x.v, x.sink, x.context, x.log_sum, x.dy};
  std::vector<Values> gradients = {x.q, x.k, x.v, x.sink};
  check_op(backward.graph, backward.op, backward.view, in, gradients);

  // The blocks of a causal ring: each rank has a run from the front and one from the back.
  std::vector<std::vector<std::int64_t>> blocks = {range(0, 15), range(15, 55)};
  for (const std::int64_t i : range(55, 70)) blocks[0].push_back(i);
  host::Workspace workspace;
  Bytes context, log_sum, dq;
  for (std::size_t block = 0; block < 2; ++block) {
    forward.view.positions = backward.view.positions = range(0, kSequence);
    forward.view.key_positions = backward.view.key_positions = blocks[block];
    forward.view.first_keys = backward.view.first_keys = block == 0;
    const Values k = part(x.k, kBatch, kPairs * kDim, blocks[block]);
    const Values v = part(x.v, kBatch, kPairs * kValue, blocks[block]);
    std::vector<Bytes> made = run_kernel(forward.graph, forward.op, forward.view, {x.q, k, v, x.sink},
                                         {x.context, x.log_sum}, workspace);
    std::vector<Bytes> back =
        run_kernel(backward.graph, backward.op, backward.view,
                   {x.q, k, v, x.sink, x.context, x.log_sum, x.dy}, {x.q, k, v, x.sink}, workspace);
    CHECK(relative_error(to_values(back[1], DType::kFp32),
                         part(gradients[1], kBatch, kPairs * kDim, blocks[block])) < 1e-5);
    if (block == 0) {
      context = made[0], log_sum = made[1], dq = back[0];
      CHECK(relative_error(to_values(back[3], DType::kFp32), gradients[3]) < 1e-5);
      continue;
    }
    const auto view = [](Bytes& bytes) { return view_of(bytes, DType::kFp32); };
    const TensorView operands[] = {view(context), view(log_sum), view(made[0]), view(made[1])};
    host::add_ring_step(OpKind::kAttention, true, operands, workspace);
    Bytes zero_k(back[1].size()), zero_v(back[2].size()), sum(dq.size());
    const TensorView others[] = {view(dq),     view(back[0]), view(back[1]), view(back[2]),
                                 view(zero_k), view(zero_v),  view(sum)};
    host::add_ring_step(OpKind::kAttentionGrad, false, others, workspace);
    CHECK(zero_k == back[1]);
    CHECK(zero_v == back[2]);
    dq = sum;
  }
  CHECK(relative_error(to_values(context, DType::kFp32), whole[0]) < 1e-5);
  CHECK(relative_error(to_values(log_sum, DType::kFp32), whole[1]) < 1e-5);
  CHECK(relative_error(to_values(dq, DType::kFp32), gradients[0]) < 1e-5);
}

TEST_CASE("a query that sees no key of a block gets nothing from it", "[kernels][attention]") {
  // Keys at positions 5 and 6, a query at 1: no context, and a log-sum-exp of −∞, which adds nothing.
  const AttentionValues x;
  AttentionOp one(false, 1);
  one.op.inputs.pop_back();
  one.view.positions = {1};
  one.view.key_positions = {5, 6};
  const auto made = run(one,
                        {Values(kBatch * kHeads * kDim, 1.0), Values(kBatch * 2 * kPairs * kDim, 1.0),
                         Values(kBatch * 2 * kPairs * kValue, 1.0)},
                        {Values(kBatch * kHeads * kValue, 9.0), Values(kBatch * kHeads, 9.0)});
  CHECK(made[0] == Values(made[0].size(), 0.0));
  CHECK(made[1] == Values(made[1].size(), -std::numeric_limits<double>::infinity()));
}

TEST_CASE("positions turn heads, add rows and drop elements", "[kernels]") {
  for (const OpKind kind : {OpKind::kRope, OpKind::kRopeGrad, OpKind::kAddPositions,
                            OpKind::kAddPositionsGrad, OpKind::kDropout}) {
    OneOp one;
    const DimId b = one.dim(DimRole::kBatch, 2), s = one.dim(DimRole::kSequence, 5);
    const DimId a = one.dim(DimRole::kHeads, 3), d = one.dim(DimRole::kHeadDim, 38);
    const DimId p = one.dim(DimRole::kPositions, 40);
    one.op.kind = kind;
    one.op.name = to_string(kind);
    one.op.attributes.rotary_fraction = 0.9;
    one.op.attributes.rate = 0.25;
    one.view.positions = {3, 4, 30, 31, 35};
    const bool rope = kind == OpKind::kRope || kind == OpKind::kRopeGrad;
    const std::vector<DimId> x = rope ? std::vector<DimId>{b, s, a, d} : std::vector<DimId>{b, s, d};
    one.reads(x);
    if (kind == OpKind::kAddPositions) one.reads({p, d});
    if (kind == OpKind::kAddPositionsGrad) {
      one.writes({p, d}, DType::kFp32, TensorKind::kParameterGradient);
    } else {
      one.writes(x);
    }
    if (kind == OpKind::kDropout) one.writes(x, DType::kUint8);
    std::vector<Values> inputs, outputs;
    const auto value = [&](TensorId id) {
      return numbers(static_cast<std::size_t>(element_count(one.graph, id, one.view.sizes)), 3);
    };
    for (const TensorId id : one.op.inputs) inputs.push_back(value(id));
    for (const TensorId id : one.op.outputs) outputs.push_back(value(id));
    check_op(one.graph, one.op, one.view, inputs, outputs);
  }
}

TEST_CASE("a divided vocabulary has the loss of the whole one", "[kernels][loss]") {
  // 29 entries over two ranks of 16, so three of the second's are padding.
  constexpr std::size_t kTokens = 6, kVocab = 29, kLocal = 16;
  const Values logits = numbers(kTokens * kVocab, 8);
  const Values labels = {0, 28, 15, 16, 3, 20};
  OneOp whole;
  const DimId b = whole.dim(DimRole::kBatch, 2), s = whole.dim(DimRole::kSequence, 3);
  const DimId v = whole.dim(DimRole::kVocab, kVocab);
  whole.op.kind = OpKind::kCrossEntropy;
  whole.reads({b, s, v}), whole.reads({b, s}, DType::kInt64);
  whole.writes({}), whole.writes({b, s});
  std::vector<Values> loss = {{0.0}, Values(kTokens)};
  check_op(whole.graph, whole.op, whole.view, {logits, labels}, loss);

  host::Workspace workspace;
  host::OpView views[2];
  Bytes local[2], maximum[2], sum[2], label_logit[2], ids = to_bytes(labels, DType::kInt64);
  const auto floats = [](Bytes& bytes) { return view_of(bytes, DType::kFp32); };
  const auto run_parts = [&](int part_number, auto operands_of) {
    for (int r = 0; r < 2; ++r) host::run_loss_part(views[r], part_number, operands_of(r), workspace);
  };
  for (int r = 0; r < 2; ++r) {
    Values mine;
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t i = 0; i < kLocal; ++i) {
        const std::size_t entry = static_cast<std::size_t>(r) * kLocal + i;
        mine.push_back(entry < kVocab ? logits[t * kVocab + entry] : 100.0);
      }
    }
    local[r] = to_bytes(mine, DType::kFp32);
    maximum[r].resize(kTokens * 4), sum[r].resize(kTokens * 4), label_logit[r].resize(kTokens * 4);
    views[r].vocab_begin = r * static_cast<int>(kLocal);
    views[r].vocab = kVocab;
    views[r].loss_tokens = kTokens;
  }
  const auto all_reduce = [&](Bytes* both, auto combine) {
    Values first = to_values(both[0], DType::kFp32);
    const Values second = to_values(both[1], DType::kFp32);
    for (std::size_t i = 0; i < first.size(); ++i) first[i] = combine(first[i], second[i]);
    both[0] = both[1] = to_bytes(first, DType::kFp32);
  };
  run_parts(0, [&](int r) { return std::vector<TensorView>{floats(local[r]), floats(maximum[r])}; });
  all_reduce(maximum, [](double x, double y) { return std::max(x, y); });
  run_parts(1, [&](int r) {
    return std::vector<TensorView>{floats(local[r]), view_of(ids, DType::kInt64), floats(maximum[r]),
                                   floats(sum[r]), floats(label_logit[r])};
  });
  all_reduce(sum, [](double x, double y) { return x + y; });
  all_reduce(label_logit, [](double x, double y) { return x + y; });
  Bytes loss_bytes(4), log_sum(kTokens * 4);
  host::run_loss_part(views[0], 2,
                      std::vector<TensorView>{floats(maximum[0]), floats(sum[0]), floats(label_logit[0]),
                                              floats(loss_bytes), floats(log_sum)},
                      workspace);
  CHECK(relative_error(to_values(loss_bytes, DType::kFp32), loss[0]) < 1e-6);
  CHECK(relative_error(to_values(log_sum, DType::kFp32), loss[1]) < 1e-6);

  // The second rank's gradient, of padding too.
  OneOp grad;
  const DimId gb = grad.dim(DimRole::kBatch, 2), gs = grad.dim(DimRole::kSequence, 3);
  const DimId gv = grad.dim(DimRole::kVocab, kLocal);
  grad.op.kind = OpKind::kCrossEntropyGrad;
  grad.reads({gb, gs, gv}), grad.reads({gb, gs}, DType::kInt64), grad.reads({gb, gs});
  grad.writes({gb, gs, gv});
  const Sizes sizes = grad.view.sizes;
  grad.view = views[1];
  grad.view.sizes = sizes;
  std::vector<Values> dlogits = {Values(kTokens * kLocal, 7.0)};
  check_op(grad.graph, grad.op, grad.view,
           {to_values(local[1], DType::kFp32), labels, to_values(log_sum, DType::kFp32)}, dlogits);
}

TEST_CASE("a token table of which a rank has a part", "[kernels]") {
  OneOp one;
  const DimId b = one.dim(DimRole::kBatch, 1), s = one.dim(DimRole::kSequence, 4);
  const DimId v = one.dim(DimRole::kVocab, 3), h = one.dim(DimRole::kHidden, 2);
  one.view.vocab_begin = 10;
  one.op.kind = OpKind::kEmbedding;
  one.reads({b, s}, DType::kInt32), one.reads({v, h});
  one.writes({b, s, h});
  // Entries 10, 11 and 12 are here; 9 and 13 are others', and count nothing.
  const auto made = run(one, {{12, 9, 10, 13}, {1, 2, 3, 4, 5, 6}}, {Values(8, 9.0)});
  CHECK(made[0] == Values{5, 6, 0, 0, 1, 2, 0, 0});
}

TEST_CASE("narrow types are rounded on the way out, and a gradient in them goes on", "[kernels]") {
  OneOp one;
  const DimId s = one.dim(DimRole::kSequence, 3), k = one.dim(DimRole::kHidden, 1),
              n = one.dim(DimRole::kFfn, 1);
  one.op.kind = OpKind::kMatmulGradWeight;
  one.reads({s, k}, DType::kBf16), one.reads({s, n}, DType::kBf16);
  one.writes({k, n}, DType::kBf16, TensorKind::kParameterGradient);
  // 256 + 1 · 1 + 1 · 1 + 1 · 0.5 = 258.5 in fp32; bf16 has 258 and 260 there. In bf16 it would have stayed
  // 256.
  CHECK(run(one, {{1, 1, 1}, {1, 1, 0.5}}, {{256}})[0] == Values{258});
}

TEST_CASE("a bias that another rank brings is left out", "[kernels]") {
  OneOp one;
  const DimId s = one.dim(DimRole::kSequence, 1), k = one.dim(DimRole::kHidden, 2),
              n = one.dim(DimRole::kFfn, 1);
  one.op.kind = OpKind::kMatmul;
  one.op.attributes.bias = true;
  one.reads({s, k}), one.reads({k, n}), one.reads({n});
  one.writes({s, n});
  float x[] = {1, 2}, w[] = {3, 4}, bias = 5, y = 0;
  const auto view = [](float* at, std::int64_t count) {
    return TensorView{reinterpret_cast<std::byte*>(at), DType::kFp32, count};
  };
  host::Workspace workspace;
  const TensorView out = view(&y, 1), all[] = {view(x, 2), view(w, 2), view(&bias, 1)};
  host::run_kernel(one.graph, one.op, one.view, all, {&out, 1}, workspace);
  CHECK(y == 16);  // 1 · 3 + 2 · 4 + 5
  const TensorView without[] = {view(x, 2), view(w, 2), view(nullptr, 1)};
  host::run_kernel(one.graph, one.op, one.view, without, {&out, 1}, workspace);
  CHECK(y == 11);
}

TEST_CASE("views convert and add up across types", "[kernels]") {
  host::Workspace workspace;
  Bytes wide = to_bytes({1.00390625, -3}, DType::kFp32), narrow(4);  // 1 + 2^−8: half way, to even.
  host::convert(view_of(wide, DType::kFp32), view_of(narrow, DType::kBf16), workspace);
  CHECK(to_values(narrow, DType::kBf16) == Values{1, -3});
  host::accumulate(view_of(narrow, DType::kBf16), view_of(wide, DType::kFp32), workspace);
  CHECK(to_values(wide, DType::kFp32) == Values{2.00390625, -6});
}
