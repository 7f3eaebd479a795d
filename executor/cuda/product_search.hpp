#pragma once
// Algorithms for a product, timed in bursts: the heuristic's offers, and what varies the best of them.

#include <vector>

#include "executor/cuda/product.hpp"
#include "executor/cuda/product_timer.hpp"

namespace orrery::cuda {

struct SearchResult {
  std::vector<TimedAlgorithm> timed;     // Fastest first; those dropped early have their first burst's time.
  std::vector<ProductCandidate> offers;  // The heuristic's, best guess first.
};

// Quick: the offers alone. Sustained: from the fastest on, each algorithm's variants are tried until none is
// left worth it or enough were. REQUIRES: timer.hold() said true for this product.
SearchResult search(const CublasLt& library, Product& product, const ProductAlignment& alignment,
                    ProductTimer& timer, std::size_t workspace_bytes, const TuneOptions& options);

}  // namespace orrery::cuda
