#include "executor/cuda/product_algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace orrery::cuda {
namespace {

template <class Value>
void get(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm,
         cublasLtMatmulAlgoConfigAttributes_t attribute, Value& value) {
  Value found{};
  std::size_t written = 0;
  const auto status = library.algorithm_get(&algorithm, attribute, &found, sizeof found, &written);
  if (status == CUBLAS_STATUS_SUCCESS) value = found;
}

template <class Value>
Value capability(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm,
                 cublasLtMatmulAlgoCapAttributes_t attribute) {
  Value found{};
  std::size_t written = 0;
  const auto status = library.algorithm_can(&algorithm, attribute, &found, sizeof found, &written);
  return status == CUBLAS_STATUS_SUCCESS ? found : Value{};
}

// Those nearest to `now` first: their kernels are most alike.
std::vector<std::uint32_t> capabilities(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm,
                                        cublasLtMatmulAlgoCapAttributes_t attribute, std::uint32_t now) {
  std::size_t bytes = 0;
  if (library.algorithm_can(&algorithm, attribute, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<std::uint32_t> values(bytes / sizeof(std::uint32_t));
  if (values.empty()) return values;
  const std::size_t size = values.size() * sizeof(std::uint32_t);
  if (library.algorithm_can(&algorithm, attribute, values.data(), size, &bytes) != CUBLAS_STATUS_SUCCESS)
    return {};
  values.resize(bytes / sizeof(std::uint32_t));
  const auto distance = [now](std::uint32_t x) {
    return std::abs(static_cast<int>(x) - static_cast<int>(now));
  };
  std::stable_sort(values.begin(), values.end(),
                   [&](std::uint32_t x, std::uint32_t y) { return distance(x) < distance(y); });
  return values;
}

template <class Value>
bool set(const CublasLt& library, cublasLtMatmulAlgo_t& algorithm,
         cublasLtMatmulAlgoConfigAttributes_t attribute, Value value) {
  return library.algorithm_set(&algorithm, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

bool is_aligned_enough(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm,
                       const ProductAlignment& alignment) {
  const auto least = [&](cublasLtMatmulAlgoCapAttributes_t attribute) {
    return std::max(capability<std::uint32_t>(library, algorithm, attribute), std::uint32_t{16});
  };
  // cuBLASLt's A is our B.
  return alignment.b >= least(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES) &&
         alignment.a >= least(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES) &&
         alignment.d >= least(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES) &&
         alignment.d >= least(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES);
}

// The tiles that Hopper's kernels of 16-bit and 8-bit operands come in; others go by cuBLASLt's number.
std::string tile_name(std::uint32_t tile) {
#define TILE(size) \
  case CUBLASLT_MATMUL_TILE_##size: return #size
#define TILES(rows) \
  TILE(rows##x64);  \
  TILE(rows##x128); \
  TILE(rows##x192); \
  TILE(rows##x256)
  switch (tile) {
    TILES(64);
    TILES(128);
    TILES(192);
    TILES(256);
    TILE(32x32);
    TILE(32x64);
    TILE(64x32);
    TILE(32x128);
    TILE(128x32);
    TILE(32x256);
    TILE(256x32);
    TILE(64x96);
    TILE(96x64);
    TILE(96x128);
    TILE(128x96);
    TILE(128x160);
    TILE(160x128);
    TILE(64x512);
    TILE(512x64);
    default: return tile == 0 ? "auto" : fmt::format("number {}", tile);
  }
#undef TILES
#undef TILE
}

struct Cluster {
  std::uint16_t id;
  const char* name;
};
// Small ones, which leave no streaming multiprocessor of a GPC idle. `auto` is first and so 0.
constexpr std::array<Cluster, 10> kClusters{{{CUBLASLT_CLUSTER_SHAPE_AUTO, "auto"},
                                             {CUBLASLT_CLUSTER_SHAPE_2x1x1, "2x1"},
                                             {CUBLASLT_CLUSTER_SHAPE_1x2x1, "1x2"},
                                             {CUBLASLT_CLUSTER_SHAPE_1x1x1, "1x1"},
                                             {CUBLASLT_CLUSTER_SHAPE_2x2x1, "2x2"},
                                             {CUBLASLT_CLUSTER_SHAPE_4x1x1, "4x1"},
                                             {CUBLASLT_CLUSTER_SHAPE_1x4x1, "1x4"},
                                             {CUBLASLT_CLUSTER_SHAPE_4x2x1, "4x2"},
                                             {CUBLASLT_CLUSTER_SHAPE_2x4x1, "2x4"},
                                             {CUBLASLT_CLUSTER_SHAPE_8x1x1, "8x1"}}};

std::string cluster_name(std::uint16_t id) {
  for (const Cluster& cluster : kClusters) {
    if (cluster.id == id) return cluster.name;
  }
  return fmt::format("number {}", id);
}

using Variants = std::vector<cublasLtMatmulAlgo_t>;

template <class Value>
void add(const CublasLt& library, Variants& to, const cublasLtMatmulAlgo_t& base,
         cublasLtMatmulAlgoConfigAttributes_t attribute, Value value) {
  cublasLtMatmulAlgo_t variant = base;
  if (set(library, variant, attribute, value) && !is_same(variant, base)) to.push_back(variant);
}

// Parts are added in fp32 and in a fixed order, or there is one part alone.
Variants split_variants(const CublasLt& library, const cublasLtMatmulAlgo_t& base) {
  Variants made;
  if (capability<std::int32_t>(library, base, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT) == 0) return made;
  const auto schemes = capability<std::uint32_t>(library, base, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK);
  for (const std::int32_t splits : {2, 1, 3, 4, 6, 8, 5, 12, 16}) {
    const std::uint32_t scheme =
        splits == 1 ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if ((schemes & scheme) != scheme) continue;
    cublasLtMatmulAlgo_t variant = base;
    const bool can = set(library, variant, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, splits) &&
                     set(library, variant, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme);
    if (can && !is_same(variant, base)) made.push_back(variant);
  }
  return made;
}

Variants in_turns(const std::vector<Variants>& lists) {
  Variants all;
  std::size_t longest = 0;
  for (const Variants& list : lists) longest = std::max(longest, list.size());
  for (std::size_t i = 0; i < longest; ++i) {
    for (const Variants& list : lists) {
      if (i < list.size()) all.push_back(list[i]);
    }
  }
  return all;
}

}  // namespace

AlgorithmSettings settings_of(const CublasLt& library, const cublasLtMatmulAlgo_t& algorithm) {
  AlgorithmSettings settings;
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_ID, settings.id);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, settings.tile);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, settings.stages);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, settings.splits);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, settings.reduction);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, settings.swizzle);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, settings.custom);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, settings.inner_shape);
  get(library, algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, settings.cluster);
  return settings;
}

std::string describe(const AlgorithmSettings& x) {
  return fmt::format("id {}, tile {}, stages {}, cluster {}, split-k {}, swizzle {}, custom {}{}", x.id,
                     tile_name(x.tile), x.stages, cluster_name(x.cluster), x.splits, x.swizzle, x.custom,
                     x.inner_shape != 0 ? fmt::format(", inner shape {}", x.inner_shape) : "");
}

bool is_same(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) {
  return std::memcmp(&x, &y, sizeof x) == 0;
}

std::vector<cublasLtMatmulAlgo_t> variants(const CublasLt& library, const cublasLtMatmulAlgo_t& base,
                                           const ProductAlignment& alignment) {
  constexpr std::int32_t kMostCustom = 32;
  if (!is_aligned_enough(library, base, alignment)) return {};
  const AlgorithmSettings now = settings_of(library, base);
  Variants tiles, stages, clusters, swizzles, customs, inner_shapes;
  for (const auto tile : capabilities(library, base, CUBLASLT_ALGO_CAP_TILE_IDS, now.tile))
    add(library, tiles, base, CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
  for (const auto stage : capabilities(library, base, CUBLASLT_ALGO_CAP_STAGES_IDS, now.stages))
    add(library, stages, base, CUBLASLT_ALGO_CONFIG_STAGES_ID, stage);
  for (const Cluster& cluster : kClusters)
    add(library, clusters, base, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster.id);
  if (capability<std::uint32_t>(library, base, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT) != 0)
    add(library, swizzles, base, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, now.swizzle == 0 ? 1U : 0U);
  const auto most =
      std::min(capability<std::int32_t>(library, base, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX), kMostCustom);
  for (std::int32_t custom = 0; custom <= most; ++custom)
    add(library, customs, base, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, static_cast<std::uint32_t>(custom));
  for (std::uint16_t shape = 0; shape < CUBLASLT_MATMUL_INNER_SHAPE_END; ++shape)
    add(library, inner_shapes, base, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, shape);
  Variants all =
      in_turns({swizzles, split_variants(library, base), clusters, customs, stages, tiles, inner_shapes});
  // A variant that computes in another way isn't one: TF32 instead of fp32, sums of fewer bits.
  const auto computes = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return capability<std::uint64_t>(library, algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS);
  };
  const std::uint64_t by = computes(base);
  std::erase_if(
      all, [&](const auto& x) { return computes(x) != by || !is_aligned_enough(library, x, alignment); });
  return all;
}

}  // namespace orrery::cuda
