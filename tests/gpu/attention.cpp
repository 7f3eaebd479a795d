// Attention by cuDNN beside the host backend; and, without a GPU, whether cuDNN has engines for one.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.hpp"
#include "executor/cuda/attention.hpp"
#include "executor/cuda/memory.hpp"
#include "tests/gpu/device_cases.hpp"

namespace orrery::test {
namespace {

using cuda::AttentionPass;
using device::AttentionShape;

AttentionShape shape_of(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t s,
                        std::int64_t d, std::int64_t e, bool causal = true) {
  AttentionShape shape;
  shape.batch = batch, shape.heads = heads, shape.kv_heads = kv_heads;
  shape.queries = shape.keys = s;
  shape.d = d, shape.e = e, shape.causal = causal;
  shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  return shape;
}

std::string name_of(const AttentionShape& shape, DType type) {
  return describe(cuda::AttentionForm{shape, type, AttentionPass::kForward});
}

// [b,s,heads] as the host has sums of exponentials → [b,heads,s] as the device has them.
Values by_head(const Values& values, const AttentionShape& x) {
  Values turned(values.size());
  for (std::int64_t b = 0; b < x.batch; ++b) {
    for (std::int64_t i = 0; i < x.queries; ++i) {
      for (std::int64_t h = 0; h < x.heads; ++h) {
        turned[static_cast<std::size_t>((b * x.heads + h) * x.queries + i)] =
            values[static_cast<std::size_t>((b * x.queries + i) * x.heads + h)];
      }
    }
  }
  return turned;
}

// Of all elements together.
double norm_error(const Values& found, const Values& wanted) {
  REQUIRE(found.size() == wanted.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(error / size);
}

// What the host makes of a shape, in fp32 on numbers that T holds.
struct Host {
  Host(const AttentionShape& x, DType type, std::uint64_t seed)
      : q_shape{x.batch, x.queries, x.heads, x.d},
        k_shape{x.batch, x.keys, x.kv_heads, x.d},
        v_shape{x.batch, x.keys, x.kv_heads, x.e},
        o_shape{x.batch, x.queries, x.heads, x.e},
        row_shape{x.batch, x.queries, x.heads},
        q(numbers(product(q_shape), type, seed, 3)),
        k(numbers(product(k_shape), type, seed + 1, 3)),
        v(numbers(product(v_shape), type, seed + 2)),
        dout(numbers(product(o_shape), type, seed + 3)) {
    HostOp forward(OpKind::kAttention);
    forward.op.attributes.causal = x.causal;
    forward.op.attributes.score_scale = static_cast<double>(x.scale);
    forward.input(q_shape, q).input(k_shape, k).input(v_shape, v).output(o_shape).output(row_shape);
    std::vector<Values> results = forward.run();
    o = results[0];
    HostOp backward(OpKind::kAttentionGrad);
    backward.op.attributes = forward.op.attributes;
    backward.input(q_shape, q)
        .input(k_shape, k)
        .input(v_shape, v)
        .input(o_shape, o)
        .input(row_shape, results[1]);
    backward.input(o_shape, dout).output(q_shape).output(k_shape).output(v_shape);
    std::vector<Values> gradients = backward.run();
    dq = gradients[0], dk = gradients[1], dv = gradients[2];
    lse = by_head(results[1], x);
  }

  std::vector<std::int64_t> q_shape, k_shape, v_shape, o_shape, row_shape;
  Values q, k, v, dout, o, lse, dq, dk, dv;
};

// The same in device memory, run by cuDNN.
class OnDevice {
 public:
  OnDevice(const AttentionShape& x, DType element_type, const Host& host)
      : shape(x),
        type(element_type),
        q(bytes(host.q)),
        k(bytes(host.k)),
        v(bytes(host.v)),
        o(bytes(host.o)),
        lse(host.lse.size() * 4),
        dout(bytes(host.dout)),
        dq(bytes(host.q)),
        dk(bytes(host.k)),
        dv(bytes(host.v)) {
    q.write(to_bytes(host.q, type));
    k.write(to_bytes(host.k, type));
    v.write(to_bytes(host.v, type));
    dout.write(to_bytes(host.dout, type));
  }
  device::Attention forward() const {
    return {shape, array(q), array(k), array(v), {}, array(o), reinterpret_cast<float*>(lse.data())};
  }
  device::AttentionGrad backward(bool deterministic) const {
    device::AttentionGrad grad;
    grad.shape = shape;
    grad.q = array(q), grad.k = array(k), grad.v = array(v), grad.o = array(o), grad.dout = array(dout);
    grad.lse = reinterpret_cast<const float*>(lse.data());
    grad.dq = array(dq), grad.dk = array(dk), grad.dv = array(dv);
    grad.deterministic = deterministic;
    return grad;
  }
  void poison_gradients() {
    for (DeviceBytes* each : {&dq, &dk, &dv}) {
      each->write(Bytes(each->read().size(), static_cast<std::byte>(kPoison)));
    }
  }
  std::vector<Bytes> gradients() const { return {dq.read(), dk.read(), dv.read()}; }
  bool guards_stand() const {
    for (const DeviceBytes* each : {&q, &k, &v, &o, &lse, &dout, &dq, &dk, &dv}) {
      if (!each->guards_stand()) return false;
    }
    return true;
  }

  const AttentionShape shape;
  const DType type;
  DeviceBytes q, k, v, o, lse, dout, dq, dk, dv;

 private:
  std::size_t bytes(const Values& values) const {
    return values.size() * static_cast<std::size_t>(size_bytes(type));
  }
  device::Array array(const DeviceBytes& memory) const { return {memory.data(), type}; }
};

// P and dS are rounded to T on the way: relative errors of 2e-3 to 3e-3 were seen with bf16.
double limit_of(DType type) { return type == DType::kBf16 ? 8e-3 : 2e-3; }

void check_gradients(const std::vector<Bytes>& found, const Host& host, DType type) {
  const Values* const wanted[] = {&host.dq, &host.dk, &host.dv};
  for (std::size_t i = 0; i < 3; ++i) {
    INFO("gradient of " << "qkv"[i]);
    const Values values = to_values(found[i], type);
    CHECK(norm_error(values, *wanted[i]) < limit_of(type));
    CHECK(relative_error(values, *wanted[i]) < 5 * limit_of(type));
  }
}

struct Bench {
  explicit Bench(const std::string& cache = "") : plans(cuda::cudnn(), "test", cache) {}
  // Prepared, bound and run; poison in the workspace must not matter.
  template <class Kind>
  cuda::BoundAttention bind(const Kind& launch, DType type, AttentionPass pass) {
    const auto id = plans.prepare(launch.shape, type, pass);
    INFO(plans.refusal());
    REQUIRE(id);
    const std::int64_t bytes = plans.workspace_bytes(*id);
    workspaces.emplace_back(bytes, "tests");
    if (bytes > 0) check_cuda(cudaMemset(workspaces.back().data(), kPoison, static_cast<std::size_t>(bytes)));
    return plans.bind(*id, launch, workspaces.back().data());
  }
  void run(const cuda::BoundAttention& bound) {
    plans.run(bound, stream);
    check_cuda(cudaStreamSynchronize(stream));
  }

  cuda::OwnStream stream;
  std::deque<cuda::Memory> workspaces;
  cuda::AttentionPlans plans;
};

void check_shape(Bench& bench, const AttentionShape& shape, DType type) {
  INFO(name_of(shape, type));
  const Host host(shape, type, 5);
  OnDevice arrays(shape, type, host);
  bench.run(bench.bind(arrays.forward(), type, AttentionPass::kForward));
  const Values o = to_values(arrays.o.read(), type);
  CHECK(norm_error(o, host.o) < limit_of(type));
  CHECK(relative_error(o, host.o) < 5 * limit_of(type));
  CHECK(relative_error(to_values(arrays.lse.read(), DType::kFp32), host.lse) < 1e-3);

  for (const bool deterministic : {false, true}) {
    INFO((deterministic ? "in order" : "by atomics"));
    const auto backward =
        bench.bind(arrays.backward(deterministic), type,
                   deterministic ? AttentionPass::kBackwardDeterministic : AttentionPass::kBackward);
    arrays.poison_gradients();
    bench.run(backward);
    const std::vector<Bytes> once = arrays.gradients();
    check_gradients(once, host, type);
    arrays.poison_gradients();
    bench.run(backward);
    check_gradients(arrays.gradients(), host, type);
    if (deterministic) CHECK((arrays.gradients() == once));
  }
  CHECK(arrays.guards_stand());
}

}  // namespace

TEST_CASE("cuDNN is asked only for attention that its graphs say", "[gpu]") {
  const AttentionShape plain = shape_of(2, 8, 2, 256, 64, 64);
  CHECK(cuda::supports(plain, DType::kBf16));
  CHECK(cuda::supports(plain, DType::kFp16));
  CHECK_FALSE(cuda::supports(plain, DType::kFp32));
  const std::int64_t position = 0;
  const auto without = [&](auto change) {
    AttentionShape changed = plain;
    change(changed);
    return !cuda::supports(changed, DType::kBf16);
  };
  CHECK(without([](AttentionShape& x) { x.window = 16; }));
  CHECK(without([](AttentionShape& x) { x.chunk = 16; }));
  CHECK(without([](AttentionShape& x) { x.softcap = 30; }));
  CHECK(without([](AttentionShape& x) { x.keys = 512; }));
  CHECK(without([](AttentionShape& x) { x.d = 60; }));
  CHECK(without([](AttentionShape& x) { x.e = 136; }));
  CHECK(without([](AttentionShape& x) { x.kv_heads = 3; }));
  CHECK(without([&](AttentionShape& x) { x.positions = &position; }));
  CHECK(without([&](AttentionShape& x) { x.key_positions = &position; }));

  alignas(16) std::byte memory[64]{};
  device::Attention attention;
  attention.shape = plain;
  attention.q = attention.k = attention.v = attention.o = {memory, DType::kBf16};
  CHECK(cuda::supports(attention));
  attention.k.data = memory + 8;
  CHECK_FALSE(cuda::supports(attention));
  attention.k.data = memory + 16;
  attention.sink = {memory, DType::kBf16};
  CHECK_FALSE(cuda::supports(attention));
}

TEST_CASE("cuDNN has engines for attention on an H200", "[gpu]") {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const cuda::Cudnn* library = nullptr;
  try {
    library = driver != nullptr ? &cuda::cudnn() : nullptr;
  } catch (const Error& error) {
    std::cout << error.what() << '\n';
  }
  if (library == nullptr) {
    std::cout << "skipped: no cuDNN, or no libcuda.so.1 for it\n";
    return;
  }
  std::ifstream file(ORRERY_SOURCE_DIR "/tests/data/cudnn-h200.json");
  const std::string device((std::istreambuf_iterator<char>(file)), {});
  if (device.empty()) {
    std::cout << "skipped: the source tree isn't here\n";
    return;
  }
  // Queries, keys and values as columns of one matrix.
  const auto packed = [](AttentionShape shape) {
    const std::int64_t token = (shape.heads + shape.kv_heads) * shape.d + shape.kv_heads * shape.e;
    shape.strides = {token, token, token, token, token, token};
    return shape;
  };
  for (const AttentionShape& shape :
       {packed(shape_of(32, 12, 12, 1024, 64, 64)), packed(shape_of(8, 16, 16, 2048, 128, 128)),
        packed(shape_of(2, 32, 8, 4096, 128, 128)), shape_of(16, 12, 12, 1024, 64, 64),
        shape_of(8, 16, 16, 2048, 128, 128), shape_of(2, 32, 8, 4096, 128, 128),
        shape_of(1, 64, 8, 8192, 128, 128), shape_of(2, 8, 2, 200, 72, 72), shape_of(2, 4, 4, 256, 128, 64),
        shape_of(1, 6, 3, 1000, 96, 96, false), shape_of(1, 1, 1, 16, 8, 8)}) {
    for (const DType type : {DType::kBf16, DType::kFp16}) {
      for (const AttentionPass pass :
           {AttentionPass::kForward, AttentionPass::kBackward, AttentionPass::kBackwardDeterministic}) {
        const cuda::AttentionForm form{shape, type, pass};
        INFO(describe(form));
        CHECK(cuda::check_engines(*library, device, form) > 0);
      }
    }
  }
}

TEST_CASE("cuDNN's attention and its gradients are the host's", "[gpu]") {
  if (!have_gpu()) return;
  Bench bench;
  for (const DType type : {DType::kBf16, DType::kFp16}) {
    check_shape(bench, shape_of(2, 8, 2, 256, 64, 64), type);
    check_shape(bench, shape_of(2, 4, 4, 256, 128, 128), type);
    check_shape(bench, shape_of(2, 4, 2, 256, 128, 128, false), type);
  }
}

TEST_CASE("cuDNN's attention at lengths and widths that fill no tile", "[gpu]") {
  if (!have_gpu()) return;
  Bench bench;
  check_shape(bench, shape_of(1, 4, 2, 200, 64, 64), DType::kBf16);
  check_shape(bench, shape_of(3, 2, 1, 17, 64, 64), DType::kBf16);
  check_shape(bench, shape_of(1, 4, 4, 130, 72, 72), DType::kBf16);
  check_shape(bench, shape_of(1, 2, 2, 128, 8, 8), DType::kBf16);
  check_shape(bench, shape_of(1, 4, 4, 192, 96, 64), DType::kBf16);
  check_shape(bench, shape_of(1, 4, 4, 100, 64, 64, false), DType::kBf16);
}

TEST_CASE("captured attention does what it does uncaptured, on any stream", "[gpu]") {
  if (!have_gpu()) return;
  const AttentionShape shape = shape_of(2, 8, 2, 256, 64, 64);
  const Host host(shape, DType::kBf16, 11);
  OnDevice arrays(shape, DType::kBf16, host);
  Bench bench;
  const auto forward = bench.bind(arrays.forward(), DType::kBf16, AttentionPass::kForward);
  const auto backward =
      bench.bind(arrays.backward(true), DType::kBf16, AttentionPass::kBackwardDeterministic);
  const auto by_atomics = bench.bind(arrays.backward(false), DType::kBf16, AttentionPass::kBackward);
  bench.run(forward);
  bench.run(by_atomics);
  bench.run(backward);
  const Bytes o = arrays.o.read(), lse = arrays.lse.read();
  const std::vector<Bytes> gradients = arrays.gradients();

  const cuda::OwnStream other;
  for (const bool atomics : {true, false}) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
    bench.plans.run(forward, other);
    bench.plans.run(atomics ? by_atomics : backward, other);
    check_cuda(cudaStreamEndCapture(other, &graph));
    check_cuda(cudaGraphInstantiate(&exec, graph, 0));
    for (int replay = 0; replay < 3; ++replay) {
      arrays.o.write(Bytes(o.size()));
      arrays.poison_gradients();
      check_cuda(cudaGraphLaunch(exec, other));
      check_cuda(cudaStreamSynchronize(other));
      CHECK((arrays.o.read() == o));
      CHECK((arrays.lse.read() == lse));
      check_gradients(arrays.gradients(), host, DType::kBf16);
      if (!atomics) CHECK((arrays.gradients() == gradients));
    }
    check_cuda(cudaGraphExecDestroy(exec));
    check_cuda(cudaGraphDestroy(graph));
  }
}

TEST_CASE("engines of attention are timed once for all runs", "[gpu]") {
  if (!have_gpu()) return;
  const std::string cache =
      (std::filesystem::temp_directory_path() / ("orrery-attention-" + std::to_string(getpid()))).string();
  const AttentionShape shape = shape_of(4, 8, 8, 512, 64, 64);
  std::vector<cuda::AttentionTime> first;
  for (const bool again : {false, true}) {
    Bench bench(cache);
    for (const AttentionPass pass :
         {AttentionPass::kForward, AttentionPass::kBackward, AttentionPass::kBackwardDeterministic}) {
      REQUIRE(bench.plans.prepare(shape, DType::kBf16, pass));
    }
    const cuda::Memory scratch(std::int64_t{512} << 20, "tests");
    CHECK(bench.plans.tune(bench.stream, {scratch.data(), std::size_t{512} << 20}).empty());
    const std::vector<cuda::AttentionTime> times = bench.plans.times();
    if (!again) first = times;
    for (std::size_t i = 0; i < times.size(); ++i) {
      INFO(times[i].attention << ": engine " << times[i].engine << ", " << times[i].microseconds << " µs");
      CHECK(times[i].microseconds > 0);
      CHECK(times[i].engine == first[i].engine);
      CHECK(times[i].microseconds == Approx(first[i].microseconds).margin(1e-3));
    }
    check_shape(bench, shape, DType::kBf16);
  }
  std::filesystem::remove_all(cache);
}

TEST_CASE("what cuDNN isn't asked for is refused with a reason", "[gpu]") {
  if (!have_gpu()) return;
  Bench bench;
  AttentionShape shape = shape_of(2, 8, 2, 256, 64, 64);
  shape.window = 16;
  CHECK_FALSE(bench.plans.prepare(shape, DType::kBf16, AttentionPass::kForward));
  CHECK_THAT(bench.plans.refusal(), Catch::Contains("not among what cuDNN is asked for"));
}

}  // namespace orrery::test
