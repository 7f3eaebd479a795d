#pragma once
// All products of a rank: which there are, by which algorithm each runs, and running them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "executor/cuda/product.hpp"
#include "executor/cuda/product_timer.hpp"
#include "executor/device/algorithm_cache.hpp"

namespace orrery::cuda {

struct ProductId {
  std::int32_t index = -1;
};

// Not for several threads at once. All THROW Error(kRuntime).
class Products {
 public:
  // For the current GPU. `cache_folder`: of timed choices; empty: none is kept.
  Products(const CublasLt& library, const std::string& gpu_name, const std::string& cache_folder);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Products of equal sizes, types and layouts are one, whatever their addresses; its algorithm is one that
  // the least aligned of them can run by, so that equal products round equally. A less aligned one than
  // before undoes its choice.
  ProductId prepare(const device::Gemm& gemm);

  // Chooses algorithms for all that have none: from the cache; by timing, which takes some two seconds each
  // where it is sustained; where operands don't fit into `scratch`, the heuristic's first. Choices of a quick
  // tuning don't count for a sustained one. What scratch held is lost. Returns warnings. Ranks that are to
  // round equally need one rank to be done before the others begin, with one cache for all.
  std::vector<std::string> tune(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
                                std::size_t workspace_bytes, const TuneOptions& options = {});
  // The heuristic's first for all that have none.
  void settle(std::size_t workspace_bytes);

  // REQUIRES: id is of prepare(gemm), and chosen; at least the workspace it was chosen for, of this stream
  // alone.
  void run(ProductId id, const device::Gemm& gemm, void* workspace, std::size_t workspace_bytes,
           cudaStream_t stream);

  std::vector<device::ProductTime> times() const;

 private:
  struct Entry;
  std::string words(const cublasLtMatmulAlgo_t& algorithm) const;
  bool choose_kept(Entry& entry, std::size_t workspace_bytes, device::Tuning tuning);
  void choose_first(Entry& entry, std::size_t workspace_bytes);
  void choose_timed(Entry& entry, ProductTimer& timer, std::size_t workspace_bytes,
                    const TuneOptions& options);

  const CublasLt& library_;
  cublasLtHandle_t handle_ = nullptr;
  device::AlgorithmCache cache_;
  std::vector<std::string> warnings_;
  std::vector<std::unique_ptr<Entry>> entries_;  // By ProductId; null: an empty product, which does nothing.
  std::unordered_map<std::string, std::int32_t> by_description_;
};

}  // namespace orrery::cuda
