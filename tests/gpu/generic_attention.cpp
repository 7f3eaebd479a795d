// Attention of any shape against the reference in double precision.
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

using Positions = std::vector<std::int64_t>;

struct Case {
  const char* name;
  DType type = DType::kBf16;
  std::int64_t batch = 1, queries = 0, keys = 0, heads = 1, kv_heads = 1, d = 0, e = 0;
  bool causal = true, sink = false;
  std::int64_t window = 0, chunk = 0;
  double softcap = 0;
  Positions positions = {}, key_positions = {};  // Empty: 0, 1, …
};

Positions range(std::int64_t begin, std::int64_t end) {
  Positions made(static_cast<std::size_t>(end - begin));
  std::iota(made.begin(), made.end(), begin);
  return made;
}
// A run from the front and one from the back, as ranks of a causal ring have them.
Positions zigzag(std::int64_t part, std::int64_t whole) {
  Positions made = range(0, part);
  for (const std::int64_t i : range(whole - part, whole)) made.push_back(i);
  return made;
}

// Widths of each class of tiles, odd ones, tiles that aren't full, several tiles, every kind of mask.
std::vector<Case> cases() {
  return {
      {"grouped heads", DType::kBf16, 2, 130, 130, 4, 2, 64, 64},
      {"odd widths", DType::kFp16, 1, 67, 67, 3, 1, 33, 17},
      {"one token", DType::kFp32, 2, 1, 1, 2, 2, 5, 3},
      {"middle widths", DType::kBf16, 1, 65, 65, 2, 2, 128, 96},
      {"latent attention", DType::kBf16, 1, 100, 100, 2, 2, 192, 128},
      {"widest", DType::kFp32, 1, 66, 66, 2, 1, 256, 255},
      {"not causal", DType::kFp32, 1, 70, 133, 2, 1, 40, 48, false},
      {"a window", DType::kFp32, 1, 200, 200, 2, 1, 24, 20, true, false, 30},
      {"a window that isn't causal", DType::kFp32, 1, 150, 150, 1, 1, 24, 20, false, false, 30},
      {"chunks", DType::kFp16, 1, 150, 150, 2, 2, 16, 72, true, false, 0, 48},
      {"a cap and a sink", DType::kFp32, 2, 90, 90, 2, 1, 20, 12, true, true, 40, 0, 1.5},
      {"a sink in bf16", DType::kBf16, 1, 70, 70, 4, 4, 64, 64, true, true},
      {"a ring's own keys", DType::kFp32, 1, 80, 80, 2, 1, 32, 32, true, true, 0, 0, 0, zigzag(40, 320),
       zigzag(40, 320)},
      {"a ring's other keys", DType::kBf16, 2, 80, 240, 2, 1, 32, 32, true, false, 0, 0, 0, zigzag(40, 320),
       range(40, 280)},
      {"rows that see no key", DType::kFp32, 1, 70, 100, 2, 1, 32, 8, true, false, 0, 0, 0, range(20, 90),
       range(60, 160)},
      {"rows that see a sink alone", DType::kFp32, 1, 70, 100, 2, 1, 32, 8, true, true, 0, 0, 0,
       range(20, 90), range(60, 160)},
      {"a window over a ring's keys", DType::kFp32, 1, 70, 140, 2, 2, 10, 10, true, false, 50, 0, 0,
       range(140, 210), range(0, 140)},
  };
}

constexpr DType kFp32 = DType::kFp32;

// A graph of one op.
struct OneOp {
  Graph graph;
  Op op;
  host::OpView view;

  void reads(const std::vector<std::int64_t>& sizes) {
    op.inputs.push_back(tensor(sizes, TensorKind::kActivation));
  }
  void writes(const std::vector<std::int64_t>& sizes, TensorKind kind = TensorKind::kActivation) {
    op.outputs.push_back(tensor(sizes, kind));
  }

 private:
  TensorId tensor(const std::vector<std::int64_t>& sizes, TensorKind kind) {
    Tensor& made = graph.tensors.emplace_back();
    made.kind = kind;
    for (const std::int64_t size : sizes) {
      made.shape.emplace_back(std::ssize(graph.dims));
      graph.dims.push_back({"", DimRole::kOther, size});
      view.sizes.push_back(size);
    }
    return TensorId(std::ssize(graph.tensors) - 1);
  }
};

// Operands and results, of attention or of its gradient.
OneOp op_of(const Case& x, bool backward) {
  OneOp one;
  one.reads({x.batch, x.queries, x.heads, x.d});
  one.reads({x.batch, x.keys, x.kv_heads, x.d});
  one.reads({x.batch, x.keys, x.kv_heads, x.e});
  if (x.sink) one.reads({x.heads});
  if (backward) {
    one.reads({x.batch, x.queries, x.heads, x.e});
    one.reads({x.batch, x.queries, x.heads});
    one.reads({x.batch, x.queries, x.heads, x.e});
    one.writes({x.batch, x.queries, x.heads, x.d});
    one.writes({x.batch, x.keys, x.kv_heads, x.d});
    one.writes({x.batch, x.keys, x.kv_heads, x.e});
    if (x.sink) one.writes({x.heads}, TensorKind::kParameterGradient);
  } else {
    one.writes({x.batch, x.queries, x.heads, x.e});
    one.writes({x.batch, x.queries, x.heads});
  }
  one.op.kind = backward ? OpKind::kAttentionGrad : OpKind::kAttention;
  one.op.attributes.causal = x.causal;
  one.op.attributes.window = x.window;
  one.op.attributes.chunk = x.chunk;
  one.op.attributes.softcap = x.softcap;
  one.view.positions = x.positions;
  one.view.key_positions = x.key_positions.empty() ? range(0, x.keys) : x.key_positions;
  return one;
}

void run_reference(const OneOp& one, std::vector<Values> inputs, std::vector<Values>& outputs) {
  std::vector<Values*> in, out;
  for (Values& values : inputs) in.push_back(&values);
  for (Values& values : outputs) out.push_back(&values);
  host::run_op(one.graph, one.op, one.view, in, out);
}

// lse[b,s,heads] as [b,heads,s].
Values by_head(const Values& lse, const Case& x) {
  Values turned;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    for (std::int64_t h = 0; h < x.heads; ++h) {
      for (std::int64_t i = 0; i < x.queries; ++i) {
        turned.push_back(lse[static_cast<std::size_t>((b * x.queries + i) * x.heads + h)]);
      }
    }
  }
  return turned;
}

// What a result may be off by, relative to the largest: fp32 sums in another order and other exponentials,
// and the rounding to the type.
double error_of(DType type) { return type == DType::kBf16 ? 0x1p-8 : type == DType::kFp16 ? 0x1p-10 : 1e-5; }

// A case's operands.
struct Operands {
  Values q, k, v, sink, dout;
  explicit Operands(const Case& x) {
    const std::int64_t rows = x.batch * x.queries * x.heads, pairs = x.batch * x.keys * x.kv_heads;
    q = numbers(static_cast<std::size_t>(rows * x.d), x.type, 1, 3);
    k = numbers(static_cast<std::size_t>(pairs * x.d), x.type, 2, 3);
    v = numbers(static_cast<std::size_t>(pairs * x.e), x.type, 3, 1);
    sink = numbers(static_cast<std::size_t>(x.heads), x.type, 4, 4);
    dout = numbers(static_cast<std::size_t>(rows * x.e), x.type, 5, 1);
  }
  std::vector<Values> inputs(const Case& x) const {
    return x.sink ? std::vector<Values>{q, k, v, sink} : std::vector<Values>{q, k, v};
  }
};

// What forward and backward have in common.
template <class Launch>
Launch launch_of(const Case& x, const Operands& operands, DeviceCase& device) {
  Launch launch;
  device::AttentionShape& shape = launch.shape;
  shape.batch = x.batch, shape.queries = x.queries, shape.keys = x.keys;
  shape.heads = x.heads, shape.kv_heads = x.kv_heads, shape.d = x.d, shape.e = x.e;
  shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(x.d)));
  shape.causal = x.causal, shape.window = x.window, shape.chunk = x.chunk;
  shape.softcap = static_cast<float>(x.softcap);
  const auto upload = [&](const Positions& positions) -> const std::int64_t* {
    if (positions.empty()) return nullptr;
    const device::Array array = device.input(Values(positions.begin(), positions.end()), DType::kInt64);
    return reinterpret_cast<const std::int64_t*>(array.data);
  };
  shape.positions = upload(x.positions), shape.key_positions = upload(x.key_positions);
  launch.q = device.input(operands.q, x.type), launch.k = device.input(operands.k, x.type);
  launch.v = device.input(operands.v, x.type);
  if (x.sink) launch.sink = device.input(operands.sink, x.type);
  return launch;
}

void check_forward(const Case& x, const Operands& operands, const std::vector<Values>& wanted) {
  DeviceCase device;
  auto launch = launch_of<device::Attention>(x, operands, device);
  launch.o = device.output(wanted[0].size(), x.type);
  const device::Array lse = device.output(wanted[1].size(), kFp32);
  launch.lse = reinterpret_cast<float*>(lse.data);
  device.run_by([&] { cuda::launch_generic(launch, nullptr, nullptr); });
  CHECK(relative_error(device.values(launch.o), wanted[0]) < error_of(x.type));
  CHECK(relative_error(device.values(lse), by_head(wanted[1], x)) < 1e-5);
}

void check_backward(const Case& x, const Operands& operands, const std::vector<Values>& forward) {
  // Both sides get the same context and sums, rounded as they are kept.
  const Values context = to_values(to_bytes(forward[0], x.type), x.type);
  const Values log_sums = to_values(to_bytes(forward[1], kFp32), kFp32);
  const Values before = numbers(operands.sink.size(), kFp32, 6, 1);
  std::vector<Values> inputs = operands.inputs(x), wanted = {operands.q, operands.k, operands.v};
  inputs.insert(inputs.end(), {context, log_sums, operands.dout});
  if (x.sink) wanted.push_back(before);
  run_reference(op_of(x, true), inputs, wanted);

  DeviceCase device;
  auto launch = launch_of<device::AttentionGrad>(x, operands, device);
  launch.o = device.input(context, x.type), launch.dout = device.input(operands.dout, x.type);
  launch.lse = reinterpret_cast<const float*>(device.input(by_head(log_sums, x), kFp32).data);
  launch.dq = device.output(operands.q.size(), x.type), launch.dk = device.output(operands.k.size(), x.type);
  launch.dv = device.output(operands.v.size(), x.type);
  if (x.sink) launch.dsink = device.changed(before, kFp32);
  const DeviceBytes workspace(static_cast<std::size_t>(cuda::generic_workspace_bytes(launch)));
  device.run_by([&] { cuda::launch_generic(launch, workspace.data(), nullptr); });
  CHECK(workspace.guards_stand());
  CHECK(relative_error(device.values(launch.dq), wanted[0]) < error_of(x.type));
  CHECK(relative_error(device.values(launch.dk), wanted[1]) < error_of(x.type));
  CHECK(relative_error(device.values(launch.dv), wanted[2]) < error_of(x.type));
  if (x.sink) CHECK(relative_error(device.values(launch.dsink), wanted[3]) < 1e-5);
}

}  // namespace

TEST_CASE("generic attention and its gradient are the reference's", "[gpu]") {
  if (!have_gpu()) return;
  for (const Case& x : cases()) {
    INFO(x.name);
    const Operands operands(x);
    std::vector<Values> forward = {Values(static_cast<std::size_t>(x.batch * x.queries * x.heads * x.e)),
                                   Values(static_cast<std::size_t>(x.batch * x.queries * x.heads))};
    run_reference(op_of(x, false), operands.inputs(x), forward);
    check_forward(x, operands, forward);
    check_backward(x, operands, forward);
  }
}

TEST_CASE("generic attention refuses heads that are too wide", "[gpu]") {
  device::Attention launch;
  launch.shape.batch = launch.shape.queries = launch.shape.keys = 1;
  launch.shape.heads = launch.shape.kv_heads = 1;
  launch.shape.d = 257, launch.shape.e = 64;
  CHECK_THROWS_AS(cuda::launch_generic(launch, nullptr, nullptr), Error);
}
