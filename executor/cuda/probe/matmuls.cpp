#include "executor/cuda/probe/measurements.hpp"

#ifndef ORRERY_HAVE_CUBLASLT

std::vector<orrery::cuda::JsonObject> orrery::cuda::measure_matmuls(std::string& left_out) {
  left_out = "the probe was built without cuBLASLt (no cublasLt.h with its library)";
  return {};
}

#else

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "executor/cuda/nvml.hpp"
#include "executor/cuda/probe/device.hpp"
#include "executor/cuda/probe/kernels.hpp"

namespace orrery::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(std::string(call) + ": " + cublasLtGetStatusString(status));
  }
}
#define ORRERY_LT(call) check_lt((call), #call)

struct Shape {
  std::int64_t tokens = 0, outputs = 0, inputs = 0;
  double flops() const { return 2.0 * static_cast<double>(tokens * outputs) * static_cast<double>(inputs); }
};

// Query-key-value, up and down projections of a 1.3B model (hidden 2048) over 16,384 tokens, and gate-and-up
// of an 8B model (hidden 4096) over 8,192.
constexpr std::array<Shape, 4> kShapes{
    {{16384, 6144, 2048}, {16384, 11008, 2048}, {16384, 2048, 5504}, {8192, 28672, 4096}}};

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

// One product with its operands. cuBLASLt counts columns first, so the row-major Y = X·Wᵀ is its D[outputs,
// tokens] = Wᵀ·X.
class Matmul {
 public:
  Matmul(cublasLtHandle_t handle, const Shape& shape)
      : handle_(handle),
        shape_(shape),
        x_(static_cast<std::size_t>(shape.tokens * shape.inputs) * 2),
        w_(static_cast<std::size_t>(shape.outputs * shape.inputs) * 2),
        y_(static_cast<std::size_t>(shape.tokens * shape.outputs) * 2),
        workspace_(kWorkspaceBytes) {
    launch_fill_bf16(x_.data(), x_.size() / 2, 1, stream_);
    launch_fill_bf16(w_.data(), w_.size() / 2, 2, stream_);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    ORRERY_LT(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    ORRERY_LT(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof transposed));
    const auto layout = [](cublasLtMatrixLayout_t& made, std::int64_t rows, std::int64_t columns) {
      ORRERY_LT(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(columns), rows));
    };
    layout(w_layout_, shape.inputs, shape.outputs);
    layout(x_layout_, shape.inputs, shape.tokens);
    layout(y_layout_, shape.outputs, shape.tokens);
    choose_algorithm();
  }

  ~Matmul() {
    for (const auto made : {w_layout_, x_layout_, y_layout_}) cublasLtMatrixLayoutDestroy(made);
    cublasLtMatmulDescDestroy(operation_);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Device time of one run, over `runs` back to back.
  double seconds_each(int runs) {
    watch_.start(stream_);
    for (int i = 0; i < runs; ++i) run();
    return watch_.stop_s(stream_) / runs;
  }

  double expected_s() const { return expected_s_; }
  int algorithms_tried() const { return algorithms_tried_; }

 private:
  void run() {
    const float one = 1.0F, zero = 0.0F;
    ORRERY_LT(cublasLtMatmul(handle_, operation_, &one, w_.data(), w_layout_, x_.data(), x_layout_, &zero,
                             y_.data(), y_layout_, y_.data(), y_layout_, &algorithm_, workspace_.data(),
                             kWorkspaceBytes, stream_));
  }

  // The fastest of what the heuristic offers, timed on the real operands.
  void choose_algorithm() {
    cublasLtMatmulPreference_t preference = nullptr;
    ORRERY_LT(cublasLtMatmulPreferenceCreate(&preference));
    ORRERY_LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &kWorkspaceBytes, sizeof kWorkspaceBytes));
    std::array<cublasLtMatmulHeuristicResult_t, 8> offers{};
    int offered = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, w_layout_, x_layout_, y_layout_, y_layout_,
                                       preference, static_cast<int>(offers.size()), offers.data(), &offered);
    cublasLtMatmulPreferenceDestroy(preference);
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
    cublasLtMatmulAlgo_t best{};
    for (int i = 0; i < offered; ++i) {
      if (offers[static_cast<std::size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
      algorithm_ = offers[static_cast<std::size_t>(i)].algo;
      seconds_each(3);
      const double seconds = seconds_each(10);
      if (algorithms_tried_++ == 0 || seconds < expected_s_) {
        expected_s_ = seconds;
        best = algorithm_;
      }
    }
    if (algorithms_tried_ == 0)
      throw DeviceError("cuBLASLt offers no algorithm for a bf16 product on this GPU");
    algorithm_ = best;
  }

  cublasLtHandle_t handle_;
  Shape shape_;
  Stream stream_;
  Buffer x_, w_, y_, workspace_;
  Stopwatch watch_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, y_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  double expected_s_ = 0;
  int algorithms_tried_ = 0;
};

int runs_in(double seconds, const Matmul& matmul) {
  return std::max(1, static_cast<int>(std::ceil(seconds / matmul.expected_s())));
}

// About 10 ms of work after a second of rest.
double burst_s(Matmul& matmul) {
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    seconds.push_back(matmul.seconds_each(runs_in(0.01, matmul)));
  }
  return median(seconds);
}

// Half a second of work right after a second and a half of the same.
double sustained_s(Matmul& matmul) {
  const int slice = runs_in(0.1, matmul);
  for (int i = 0; i < 15; ++i) matmul.seconds_each(slice);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) seconds.push_back(matmul.seconds_each(slice));
  return median(seconds);
}

std::string pci_bus_id() {
  int device = 0;
  char text[32] = "";
  ORRERY_CUDA(cudaGetDevice(&device));
  ORRERY_CUDA(cudaDeviceGetPCIBusId(text, sizeof text, device));
  return text;
}

}  // namespace

std::vector<JsonObject> measure_matmuls(std::string&) {
  const Nvml nvml;
  const std::string gpu = pci_bus_id();
  cublasLtHandle_t handle = nullptr;
  ORRERY_LT(cublasLtCreate(&handle));
  std::vector<JsonObject> rows;
  for (const Shape& shape : kShapes) {
    Matmul matmul(handle, shape);
    const double burst = burst_s(matmul);
    const GpuState after_burst = nvml.state(gpu);
    const double sustained = sustained_s(matmul);
    const GpuState after_sustained = nvml.state(gpu);
    rows.push_back(JsonObject()
                       .add("tokens", shape.tokens)
                       .add("outputs", shape.outputs)
                       .add("inputs", shape.inputs)
                       .add("type", "bf16")
                       .add("algorithms_tried", matmul.algorithms_tried())
                       .add("burst_s", burst)
                       .add("burst_flops_per_s", shape.flops() / burst)
                       .add("burst_sm_clock_mhz", after_burst.sm_clock_mhz)
                       .add("sustained_s", sustained)
                       .add("sustained_flops_per_s", shape.flops() / sustained)
                       .add("sustained_sm_clock_mhz", after_sustained.sm_clock_mhz)
                       .add("sustained_power_w", after_sustained.power_w)
                       .add("sustained_temperature_c", after_sustained.temperature_c));
  }
  ORRERY_LT(cublasLtDestroy(handle));
  return rows;
}

}  // namespace orrery::cuda

#endif
