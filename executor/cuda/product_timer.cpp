#include "executor/cuda/product_timer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"

namespace orrery::cuda {
namespace {

constexpr int kMostSets = 16, kMostLaunches = 64;
constexpr double kBurstUs = 1000;
constexpr int kBursts = 3;  // Whose median counts.
constexpr double kBetweenProductsMs = 20, kBetweenCandidatesMs = 1;

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
  Launches(ProductTimer& timer, Product& product, const cublasLtMatmulAlgo_t& algorithm, int count)
      : count_(count) {
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
  int count() const { return count_; }
  void run(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "running products"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
  int count_ = 0;
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
      options_(options),
      busy_(stream) {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "asking for the GPU");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device),
        "asking for the size of the GPU's cache");
  cache_bytes_ = bytes;
}

ProductTimer::~ProductTimer() { cudaStreamSynchronize(stream_); }

void ProductTimer::keep_busy() { busy_.keep_busy(kBetweenCandidatesMs); }

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
  has_bias_ = static_cast<bool>(gemm.bias);
  set_bytes_ = at;
  const std::int64_t fitting = static_cast<std::int64_t>(scratch_.size()) / set_bytes_;
  const std::int64_t wanted = (2 * cache_bytes_ + set_bytes_ - 1) / set_bytes_;
  sets_ = static_cast<int>(std::min({std::max<std::int64_t>(wanted, 1), fitting, std::int64_t{kMostSets}}));
  row_ = 0;
  best_us_ = 0;
  if (sets_ == 0) return false;
  // The last product's best writes where new operands will lie, and so goes before them.
  busy_.keep_busy(kBetweenProductsMs);
  busy_.fill_with({});
  random_.fill(scratch_.first(static_cast<std::size_t>(sets_ * set_bytes_)), stream_);
  return true;
}

ProductOperands ProductTimer::operands(int turn) const {
  std::byte* const set = scratch_.data() + (turn % sets_) * set_bytes_;
  return {set + offsets_.a, set + offsets_.b, has_bias_ ? set + offsets_.bias : nullptr, set + offsets_.d};
}

// Null: it can't be captured.
std::shared_ptr<ProductTimer::Launches> ProductTimer::capture(Product& product,
                                                              const cublasLtMatmulAlgo_t& algorithm,
                                                              int count) {
  auto launches = std::make_shared<Launches>(*this, product, algorithm, count);
  return *launches ? launches : nullptr;
}

Work ProductTimer::work(std::shared_ptr<Launches> launches, double us) const {
  const double ms = us * launches->count() / 1000;
  return {[launches = std::move(launches), stream = stream_] { launches->run(stream); }, ms};
}

std::optional<double> ProductTimer::burst(Product& product, const cublasLtMatmulAlgo_t& algorithm,
                                          double give_up_us) {
  // Uncaptured first: a kernel's first launch may load it, which a capture forbids.
  if (product.launch(operands(0), algorithm, workspace_, workspace_bytes_, stream_) !=
      CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  if (row_ == 0) {
    const auto some = capture(product, algorithm, sets_);
    if (!some) return std::nullopt;
    const double us = busy_.time(work(some, 0), 1) * 1000 / sets_;
    row_ = std::clamp(static_cast<int>(std::ceil(kBurstUs / std::max(us, 1e-3))), 1, kMostLaunches);
  }
  const auto row = capture(product, algorithm, row_);
  if (!row) return std::nullopt;
  const auto once = [&] { return busy_.time(work(row, 0), 1) * 1000 / row_; };
  const double rough_us = once();
  if (options_.sustained() && best_us_ == 0) {
    busy_.fill_with(work(row, rough_us));
    if (!warm_) busy_.keep_busy(options_.warm_up_ms);
    warm_ = true;
  }
  std::vector<double> samples = {once()};
  if (give_up_us > 0 && samples.front() > give_up_us) return samples.front();
  while (samples.size() < kBursts) samples.push_back(once());
  const double us = median(samples);
  if (options_.sustained() && (best_us_ == 0 || us < best_us_)) {
    best_us_ = us;
    busy_.fill_with(work(row, us));
  }
  return us;
}

std::vector<TurnTime> ProductTimer::compete(Product& product, std::span<const TimedAlgorithm> finalists) {
  std::vector<Work> works;
  for (const TimedAlgorithm& finalist : finalists) {
    auto row = capture(product, finalist.algorithm, row_);
    if (!row) fail(ErrorKind::kRuntime, "a product that was captured before can't be captured again");
    works.push_back(work(std::move(row), finalist.microseconds));
  }
  std::vector<TurnTime> times = busy_.compete(works, options_.turn_ms, options_.rounds);
  for (TurnTime& time : times) {
    time.ms /= row_;
    time.joules /= row_;
  }
  return times;
}

}  // namespace orrery::cuda
