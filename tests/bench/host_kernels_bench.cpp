// The host backend's kernels on one core. items_per_second counts floating-point operations for products and
// attention (whose masked half counts for nothing), elements for all else.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/random.hpp"
#include "executor/kernels/exact_sum.hpp"
#include "executor/kernels/gemm.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/optimizer.hpp"

using namespace orrery;
using host::Isa;
using host::TensorView;
using host::Workspace;

namespace {

std::vector<float> numbers(std::size_t n) {
  Random random(1);
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(random.uniform() - 0.5);
  return values;
}

TensorView view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kFp32,
          static_cast<std::int64_t>(values.size())};
}

void set_rate(benchmark::State& state, double items) {
  state.counters["items_per_second"] =
      benchmark::Counter(items * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// Arguments: size, instructions, which operand lies transposed (0: none, 1: b, 2: a).
void product(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto isa = static_cast<Isa>(state.range(1));
  if (!host::available(isa)) return state.SkipWithError("not on this machine");
  Workspace workspace(isa);
  std::vector<float> a = numbers(n * n), b = numbers(n * n), c(n * n);
  host::Matrix left = {a.data(), n, 1}, right = {b.data(), n, 1};
  if (state.range(2) == 1) right = host::transposed(right);
  if (state.range(2) == 2) left = host::transposed(left);
  for (auto _ : state) {
    host::gemm(n, n, n, left, right, c.data(), n, false, workspace);
    benchmark::DoNotOptimize(c.data());
  }
  set_rate(state, 2.0 * static_cast<double>(n * n * n));
}
BENCHMARK(product)
    ->ArgNames({"n", "isa", "transposed"})
    ->ArgsProduct({{256, 512, 1024}, {1, 2}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

// One op over tensors of its own.
struct Bench {
  Graph graph;
  Op op;
  host::OpView view;
  std::vector<std::vector<float>> in, out;

  DimId dim(DimRole role, std::int64_t size) {
    graph.dims.push_back({"d", role, size});
    view.sizes.push_back(size);
    return DimId(static_cast<std::int64_t>(graph.dims.size()) - 1);
  }
  TensorId tensor(const std::vector<DimId>& shape) {
    Tensor& made = graph.tensors.emplace_back();
    made.dtype = DType::kFp32;
    made.shape = shape;
    return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
  }
  std::size_t elements(TensorId id) const {
    return static_cast<std::size_t>(element_count(graph, id, view.sizes));
  }
  void reads(const std::vector<DimId>& shape) {
    op.inputs.push_back(tensor(shape));
    in.push_back(numbers(elements(op.inputs.back())));
  }
  void writes(const std::vector<DimId>& shape) {
    op.outputs.push_back(tensor(shape));
    out.emplace_back(elements(op.outputs.back()));
  }
  void run(benchmark::State& state, double items) {
    Workspace workspace;
    std::vector<TensorView> inputs, outputs;
    for (auto& values : in) inputs.push_back(view_of(values));
    for (auto& values : out) outputs.push_back(view_of(values));
    for (auto _ : state) {
      host::run_kernel(graph, op, view, inputs, outputs, workspace);
      benchmark::DoNotOptimize(out[0].data());
    }
    set_rate(state, items);
  }
};

// Arguments: sequence, head dimension, backward. Eight heads over two pairs of keys and values.
void attention(benchmark::State& state) {
  Bench bench;
  const bool backward = state.range(2) == 1;
  const DimId b = bench.dim(DimRole::kBatch, 1), s = bench.dim(DimRole::kSequence, state.range(0));
  const DimId a = bench.dim(DimRole::kHeads, 8), g = bench.dim(DimRole::kKvHeads, 2);
  const DimId d = bench.dim(DimRole::kHeadDim, state.range(1));
  bench.reads({b, s, a, d}), bench.reads({b, s, g, d}), bench.reads({b, s, g, d});
  if (backward) {
    bench.reads({b, s, a, d}), bench.reads({b, s, a}), bench.reads({b, s, a, d});
    for (float& x : bench.in[4]) x += 6;  // Log-sum-exps of some hundred keys.
    bench.writes({b, s, a, d}), bench.writes({b, s, g, d}), bench.writes({b, s, g, d});
  } else {
    bench.writes({b, s, a, d}), bench.writes({b, s, a});
  }
  bench.op.kind = backward ? OpKind::kAttentionGrad : OpKind::kAttention;
  bench.run(state, flops(bench.graph, bench.op, bench.view.sizes));
}
BENCHMARK(attention)
    ->ArgNames({"s", "d", "backward"})
    ->ArgsProduct({{512, 2048}, {64, 128}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// 512 rows of 1,024.
void rows(benchmark::State& state, OpKind kind, int inputs, int outputs, bool weight) {
  Bench bench;
  const DimId b = bench.dim(DimRole::kBatch, 1), s = bench.dim(DimRole::kSequence, 512);
  const DimId h = bench.dim(DimRole::kHidden, 1024);
  for (int i = 0; i < inputs; ++i) {
    if (weight && i == 1)
      bench.reads({h});
    else
      bench.reads({b, s, h});
  }
  for (int i = 0; i < outputs; ++i) {
    if (weight && i == 1)
      bench.writes({h});
    else
      bench.writes({b, s, h});
  }
  bench.op.kind = kind;
  bench.run(state, 512.0 * 1024.0);
}
BENCHMARK_CAPTURE(rows, rms_norm, OpKind::kNorm, 2, 1, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, rms_norm_grad, OpKind::kNormGrad, 3, 2, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, swiglu, OpKind::kGated, 2, 1, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, swiglu_grad, OpKind::kGatedGrad, 3, 2, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, add, OpKind::kAdd, 2, 1, false)->Unit(benchmark::kMicrosecond);

void adamw(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<float> gradient = numbers(n), master = numbers(n), first(n), second(n);
  std::vector<std::byte> weights(2 * n);
  host::AdamWArrays arrays;
  arrays.gradient = view_of(gradient);
  arrays.master = master.data(), arrays.first = first.data(), arrays.second = second.data();
  arrays.weights = {weights.data(), DType::kBf16, static_cast<std::int64_t>(n)};
  Workspace workspace;
  for (auto _ : state) host::adamw({}, arrays, workspace);
  set_rate(state, static_cast<double>(n));
}
BENCHMARK(adamw)->Arg(1 << 16)->Arg(1 << 22)->Unit(benchmark::kMicrosecond);

void exact_sum(benchmark::State& state) {
  const std::vector<float> x = numbers(1 << 20);
  for (auto _ : state) {
    host::ExactSum sum;
    sum.add_squares(x.data(), x.size());
    benchmark::DoNotOptimize(sum.value());
  }
  set_rate(state, static_cast<double>(x.size()));
}
BENCHMARK(exact_sum)->Unit(benchmark::kMicrosecond);

// To and from the type of the argument.
void converted(benchmark::State& state) {
  const auto type = static_cast<DType>(state.range(0));
  std::vector<float> x = numbers(1 << 18);
  std::vector<std::byte> narrow(x.size() * static_cast<std::size_t>(size_bytes(type)));
  const TensorView to = {narrow.data(), type, static_cast<std::int64_t>(x.size())};
  Workspace workspace;
  for (auto _ : state) {
    host::convert(view_of(x), to, workspace);
    host::convert(to, view_of(x), workspace);
  }
  set_rate(state, 2.0 * static_cast<double>(x.size()));
}
BENCHMARK(converted)
    ->ArgName("dtype")
    ->Arg(static_cast<int>(DType::kBf16))
    ->Arg(static_cast<int>(DType::kFp16))
    ->Arg(static_cast<int>(DType::kFp8))
    ->Unit(benchmark::kMicrosecond);

}  // namespace
