#pragma once
// How long a product takes by one algorithm or another, on operands of its own.

#include <cuda_runtime.h>

#include <cstddef>
#include <optional>
#include <span>

#include "executor/cuda/memory.hpp"
#include "executor/cuda/product.hpp"

namespace orrery::cuda {

struct TuneOptions {
  bool timed = true;    // Else the heuristic's first offer is taken.
  int candidates = 16;  // Asked for, and half as many again that make do with a sixteenth of the workspace.
  int repeats = 5;      // Bursts of about a millisecond each; their median counts.
  // Those within `keep_within` of the fastest run back to back for `sustained_ms` unmeasured and as long
  // measured: under power limits a chip that is kept busy ranks algorithms otherwise than one that has just
  // rested.
  bool sustained = true;
  double keep_within = 0.02;
  int finalists = 4;  // At most.
  double sustained_ms = 50;
};

// Operands lie in `scratch`, whose contents are lost, and hold random numbers: zeros need less power and so
// run faster. Where they are small there are several sets of them, used in turns, so that the second cache
// holds none.
class ProductTimer {
 public:
  // REQUIRES: a stream that can be captured, not the default one.
  ProductTimer(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
               std::size_t workspace_bytes, const TuneOptions& options);
  ProductTimer(const ProductTimer&) = delete;
  ProductTimer& operator=(const ProductTimer&) = delete;

  // Operands for this product from now on; false: they don't fit into scratch.
  bool hold(const device::Gemm& gemm, const ProductAlignment& alignment);
  // Microseconds of one product; none: it can't be run so. REQUIRES: hold() said true for this product.
  std::optional<double> burst(Product& product, const cublasLtMatmulAlgo_t& algorithm);
  double sustained(Product& product, const cublasLtMatmulAlgo_t& algorithm, double expected_us);

 private:
  class Launches;  // A captured row of launches.
  ProductOperands operands(int turn) const;
  double milliseconds(const Launches& launches, int times);

  const cudaStream_t stream_;
  const std::span<std::byte> scratch_;
  void* const workspace_;
  const std::size_t workspace_bytes_;
  const TuneOptions options_;
  const Event begin_{true}, end_{true};
  std::int64_t cache_bytes_ = 0, filled_ = 0;

  ProductBytes offsets_;  // Of the operands in a set.
  std::int64_t set_bytes_ = 0;
  int sets_ = 0;
  bool has_bias_ = false, has_scales_ = false;
  int row_ = 0;  // Launches captured together; 0: not known yet.
};

}  // namespace orrery::cuda
