#include "executor/cuda/product_timer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/cuda/checks.hpp"
#include "executor/cuda/random_operands.hpp"

namespace orrery::cuda {
namespace {

constexpr int kMostSets = 16, kMostLaunches = 64;
constexpr double kBurstUs = 1000;

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// Captured, so that a small product is timed as a step's graph runs it and not as fast as the host launches
// it.
class ProductTimer::Launches {
 public:
  Launches(ProductTimer& timer, Product& product, const cublasLtMatmulAlgo_t& algorithm, int count) {
    check(cudaStreamBeginCapture(timer.stream_, cudaStreamCaptureModeRelaxed), "capturing products");
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) {
      status = product.launch(timer.operands(i), algorithm, timer.workspace_, timer.workspace_bytes_,
                              timer.stream_);
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(timer.stream_, &graph);
    if (ended == cudaSuccess && status == CUBLAS_STATUS_SUCCESS &&
        cudaGraphInstantiate(&exec_, graph, 0) != cudaSuccess) {
      exec_ = nullptr;
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (exec_ == nullptr) cudaGetLastError();  // An algorithm that can't be captured is no candidate.
  }
  ~Launches() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  explicit operator bool() const { return exec_ != nullptr; }
  void run(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "running products"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

ProductTimer::ProductTimer(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
                           std::size_t workspace_bytes, const TuneOptions& options)
    : stream_(stream),
      // From an address that is a multiple of 256 on.
      scratch_(scratch.subspan(
          std::min(scratch.size(),
                   static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(scratch.data()) & 255)))),
      workspace_(workspace),
      workspace_bytes_(workspace_bytes),
      options_(options) {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "asking for the GPU");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device),
        "asking for the size of the GPU's cache");
  cache_bytes_ = bytes;
}

bool ProductTimer::hold(const device::Gemm& gemm, const ProductAlignment& alignment) {
  const ProductBytes bytes = bytes_of(gemm);
  std::int64_t at = 0;
  // Addresses as odd as the real ones are.
  const auto place = [&at](std::int64_t size, std::uint32_t aligned) {
    const std::int64_t offset = at + (aligned < 256 ? aligned : 0);
    at = rounded(offset + size);
    return offset;
  };
  offsets_.a = place(bytes.a, alignment.a);
  offsets_.b = place(bytes.b, alignment.b);
  offsets_.d = place(bytes.d, alignment.d);
  offsets_.bias = place(bytes.bias, alignment.bias);
  offsets_.a_scale = place(bytes.a_scale, 256);
  offsets_.b_scale = place(bytes.b_scale, 256);
  has_bias_ = static_cast<bool>(gemm.bias);
  has_scales_ = bytes.a_scale > 0;
  set_bytes_ = at;
  const std::int64_t fitting = static_cast<std::int64_t>(scratch_.size()) / set_bytes_;
  const std::int64_t wanted = (2 * cache_bytes_ + set_bytes_ - 1) / set_bytes_;
  sets_ = static_cast<int>(std::min({std::max<std::int64_t>(wanted, 1), fitting, std::int64_t{kMostSets}}));
  row_ = 0;
  if (sets_ == 0) return false;
  if (sets_ * set_bytes_ > filled_) {
    filled_ = sets_ * set_bytes_;
    fill_random(scratch_.first(static_cast<std::size_t>(filled_)), stream_);
  }
  return true;
}

ProductOperands ProductTimer::operands(int turn) const {
  std::byte* const set = scratch_.data() + (turn % sets_) * set_bytes_;
  const auto scale = [&](std::int64_t offset) {
    return has_scales_ ? reinterpret_cast<const float*>(set + offset) : nullptr;
  };
  return {set + offsets_.a, set + offsets_.b,        has_bias_ ? set + offsets_.bias : nullptr,
          set + offsets_.d, scale(offsets_.a_scale), scale(offsets_.b_scale)};
}

double ProductTimer::milliseconds(const Launches& launches, int times) {
  check(cudaEventRecord(begin_, stream_), "recording an event");
  for (int i = 0; i < times; ++i) launches.run(stream_);
  check(cudaEventRecord(end_, stream_), "recording an event");
  check(cudaEventSynchronize(end_), "waiting for products");
  return elapsed_ns(begin_, end_) / 1e6;
}

std::optional<double> ProductTimer::burst(Product& product, const cublasLtMatmulAlgo_t& algorithm) {
  // Uncaptured first: a kernel's first launch may load it, which a capture forbids.
  if (product.launch(operands(0), algorithm, workspace_, workspace_bytes_, stream_) !=
      CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  check(cudaStreamSynchronize(stream_), "trying a product");
  if (row_ == 0) {
    const Launches some(*this, product, algorithm, sets_);
    if (!some) return std::nullopt;
    milliseconds(some, 1);
    const double us = milliseconds(some, 1) * 1000 / sets_;
    row_ = std::clamp(static_cast<int>(std::ceil(kBurstUs / std::max(us, 1e-3))), 1, kMostLaunches);
  }
  const Launches row(*this, product, algorithm, row_);
  if (!row) return std::nullopt;
  milliseconds(row, 1);
  std::vector<double> samples;
  for (int i = 0; i < std::max(options_.repeats, 1); ++i)
    samples.push_back(milliseconds(row, 1) * 1000 / row_);
  return median(samples);
}

double ProductTimer::sustained(Product& product, const cublasLtMatmulAlgo_t& algorithm, double expected_us) {
  const Launches row(*this, product, algorithm, row_);
  if (!row) return expected_us;
  const double row_ms = std::max(expected_us * row_ / 1000, 1e-3);
  const int times = std::max(1, static_cast<int>(std::ceil(options_.sustained_ms / row_ms)));
  milliseconds(row, times);
  return milliseconds(row, times) * 1000 / times / row_;
}

}  // namespace orrery::cuda
