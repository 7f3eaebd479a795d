#pragma once
// What an algorithm of cuBLASLt's is made of, and those that differ from it in one thing.

#include <string>
#include <vector>

#include "executor/cuda/product.hpp"

namespace orrery::cuda {

// Numbers are cuBLASLt's own (cublasLtMatmulTile_t and so on); 0: left to the library.
struct AlgorithmSettings {
  std::int32_t id = 0, splits = 1;  // Splits: parts of k that are summed apart.
  std::uint32_t tile = 0, stages = 0, reduction = 0, swizzle = 0, custom = 0;
  std::uint16_t inner_shape = 0, cluster = 0;
};
AlgorithmSettings settings_of(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm);
// "id 66, tile 128x256, stages 35, cluster 2x1, split-k 1, swizzle 0, custom 3"
std::string describe(const AlgorithmSettings& settings);

bool is_same(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y);

// Differing in one attribute, as far as the algorithm says that it can: the likeliest of each attribute
// first, attributes in turns. Whether the product can be done by one is for Product::runs() to say. None
// where operands are less aligned than the algorithm needs: cuBLASLt doesn't check addresses.
std::vector<cublasLtMatmulAlgo_t> variants(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm,
                                           const ProductAlignment& alignment);

}  // namespace orrery::cuda
