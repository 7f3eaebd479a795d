// What the tracer sees of a graph, node by node.
#include <fmt/format.h>

#include <algorithm>

#include "executor/cuda/memory.hpp"
#include "executor/cuda/nvtx_range.hpp"
#include "executor/cuda/products.hpp"
#include "executor/cuda/tracer.hpp"
#include "tests/gpu/device_cases.hpp"

namespace orrery::test {
namespace {

constexpr std::int64_t kSide = 512;

// A product of squares, and a fill before it, captured.
class Captured {
 public:
  Captured() : products_(cuda::cublaslt(), "test", "") {
    gemm_.m = gemm_.n = gemm_.k = kSide;
    gemm_.a = gemm_.b = gemm_.d = {{matrices_.data(), DType::kBf16}, kSide, 0, false};
    gemm_.d.array.data += kSide * kSide * 2;
    id_ = products_.prepare(gemm_);
    products_.settle(static_cast<std::size_t>(workspace_.size()));
    issue();
    check_cuda(cudaStreamSynchronize(stream_));
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    issue();
    check_cuda(cudaStreamEndCapture(stream_, &graph_));
    check_cuda(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  ~Captured() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  void issue() {
    check_cuda(cudaMemsetAsync(matrices_.data(), 0, static_cast<std::size_t>(kSide * kSide * 2), stream_));
    products_.run(id_, gemm_, workspace_.data(), static_cast<std::size_t>(workspace_.size()), stream_);
  }
  void replay() { check_cuda(cudaGraphLaunch(exec_, stream_)); }
  std::vector<cudaGraphNode_t> nodes() const {
    std::size_t count = 0;
    check_cuda(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    check_cuda(cudaGraphGetNodes(graph_, nodes.data(), &count));
    return nodes;
  }

 private:
  cuda::OwnStream stream_;
  cuda::Memory matrices_{kSide * kSide * 4, "tests"}, workspace_{std::int64_t{32} << 20, "tests"};
  cuda::Products products_;
  device::Gemm gemm_;
  cuda::ProductId id_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

std::int64_t count_of(const cuda::Trace& trace, const std::string& name) {
  return std::count_if(trace.kernels.begin(), trace.kernels.end(), [&](const cuda::TracedKernel& kernel) {
    return trace.names[static_cast<std::size_t>(kernel.name)] == name;
  });
}

}  // namespace

TEST_CASE("traced kernels are those of a graph's nodes", "[gpu]") {
  if (!have_gpu()) return;
  cuda::Tracer tracer(cuda::cupti());
  CHECK_THROWS_WITH(cuda::Tracer(cuda::cupti()), Catch::Contains("takes one client"));
  tracer.start();
  Captured captured;
  std::vector<std::uint64_t> ids;
  for (const cudaGraphNode_t node : captured.nodes()) ids.push_back(tracer.graph_node_id(node).value_or(0));
  REQUIRE(ids.size() >= 2);
  CHECK(std::count(ids.begin(), ids.end(), std::uint64_t{0}) == 0);
  const std::int64_t begun = tracer.now_ns();
  for (int replay = 0; replay < 3; ++replay) captured.replay();
  const cuda::Trace trace = tracer.stop();
  const std::int64_t ended = tracer.now_ns();

  CHECK(trace.dropped == 0);
  std::int64_t of_graph = 0, plain = 0;
  for (const cuda::TracedKernel& kernel : trace.kernels) {
    INFO(trace.names[static_cast<std::size_t>(kernel.name)] << " node " << kernel.graph_node);
    CHECK(kernel.end_ns >= kernel.start_ns);
    (kernel.graph_node != 0 ? of_graph : plain) += 1;
    if (kernel.graph_node == 0) continue;
    CHECK(std::count(ids.begin(), ids.end(), kernel.graph_node) == 1);
    CHECK(kernel.start_ns > begun);
    CHECK(kernel.end_ns < ended);
  }
  CHECK(of_graph == 3 * std::ssize(ids));
  CHECK(plain >= std::ssize(ids));  // Before the capture.
  CHECK(count_of(trace, "fill") >= 4);
  CHECK(std::is_sorted(trace.kernels.begin(), trace.kernels.end(),
                       [](const auto& x, const auto& y) { return x.start_ns < y.start_ns; }));
}

TEST_CASE("a tracer begins anew, and sees nothing once it has stopped", "[gpu]") {
  if (!have_gpu()) return;
  cuda::Tracer tracer(cuda::cupti());
  Captured captured;
  CHECK(tracer.stop().kernels.empty());
  for (int again = 0; again < 2; ++again) {
    tracer.start();
    {
      const cuda::NvtxRange range("a replay");
      captured.replay();
    }
    const cuda::Trace trace = tracer.stop();
    CHECK(trace.kernels.size() == captured.nodes().size());
    captured.replay();
    check_cuda(cudaDeviceSynchronize());
  }
}

}  // namespace orrery::test
