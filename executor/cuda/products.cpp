#include "executor/cuda/products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.hpp"

namespace orrery::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(device::CachedAlgorithm::words));

device::CachedAlgorithm to_kept(const cublasLtMatmulAlgo_t& algorithm, double microseconds) {
  device::CachedAlgorithm kept;
  std::memcpy(kept.words.data(), &algorithm, sizeof algorithm);
  kept.microseconds = microseconds;
  return kept;
}

cublasLtMatmulAlgo_t from_kept(const device::CachedAlgorithm& kept) {
  cublasLtMatmulAlgo_t algorithm{};
  std::memcpy(&algorithm, kept.words.data(), sizeof algorithm);
  return algorithm;
}

struct Timed {
  cublasLtMatmulAlgo_t algorithm{};
  double microseconds = 0;
};

}  // namespace

struct Products::Entry {
  Entry(const CublasLt& library, cublasLtHandle_t handle, const device::Gemm& of)
      : gemm(of), description(describe(of)), alignment(alignment_of(of)), product(library, handle, of) {}

  std::string key() const { return description + ", " + describe(alignment); }
  void choose(const cublasLtMatmulAlgo_t& by, double us, int of_candidates) {
    algorithm = by;
    microseconds = us;
    candidates = of_candidates;
    chosen = true;
  }

  const device::Gemm gemm;  // Its addresses mean nothing later.
  const std::string description;
  ProductAlignment alignment;
  Product product;
  bool chosen = false;
  cublasLtMatmulAlgo_t algorithm{};
  double microseconds = 0;
  int candidates = 0;
};

Products::Products(const CublasLt& library, const std::string& gpu_name, const std::string& cache_folder)
    : library_(library), cache_(cache_folder, "cublaslt " + to_string(library.library.version), gpu_name) {
  check_product(library_, library_.create(&handle_), "start on this GPU");
  if (std::string warning = cache_.load(); !warning.empty()) warnings_.push_back(std::move(warning));
}

Products::~Products() {
  entries_.clear();
  library_.destroy(handle_);
}

ProductId Products::prepare(const device::Gemm& gemm) {
  const auto next = static_cast<std::int32_t>(entries_.size());
  const auto [at, added] = by_description_.try_emplace(describe(gemm), next);
  const bool empty = gemm.m <= 0 || gemm.n <= 0 || gemm.batch <= 0;
  if (!added) {
    if (empty) return {at->second};
    Entry& entry = *entries_[static_cast<std::size_t>(at->second)];
    const ProductAlignment alignment = lower_of(entry.alignment, alignment_of(gemm));
    if (alignment != entry.alignment) entry.chosen = false;
    entry.alignment = alignment;
    return {at->second};
  }
  try {
    if (!empty && gemm.k <= 0) fail(ErrorKind::kRuntime, "a product over no terms: {}", describe(gemm));
    entries_.push_back(empty ? nullptr : std::make_unique<Entry>(library_, handle_, gemm));
  } catch (...) {
    by_description_.erase(at);
    throw;
  }
  return {next};
}

bool Products::choose_kept(Entry& entry, std::size_t workspace_bytes) {
  const device::CachedAlgorithm* const kept = cache_.find(entry.key());
  if (kept == nullptr) return false;
  const cublasLtMatmulAlgo_t algorithm = from_kept(*kept);
  if (!entry.product.runs(algorithm, workspace_bytes)) return false;
  entry.choose(algorithm, kept->microseconds, 0);
  return true;
}

void Products::choose_first(Entry& entry, std::size_t workspace_bytes) {
  const std::vector<ProductCandidate> offers = entry.product.candidates(entry.alignment, 1, workspace_bytes);
  if (offers.empty()) {
    fail(ErrorKind::kRuntime, "cuBLASLt {} has no algorithm on this GPU for {}",
         to_string(library_.library.version), entry.key());
  }
  entry.choose(offers.front().algorithm, 0, 0);
}

void Products::choose_timed(Entry& entry, ProductTimer& timer, std::size_t workspace_bytes,
                            const TuneOptions& options) {
  const int most = std::max(options.candidates, 1);
  std::vector<ProductCandidate> offers = entry.product.candidates(entry.alignment, most, workspace_bytes);
  const auto same_as = [](const ProductCandidate& x) {
    return [&x](const ProductCandidate& y) {
      return std::memcmp(&x.algorithm, &y.algorithm, sizeof x.algorithm) == 0;
    };
  };
  for (const auto& offer : entry.product.candidates(entry.alignment, (most + 1) / 2, workspace_bytes / 16)) {
    if (std::none_of(offers.begin(), offers.end(), same_as(offer))) offers.push_back(offer);
  }
  std::vector<Timed> timed;
  for (const ProductCandidate& offer : offers) {
    if (const auto us = timer.burst(entry.product, offer.algorithm)) timed.push_back({offer.algorithm, *us});
  }
  if (timed.empty()) return choose_first(entry, workspace_bytes);
  const auto faster = [](const Timed& x, const Timed& y) { return x.microseconds < y.microseconds; };
  std::stable_sort(timed.begin(), timed.end(), faster);
  const int candidates = static_cast<int>(timed.size());
  if (options.sustained) {
    const double limit = timed.front().microseconds * (1 + options.keep_within);
    std::erase_if(timed, [&](const Timed& x) { return x.microseconds > limit; });
    timed.resize(std::min(timed.size(), static_cast<std::size_t>(std::max(options.finalists, 1))));
    for (Timed& x : timed) x.microseconds = timer.sustained(entry.product, x.algorithm, x.microseconds);
    std::stable_sort(timed.begin(), timed.end(), faster);
  }
  entry.choose(timed.front().algorithm, timed.front().microseconds, candidates);
  cache_.put(entry.key(), to_kept(entry.algorithm, entry.microseconds));
}

std::vector<std::string> Products::tune(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
                                        std::size_t workspace_bytes, const TuneOptions& options) {
  ProductTimer timer(stream, scratch, workspace, workspace_bytes, options);
  bool any_timed = false;
  int too_large = 0;
  for (const auto& entry : entries_) {
    if (entry == nullptr || entry->chosen || choose_kept(*entry, workspace_bytes)) continue;
    if (options.timed && timer.hold(entry->gemm, entry->alignment)) {
      choose_timed(*entry, timer, workspace_bytes, options);
      any_timed = true;
    } else {
      choose_first(*entry, workspace_bytes);
      too_large += options.timed ? 1 : 0;
    }
  }
  std::vector<std::string> warnings = std::move(warnings_);
  warnings_.clear();
  if (too_large > 0) {
    warnings.push_back(
        fmt::format("{} products are too large to be timed in {} bytes: the heuristic's choice is taken",
                    too_large, scratch.size()));
  }
  if (any_timed) {
    if (std::string warning = cache_.save(); !warning.empty()) warnings.push_back(std::move(warning));
  }
  return warnings;
}

void Products::settle(std::size_t workspace_bytes) {
  for (const auto& entry : entries_) {
    if (entry == nullptr || entry->chosen || choose_kept(*entry, workspace_bytes)) continue;
    choose_first(*entry, workspace_bytes);
  }
}

void Products::run(ProductId id, const device::Gemm& gemm, void* workspace, std::size_t workspace_bytes,
                   cudaStream_t stream) {
  assert(id.index >= 0 && static_cast<std::size_t>(id.index) < entries_.size());
  Entry* const entry = entries_[static_cast<std::size_t>(id.index)].get();
  if (entry == nullptr) return;
  if (!entry->chosen)
    fail(ErrorKind::kRuntime, "no algorithm was chosen yet for the product {}", entry->key());
  assert(lower_of(entry->alignment, alignment_of(gemm)) == entry->alignment);
  const cublasStatus_t status =
      entry->product.launch(operands_of(gemm), entry->algorithm, workspace, workspace_bytes, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorKind::kRuntime, "cuBLASLt {} failed with {} on {}", to_string(library_.library.version),
       library_.status_string(status), entry->key());
}

std::vector<ProductTime> Products::times() const {
  std::vector<ProductTime> times;
  for (const auto& entry : entries_) {
    if (entry == nullptr) continue;
    const device::Gemm& gemm = entry->gemm;
    times.push_back(
        {entry->description, gemm.m, gemm.n, gemm.k, gemm.batch, entry->microseconds, entry->candidates});
  }
  return times;
}

}  // namespace orrery::cuda
