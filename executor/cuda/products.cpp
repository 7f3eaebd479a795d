#include "executor/cuda/products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.hpp"
#include "executor/cuda/product_algorithm.hpp"
#include "executor/cuda/product_search.hpp"

namespace orrery::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(device::CachedAlgorithm::words));

cublasLtMatmulAlgo_t from_kept(const device::CachedAlgorithm& kept) {
  cublasLtMatmulAlgo_t algorithm{};
  std::memcpy(&algorithm, kept.words.data(), sizeof algorithm);
  return algorithm;
}

// What goes on to the final: the heuristic's first, to see what the search gains, and those that are nearly
// as fast as the fastest.
std::vector<TimedAlgorithm> finalists_of(const SearchResult& found, const TuneOptions& options) {
  std::vector<TimedAlgorithm> finalists;
  const auto most = static_cast<std::size_t>(std::max(options.finalists, 2));
  const cublasLtMatmulAlgo_t& first = found.offers.front().algorithm;
  for (const TimedAlgorithm& x : found.timed) {
    if (is_same(x.algorithm, first)) finalists.push_back(x);
  }
  const double limit = found.timed.front().microseconds * (1 + options.keep_within);
  for (const TimedAlgorithm& x : found.timed) {
    if (finalists.size() == most || x.microseconds > limit) break;
    if (!is_same(x.algorithm, first)) finalists.push_back(x);
  }
  return finalists;
}

}  // namespace

struct Products::Entry {
  Entry(const CublasLt& library, cublasLtHandle_t handle, const device::Gemm& of)
      : gemm(of), description(describe(of)), alignment(alignment_of(of)), product(library, handle, of) {}

  std::string key() const { return description + ", " + describe(alignment); }
  void choose(const cublasLtMatmulAlgo_t& by) {
    algorithm = by;
    chosen = true;
  }

  const device::Gemm gemm;  // Its addresses mean nothing later.
  const std::string description;
  ProductAlignment alignment;
  Product product;
  bool chosen = false;
  cublasLtMatmulAlgo_t algorithm{};
  device::ProductTime time;  // Sizes and words are filled in by times().
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

bool Products::choose_kept(Entry& entry, std::size_t workspace_bytes, device::Tuning tuning) {
  const device::CachedAlgorithm* kept =
      cache_.find(device::kept_key(entry.key(), device::Tuning::kSustained));
  if (kept == nullptr) kept = cache_.find(device::kept_key(entry.key(), tuning));
  if (kept == nullptr) return false;
  const cublasLtMatmulAlgo_t algorithm = from_kept(*kept);
  if (!entry.product.runs(algorithm, workspace_bytes)) return false;
  entry.choose(algorithm);
  entry.time.chosen.microseconds = kept->microseconds;
  entry.time.first.microseconds = kept->first_microseconds;
  const auto offers = entry.product.candidates(entry.alignment, 1, workspace_bytes);
  if (!offers.empty()) entry.time.first.algorithm = words(offers.front().algorithm);
  return true;
}

void Products::choose_first(Entry& entry, std::size_t workspace_bytes) {
  const std::vector<ProductCandidate> offers = entry.product.candidates(entry.alignment, 1, workspace_bytes);
  if (offers.empty()) {
    fail(ErrorKind::kRuntime, "cuBLASLt {} has no algorithm on this GPU for {}",
         to_string(library_.library.version), entry.key());
  }
  entry.choose(offers.front().algorithm);
  entry.time.first.algorithm = words(entry.algorithm);
}

void Products::choose_timed(Entry& entry, ProductTimer& timer, std::size_t workspace_bytes,
                            const TuneOptions& options) {
  SearchResult found = search(library_, entry.product, entry.alignment, timer, workspace_bytes, options);
  if (found.timed.empty()) return choose_first(entry, workspace_bytes);
  entry.time = {};
  entry.time.candidates = static_cast<int>(found.timed.size());
  std::vector<TimedAlgorithm> last = options.sustained() ? finalists_of(found, options) : found.timed;
  std::vector<device::AlgorithmTime> times;
  for (const TimedAlgorithm& x : last) times.push_back({words(x.algorithm), x.microseconds, 0});
  if (options.sustained()) {
    const std::vector<TurnTime> turns = timer.compete(entry.product, last);
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i].microseconds = 1e3 * turns[i].ms;
      times[i].millijoules = 1e3 * turns[i].joules;
    }
    entry.time.finalists = times;
  }
  const std::size_t best = device::best_of(times);
  entry.choose(last[best].algorithm);
  entry.time.chosen = times[best];
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (is_same(last[i].algorithm, found.offers.front().algorithm)) entry.time.first = times[i];
  }
  device::CachedAlgorithm kept;
  std::memcpy(kept.words.data(), &entry.algorithm, sizeof entry.algorithm);
  kept.microseconds = entry.time.chosen.microseconds;
  kept.first_microseconds = entry.time.first.microseconds;
  cache_.put(device::kept_key(entry.key(), options.tuning), kept);
}

std::vector<std::string> Products::tune(cudaStream_t stream, std::span<std::byte> scratch, void* workspace,
                                        std::size_t workspace_bytes, const TuneOptions& options) {
  const auto is_open = [](const auto& entry) { return entry != nullptr && !entry->chosen; };
  for (const auto& entry : entries_) {
    if (is_open(entry)) choose_kept(*entry, workspace_bytes, options.tuning);
  }
  const auto open = std::count_if(entries_.begin(), entries_.end(), is_open);
  std::vector<std::string> warnings = std::move(warnings_);
  warnings_.clear();
  if (open == 0) return warnings;
  ProductTimer timer(stream, scratch, workspace, workspace_bytes, options);
  bool any_timed = false;
  int at = 0, too_large = 0;
  for (const auto& entry : entries_) {
    if (!is_open(entry)) continue;
    ++at;
    if (timer.hold(entry->gemm, entry->alignment)) {
      options.say(fmt::format("timing product {} of {}", at, open));
      choose_timed(*entry, timer, workspace_bytes, options);
      any_timed = true;
    } else {
      choose_first(*entry, workspace_bytes);
      ++too_large;
    }
  }
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
    if (entry == nullptr || entry->chosen) continue;
    if (!choose_kept(*entry, workspace_bytes, device::Tuning::kQuick)) choose_first(*entry, workspace_bytes);
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

std::string Products::words(const cublasLtMatmulAlgo_t& algorithm) const {
  return describe(settings_of(library_, algorithm));
}

std::vector<device::ProductTime> Products::times() const {
  std::vector<device::ProductTime> times;
  for (const auto& entry : entries_) {
    if (entry == nullptr) continue;
    const device::Gemm& gemm = entry->gemm;
    device::ProductTime time = entry->time;
    time.product = entry->description;
    time.m = gemm.m, time.n = gemm.n, time.k = gemm.k, time.batch = gemm.batch;
    if (entry->chosen) time.chosen.algorithm = words(entry->algorithm);
    times.push_back(std::move(time));
  }
  return times;
}

}  // namespace orrery::cuda
