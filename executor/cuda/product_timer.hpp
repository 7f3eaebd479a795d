#pragma once
// How long a product takes by one algorithm or another, on operands of its own.

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "executor/cuda/busy_stream.hpp"
#include "executor/cuda/product.hpp"
#include "executor/cuda/random_operands.hpp"
#include "executor/cuda/tune_options.hpp"

namespace orrery::cuda {

struct TimedAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  double microseconds = 0;
};

// Operands lie in `scratch`, whose contents are lost, and hold random numbers: zeros need less power and so
// run faster. Where they are small there are several sets of them, used in turns, so that the second cache
// holds none. Where tuning is sustained the GPU is kept busy by the best algorithm so far from the first
// burst on, and while the host prepares another.
class ProductTimer {
 public:
  // REQUIRES: a stream that can be captured, not the default one.
  ProductTimer(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
               std::size_t workspace_bytes, const TuneOptions& options);
  // What is still running on scratch has ended then.
  ~ProductTimer();
  ProductTimer(const ProductTimer&) = delete;
  ProductTimer& operator=(const ProductTimer&) = delete;

  // Operands for this product from now on; false: they don't fit into scratch.
  bool hold(const device::Gemm& gemm, const ProductAlignment& alignment);
  // Microseconds of one product, measured once where that is more than `give_up_us` (0: never), else the
  // median; none: it can't be run so. REQUIRES: hold() said true for this product.
  std::optional<double> burst(Product& product, const cublasLtMatmulAlgo_t& algorithm, double give_up_us);
  // In turns, under sustained load: milliseconds and joules of one product, in the order of `finalists`.
  // REQUIRES: burst() has timed each of them.
  std::vector<TurnTime> compete(Product& product, std::span<const TimedAlgorithm> finalists);
  // To be called where the host has been at something for a while.
  void keep_busy();

 private:
  class Launches;  // A captured row of launches.
  ProductOperands operands(int turn) const;
  std::shared_ptr<Launches> capture(Product& product, const cublasLtMatmulAlgo_t& algorithm, int count);
  Work work(std::shared_ptr<Launches> launches, double us) const;

  const cudaStream_t stream_;
  const std::span<std::byte> scratch_;
  void* const workspace_;
  const std::size_t workspace_bytes_;
  const TuneOptions options_;
  const RandomOperands random_;
  BusyStream busy_;
  bool warm_ = false;
  std::int64_t cache_bytes_ = 0;

  ProductBytes offsets_;  // Of the operands in a set.
  std::int64_t set_bytes_ = 0;
  int sets_ = 0;
  bool has_bias_ = false;
  int row_ = 0;  // Launches captured together; 0: not known yet.
  double best_us_ = 0;
};

}  // namespace orrery::cuda
