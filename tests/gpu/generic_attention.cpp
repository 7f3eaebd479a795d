// Attention of any shape against the reference in double precision.
#include <cmath>
#include <numeric>

#include "tests/gpu/generic_cases.hpp"

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

// Operands and results, of attention or of its gradient.
OneOp op_of(const Case& x, bool backward) {
  OneOp one;
  one.reads({x.batch, x.queries, x.heads, x.d}, x.type);
  one.reads({x.batch, x.keys, x.kv_heads, x.d}, x.type);
  one.reads({x.batch, x.keys, x.kv_heads, x.e}, x.type);
  if (x.sink) one.reads({x.heads}, x.type);
  if (backward) {
    one.reads({x.batch, x.queries, x.heads, x.e}, x.type);
    one.reads({x.batch, x.queries, x.heads}, kFp32);
    one.reads({x.batch, x.queries, x.heads, x.e}, x.type);
    one.writes({x.batch, x.queries, x.heads, x.d}, x.type);
    one.writes({x.batch, x.keys, x.kv_heads, x.d}, x.type);
    one.writes({x.batch, x.keys, x.kv_heads, x.e}, x.type);
    if (x.sink) one.writes({x.heads}, kFp32, TensorKind::kParameterGradient);
  } else {
    one.writes({x.batch, x.queries, x.heads, x.e}, x.type);
    one.writes({x.batch, x.queries, x.heads}, kFp32);
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

// A case's operands on both sides.
struct Operands {
  std::vector<Values> inputs;  // q, k, v (, sink).
  Values dout;
  DeviceMemory q, k, v, sink, positions, key_positions;
  device::AttentionShape shape;

  explicit Operands(const Case& x) {
    const std::int64_t rows = x.batch * x.queries * x.heads, pairs = x.batch * x.keys * x.kv_heads;
    inputs = {numbers(rows * x.d, 1, x.type, 3), numbers(pairs * x.d, 2, x.type, 3),
              numbers(pairs * x.e, 3, x.type)};
    if (x.sink) inputs.push_back(numbers(x.heads, 4, x.type, 4));
    dout = numbers(rows * x.e, 5, x.type);
    q = upload(inputs[0], x.type), k = upload(inputs[1], x.type), v = upload(inputs[2], x.type);
    if (x.sink) sink = upload(inputs[3], x.type);
    positions = upload(x.positions), key_positions = upload(x.key_positions);
    shape = {x.batch, x.queries, x.keys, x.heads, x.kv_heads, x.d, x.e};
    shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(x.d)));
    shape.causal = x.causal;
    shape.window = x.window, shape.chunk = x.chunk;
    shape.softcap = static_cast<float>(x.softcap);
    shape.positions = positions.as<const std::int64_t>();
    shape.key_positions = key_positions.as<const std::int64_t>();
  }
};

void check_forward(const Case& x, const Operands& operands, const std::vector<Values>& wanted) {
  DeviceMemory o = output(x.batch * x.queries * x.heads * x.e, x.type);
  DeviceMemory lse = output(x.batch * x.queries * x.heads, kFp32);
  const device::Attention launch = {
      operands.shape,           operands.q.array(x.type),    operands.k.array(x.type),
      operands.v.array(x.type), operands.sink.array(x.type), o.array(x.type),
      lse.as<float>()};
  run_twice({&o, &lse}, [&] { cuda::launch_generic(launch, nullptr, nullptr); });
  CHECK(relative_error(download(o, x.type), wanted[0]) < tolerance_of(x.type));
  CHECK(relative_error(download(lse, kFp32), by_head(wanted[1], x)) < 1e-5);
}

void check_backward(const Case& x, const Operands& operands, const std::vector<Values>& forward) {
  // Both sides get the same context and sums, rounded as they are kept.
  const Values context = to_values(to_bytes(forward[0], x.type), x.type);
  const Values log_sums = to_values(to_bytes(forward[1], kFp32), kFp32);
  std::vector<Values> inputs = operands.inputs;
  inputs.insert(inputs.end(), {context, log_sums, operands.dout});
  std::vector<Values> wanted = {operands.inputs[0], operands.inputs[1], operands.inputs[2]};
  const Values before = numbers(x.heads, 6, kFp32);
  if (x.sink) wanted.push_back(before);
  run_reference(op_of(x, true), inputs, wanted);

  const DeviceMemory o = upload(context, x.type), lse = upload(by_head(log_sums, x), kFp32);
  const DeviceMemory dout = upload(operands.dout, x.type);
  DeviceMemory dq(operands.q.size()), dk(operands.k.size()), dv(operands.v.size()), dsink;
  device::AttentionGrad launch;
  launch.shape = operands.shape;
  launch.q = operands.q.array(x.type), launch.k = operands.k.array(x.type),
  launch.v = operands.v.array(x.type);
  launch.sink = operands.sink.array(x.type), launch.o = o.array(x.type), launch.dout = dout.array(x.type);
  launch.lse = lse.as<const float>();
  launch.dq = dq.array(x.type), launch.dk = dk.array(x.type), launch.dv = dv.array(x.type);
  std::vector<Bytes> sinks;
  run_twice({&dq, &dk, &dv}, [&] {
    if (x.sink) dsink = upload(before, kFp32);
    launch.dsink = dsink.array(kFp32);
    const DeviceMemory workspace(static_cast<std::size_t>(cuda::generic_workspace_bytes(launch)));
    cuda::launch_generic(launch, workspace.data(), nullptr);
    workspace.download();
    if (x.sink) sinks.push_back(dsink.download());
  });
  CHECK(relative_error(download(dq, x.type), wanted[0]) < tolerance_of(x.type));
  CHECK(relative_error(download(dk, x.type), wanted[1]) < tolerance_of(x.type));
  CHECK(relative_error(download(dv, x.type), wanted[2]) < tolerance_of(x.type));
  if (!x.sink) return;
  CHECK(sinks[0] == sinks[1]);
  CHECK(relative_error(to_values(sinks[0], kFp32), wanted[3]) < 1e-5);
}

}  // namespace

TEST_CASE("generic attention and its gradient are the reference's", "[gpu]") {
  if (!have_gpu()) return;
  for (const Case& x : cases()) {
    INFO(x.name);
    const Operands operands(x);
    std::vector<Values> forward = {Values(static_cast<std::size_t>(x.batch * x.queries * x.heads * x.e)),
                                   Values(static_cast<std::size_t>(x.batch * x.queries * x.heads))};
    run_reference(op_of(x, false), operands.inputs, forward);
    check_forward(x, operands, forward);
    check_backward(x, operands, forward);
  }
}

TEST_CASE("generic attention refuses heads that are too wide", "[gpu]") {
  device::Attention launch;
  launch.shape = {1, 1, 1, 1, 1, 257, 64};
  CHECK_THROWS_AS(cuda::launch_generic(launch, nullptr, nullptr), Error);
}
