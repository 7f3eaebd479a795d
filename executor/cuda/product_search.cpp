#include "executor/cuda/product_search.hpp"

#include <algorithm>
#include <optional>

#include "executor/cuda/product_algorithm.hpp"

namespace orrery::cuda {
namespace {

constexpr int kOffers = 16;         // And half as many that make do with a sixteenth of the workspace.
constexpr double kHopeless = 1.10;  // Of the fastest: dropped after one burst, and never varied.
constexpr int kVariantsOfOne = 40;  // Timed, so that no algorithm's neighbours take all of the time.

class Search {
 public:
  Search(const CublasLt& library, Product& product, ProductTimer& timer)
      : library_(library), product_(product), timer_(timer) {}

  bool is_known(const cublasLtMatmulAlgo_t& algorithm) const {
    return std::any_of(known_.begin(), known_.end(), [&](const auto& x) { return is_same(x, algorithm); });
  }
  void remember(const cublasLtMatmulAlgo_t& algorithm) { known_.push_back(algorithm); }

  void time(const cublasLtMatmulAlgo_t& algorithm) {
    const auto us = timer_.burst(product_, algorithm, best_us_ * kHopeless);
    if (!us) return;
    if (best_us_ == 0 || *us < best_us_) best_us_ = *us;
    timed_.push_back({algorithm, *us});
    varied_.push_back(false);
  }

  // Of the fastest that hasn't been yet; false: there is none worth it.
  bool vary(const ProductAlignment& alignment, std::size_t workspace_bytes, std::size_t most) {
    std::optional<std::size_t> next;
    for (std::size_t i = 0; i < timed_.size(); ++i) {
      if (varied_[i] || timed_[i].microseconds > best_us_ * kHopeless) continue;
      if (!next || timed_[i].microseconds < timed_[*next].microseconds) next = i;
    }
    if (!next) return false;
    varied_[*next] = true;
    const std::size_t end = std::min(most, timed_.size() + kVariantsOfOne);
    for (const cublasLtMatmulAlgo_t& variant : variants(library_, timed_[*next].algorithm, alignment)) {
      if (timed_.size() >= end) break;
      if (is_known(variant)) continue;
      remember(variant);
      timer_.keep_busy();
      if (product_.runs(variant, workspace_bytes)) time(variant);
    }
    return true;
  }

  std::size_t count() const { return timed_.size(); }
  std::vector<TimedAlgorithm> take() {
    std::stable_sort(timed_.begin(), timed_.end(), [](const TimedAlgorithm& x, const TimedAlgorithm& y) {
      return x.microseconds < y.microseconds;
    });
    return std::move(timed_);
  }

 private:
  const CublasLt& library_;
  Product& product_;
  ProductTimer& timer_;
  std::vector<cublasLtMatmulAlgo_t> known_;
  std::vector<TimedAlgorithm> timed_;
  std::vector<bool> varied_;  // By timed_.
  double best_us_ = 0;
};

}  // namespace

SearchResult search(const CublasLt& library, Product& product, const ProductAlignment& alignment,
                    ProductTimer& timer, std::size_t workspace_bytes, const TuneOptions& options) {
  Search search(library, product, timer);
  SearchResult result;
  result.offers = product.candidates(alignment, kOffers, workspace_bytes);
  for (const auto& offer : product.candidates(alignment, kOffers / 2, workspace_bytes / 16))
    result.offers.push_back(offer);
  for (const ProductCandidate& offer : result.offers) {
    if (search.is_known(offer.algorithm)) continue;
    search.remember(offer.algorithm);
    search.time(offer.algorithm);
  }
  const auto most = static_cast<std::size_t>(std::max(options.candidates, 0));
  while (options.sustained() && search.count() < most && search.vary(alignment, workspace_bytes, most)) {
  }
  result.timed = search.take();
  return result;
}

}  // namespace orrery::cuda
