#include "executor/cuda/probe/device.hpp"
#include "executor/cuda/probe/kernels.hpp"
#include "executor/cuda/probe/measurements.hpp"

namespace orrery::cuda {
namespace {

constexpr int kGraphNodes = 1000;
constexpr int kRuns = 30;

// Into an empty queue and few enough that it doesn't fill up (it holds about a thousand): what a launch costs
// the host, not what it waits.
double host_launch_s(const Stream& stream) {
  constexpr int kLaunches = 256;
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    stream.synchronize();
    const double start = host_now_s();
    for (int i = 0; i < kLaunches; ++i) launch_empty(stream);
    seconds.push_back((host_now_s() - start) / kLaunches);
  }
  stream.synchronize();
  return median(seconds);
}

// Host and device together: the slower of the two.
double back_to_back_s(const Stream& stream) {
  constexpr int kLaunches = 5000;
  Stopwatch watch;
  watch.start(stream);
  for (int i = 0; i < kLaunches; ++i) launch_empty(stream);
  return watch.stop_s(stream) / kLaunches;
}

double event_pair_s(const Stream& stream, bool with_kernel) {
  Stopwatch watch;
  std::vector<double> seconds;
  for (int run = 0; run < 10 * kRuns; ++run) {
    watch.start(stream);
    if (with_kernel) launch_empty(stream);
    seconds.push_back(watch.stop_s(stream));
  }
  return median(seconds);
}

class Graph {
 public:
  explicit Graph(const Stream& stream) {
    cudaGraph_t captured = nullptr;
    ORRERY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kGraphNodes; ++i) launch_empty(stream);
    ORRERY_CUDA(cudaStreamEndCapture(stream, &captured));
    ORRERY_CUDA(cudaGraphInstantiate(&graph_, captured, 0));
    ORRERY_CUDA(cudaGraphDestroy(captured));
    ORRERY_CUDA(cudaGraphUpload(graph_, stream));
    stream.synchronize();
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(const Stream& stream) const { ORRERY_CUDA(cudaGraphLaunch(graph_, stream)); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

JsonObject measure_launches() {
  const Stream stream;
  for (int i = 0; i < 100; ++i) launch_empty(stream);  // Loads the kernel.
  stream.synchronize();

  const Graph graph(stream);
  std::vector<double> on_device, on_host;
  Stopwatch watch;
  for (int run = 0; run < kRuns; ++run) {
    watch.start(stream);
    const double start = host_now_s();
    graph.launch(stream);
    on_host.push_back(host_now_s() - start);
    on_device.push_back(watch.stop_s(stream));
  }
  JsonObject result;
  result.add("host_launch_s", host_launch_s(stream))
      .add("back_to_back_s", back_to_back_s(stream))
      .add("event_pair_s", event_pair_s(stream, false))
      .add("event_pair_with_kernel_s", event_pair_s(stream, true))
      .add("graph_nodes", kGraphNodes)
      .add("graph_node_s", median(on_device) / kGraphNodes)
      .add("graph_host_launch_s", median(on_host));
  ORRERY_CUDA(cudaGetLastError());
  return result;
}

}  // namespace orrery::cuda
