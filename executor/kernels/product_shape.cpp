#include "executor/kernels/product_shape.hpp"

#include <algorithm>

namespace orrery::host {
namespace {

bool has(const std::vector<DimId>& shape, DimId dim) {
  return std::find(shape.begin(), shape.end(), dim) != shape.end();
}

}  // namespace

ProductShape product_shape(const Sizes& sizes, const std::vector<DimId>& first,
                           const std::vector<DimId>& second, const std::vector<DimId>& result) {
  ProductShape groups;
  // A group's last dimension has the group's stride.
  const auto note = [&](ProductGroup& group, DimId dim) {
    group.size *= static_cast<std::size_t>(sizes[dim.index()]);
    const std::vector<DimId>* shapes[3] = {&first, &second, &result};
    for (std::size_t t = 0; t < 3; ++t) {
      if (!has(*shapes[t], dim)) continue;
      group.strides[t] = 1;
      for (auto at = shapes[t]->rbegin(); *at != dim; ++at) {
        group.strides[t] *= static_cast<std::size_t>(sizes[at->index()]);
      }
    }
  };
  for (const DimId dim : first) {
    note(!has(second, dim) ? groups.m : has(result, dim) ? groups.batch : groups.k, dim);
  }
  for (const DimId dim : second) {
    if (!has(first, dim)) note(groups.n, dim);
  }
  return groups;
}

}  // namespace orrery::host
