#pragma once
// A product of two tensors over whatever dimensions they share, as products of matrices.

#include <cstddef>
#include <vector>

#include "model/graph.hpp"

namespace orrery::host {

// Some dimensions of a product taken as one: how many values, and how far one step moves in each tensor.
struct ProductGroup {
  std::size_t size = 1;
  std::size_t strides[3] = {1, 1, 1};  // In first, second, result; where it has none of them: any.
};

struct ProductShape {
  ProductGroup batch, m, n, k;
};

// Rows of the result come from `first`, columns from `second`. REQUIRES: dimensions of a group stand side by
// side in every tensor that has them, in the same order: true of the shapes that verify(graph) lets through.
ProductShape product_shape(const Sizes& sizes, const std::vector<DimId>& first,
                           const std::vector<DimId>& second, const std::vector<DimId>& result);

}  // namespace orrery::host
