#include "simulator/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace orrery {
namespace {

double bytes_of(const Kernel& kernel) {
  return static_cast<double>(kernel.read_bytes) + static_cast<double>(kernel.written_bytes);
}

double peak_of(const Kernel& kernel, const GpuType& gpu) {
  const double peak = gpu.peak(kernel.dtype);
  if (peak <= 0)
    fail(ErrorKind::kInfeasible, "{} has no {} arithmetic; choose another compute type or GPU", gpu.name,
         to_string(kernel.dtype));
  return peak;
}

double up(double a, double b) { return std::ceil(a / b); }

// Bytes per second out of the cache that all SMs share; infinite where not known.
double cache_rate(const GpuType& gpu, const Profile& profile) {
  const double rate = profile.memory.cache_bytes_per_clock * gpu.sms * gpu.clock_hz;
  return rate > 0 ? rate : std::numeric_limits<double>::infinity();
}

// What the cache holds comes from there. Least-recently-used replacement loses everything of a stream that is
// a little larger than the cache: all of it from 1.25 times on (H200: 50 MB at 7 TB/s, 75 MB at 4.5 TB/s).
double stream_seconds(double bytes, double efficiency, const GpuType& gpu, const Profile& profile) {
  const double memory_s = bytes / (gpu.memory_bytes_per_s * profile.memory_efficiency * efficiency);
  const double cache = cache_rate(gpu, profile) * efficiency;
  if (std::isinf(cache) || gpu.cache_bytes == 0) return memory_s;
  const double excess = bytes / static_cast<double>(gpu.cache_bytes) - 1;
  const double hit = std::clamp(1 - 4 * excess, 0.0, 1.0);
  return hit * std::min(bytes / cache, memory_s) + (1 - hit) * memory_s;
}

// Waves that `tiles` equal tiles take on the SMs.
double waves(double tiles, double sms, double quantisation) {
  const double even = tiles / sms;
  if (even <= 1) return 1;
  return even + quantisation * (std::ceil(even) - even);
}

// Half of the slowdown is felt after `throttle_s` of dense work, all of it in the long run.
double throttled(double seconds, const Profile& profile, double run_s) {
  const double felt = std::isinf(run_s) ? 1 : run_s / (run_s + profile.throttle_s + 1e-12);
  return seconds * (1 + (profile.sustained_slowdown - 1) * felt);
}

// Resources used side by side: the longest, and a little of the others where they are close.
double side_by_side(double a, double b) {
  constexpr double kSharpness = 4;
  const double longest = std::max(a, b), other = std::min(a, b);
  if (longest <= 0) return 0;
  return longest * std::pow(1 + std::pow(other / longest, kSharpness), 1 / kSharpness);
}

struct Tile {
  double m, n;
};
constexpr std::array<Tile, 11> kTiles{{{256, 128},
                                       {128, 256},
                                       {192, 128},
                                       {128, 192},
                                       {192, 192},
                                       {128, 128},
                                       {128, 64},
                                       {64, 128},
                                       {64, 64},
                                       {256, 64},
                                       {64, 256}}};
constexpr std::array<double, 5> kSplits{1, 2, 4, 8, 16};

// Rows of operands that don't start at multiples of 16 bytes are loaded in smaller pieces.
double misalignment(const Kernel& kernel, const MatmulCosts& costs) {
  if (kernel.dtype == DType::kFp32) return 1;  // Has no tensor cores to feed.
  const std::int64_t row_bytes =
      std::min(kernel.k & -kernel.k, kernel.n & -kernel.n) * size_bytes(kernel.dtype);
  return row_bytes >= 16 ? 1 : row_bytes >= 4 ? costs.misaligned_4 : costs.misaligned_2;
}

struct Matmul {
  const Kernel& kernel;
  const GpuType& gpu;
  const Profile& profile;
  double rate;  // Of one SM's inner loop in a large tile.

  double seconds(const Tile& tile, double split) const {
    const MatmulCosts& costs = profile.matmul;
    const double type_bytes = static_cast<double>(size_bytes(kernel.dtype));
    const double m = static_cast<double>(kernel.m), n = static_cast<double>(kernel.n);
    const double batch = static_cast<double>(kernel.batch);
    const double deep = up(static_cast<double>(kernel.k) / split, 128 / type_bytes) * 128 / type_bytes;
    const double tiles = up(m, tile.m) * up(n, tile.n) * batch * split;
    const double inner_s = 2 * tile.m * tile.n * deep / rate;
    const double busy_s = waves(tiles, gpu.sms, costs.quantisation) *
                          (inner_s * misalignment(kernel, costs) + costs.tile_start_s);
    double loaded = tiles * (tile.m + tile.n) * deep * type_bytes / costs.cache_reuse;
    double parts_s = 0;
    if (split > 1) {
      loaded += 2 * split * m * n * batch * 4;
      parts_s = costs.split_s;
    }
    return side_by_side(busy_s, loaded / cache_rate(gpu, profile)) + parts_s;
  }
};

// What an FP8 product reads and writes beyond its own operands and a 16-bit result makes its operands'
// copies (planner/fp8.hpp): for each two passes that stream, before the product.
double copied_bytes(const Kernel& kernel) {
  if (kernel.dtype != DType::kFp8 || kernel.m == 0) return 0;
  const double m = static_cast<double>(kernel.m), n = static_cast<double>(kernel.n);
  const double k = static_cast<double>(kernel.k);
  return std::max(0.0, bytes_of(kernel) - static_cast<double>(kernel.batch) * (m * k + k * n + 2 * m * n));
}

double copies_seconds(const Kernel& kernel, const GpuType& gpu, const Profile& profile) {
  const double bytes = copied_bytes(kernel);
  constexpr double kPasses = 4;  // Of two operands.
  return bytes > 0 ? stream_seconds(bytes, 1, gpu, profile) + kPasses * profile.kernel_floor_s : 0;
}

// Over the rate of an FP8 product with sums in fp32 and one scale.
double fp8_gain(const Fp8Arithmetic& arithmetic, const MatmulCosts& costs) {
  switch (arithmetic.scaling) {
    case Fp8Scaling::kSquares: return costs.fp8_squares;
    case Fp8Scaling::kRows: return costs.fp8_rows;
    case Fp8Scaling::kOne: break;
  }
  return arithmetic.fast ? costs.fp8_fast : 1;
}

double matmul_seconds(const Kernel& kernel, const GpuType& gpu, const Profile& profile) {
  const auto type = static_cast<std::size_t>(kernel.dtype);
  double rate = peak_of(kernel, gpu) * profile.matmul_efficiency * profile.matmul.type_efficiency[type];
  if (kernel.dtype == DType::kFp8) rate *= fp8_gain(kernel.fp8, profile.matmul);
  const double memory_s = stream_seconds(bytes_of(kernel) - copied_bytes(kernel), 1, gpu, profile);
  if (kernel.m == 0 || gpu.sms == 0) return side_by_side(kernel.flops / rate, memory_s);
  const Matmul matmul{kernel, gpu, profile, rate / gpu.sms};
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    for (const double split : kSplits) {
      // A part shorter than 256 doesn't fill a pipeline.
      if (split > 1 && static_cast<double>(kernel.k) < 256 * split) break;
      best = std::min(best, matmul.seconds(tile, split));
    }
  }
  return side_by_side(best, memory_s);
}

constexpr double kAttentionTile = 128;
constexpr double kHeadDim = 128;

double attention_seconds(const Kernel& kernel, const GpuType& gpu, const Profile& profile, bool backward) {
  const AttentionCosts& costs = backward ? profile.attention_backward : profile.attention;
  const double rate = peak_of(kernel, gpu) *
                      (backward ? profile.attention_backward_efficiency : profile.attention_efficiency);
  const double memory_s = stream_seconds(bytes_of(kernel), 1, gpu, profile);
  if (kernel.m == 0 || gpu.sms == 0) return side_by_side(kernel.flops / rate, memory_s);
  const double m = static_cast<double>(kernel.m), n = static_cast<double>(kernel.n);
  const double d = static_cast<double>(kernel.k), heads = static_cast<double>(kernel.batch);
  // 2 products forward, 5 backward, of 2·d each per score.
  const double products = backward ? 5 : 2;
  // The figure holds for 16-bit types: where products of 8-bit ones go faster, exponentials don't.
  const double half_peak = std::max(gpu.peak(DType::kBf16), gpu.peak(DType::kFp16));
  const double exponential =
      costs.exponential_share * kHeadDim * (half_peak > 0 ? gpu.peak(kernel.dtype) / half_peak : 1);
  const double score_s = 2 * products * (d + exponential) / (rate / gpu.sms);
  const double tiles = up(backward ? n : m, kAttentionTile);
  const double across =
      backward ? up(m, kAttentionTile) * kAttentionTile : up(n, kAttentionTile) * kAttentionTile;
  double busy_s = 0;
  const double full_s = kAttentionTile * across * score_s + costs.tile_start_s;
  if (is_causal(kernel)) {
    // Tiles of all lengths, the longest first, fill the SMs evenly; the longest one has to end all the same.
    const double mean_s = kAttentionTile * (across + kAttentionTile) / 2 * score_s + costs.tile_start_s;
    const double even_s = heads * tiles * mean_s / gpu.sms;
    busy_s = std::max(full_s, even_s + costs.quantisation * mean_s / 2);
  } else {
    busy_s = waves(heads * tiles, gpu.sms, costs.quantisation) * full_s;
  }
  const double query_bytes = heads * m * d * static_cast<double>(size_bytes(kernel.dtype));
  const double passes_s = costs.passes * query_bytes / (gpu.memory_bytes_per_s * profile.memory_efficiency);
  return side_by_side(busy_s, memory_s) + passes_s;
}

}  // namespace

bool is_causal(const Kernel& kernel) {
  const double products = kernel.kind == KernelKind::kAttentionBackward ? 5 : 2;
  const double all = 2 * products * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) *
                     static_cast<double>(kernel.k) * static_cast<double>(kernel.batch);
  return kernel.flops < 0.75 * all;
}

double kernel_seconds(const Kernel& kernel, const GpuType& gpu, const Profile& profile, double run_s) {
  switch (kernel.kind) {
    case KernelKind::kFixed: return kernel.fixed.seconds();
    case KernelKind::kMatmul:
      return profile.kernel_floor_s + copies_seconds(kernel, gpu, profile) +
             throttled(matmul_seconds(kernel, gpu, profile), profile, run_s);
    case KernelKind::kAttention:
      return profile.kernel_floor_s +
             throttled(attention_seconds(kernel, gpu, profile, false), profile, run_s);
    case KernelKind::kAttentionBackward:
      return profile.kernel_floor_s +
             throttled(attention_seconds(kernel, gpu, profile, true), profile, run_s);
    case KernelKind::kElementwise:
    case KernelKind::kEmbedding:
    case KernelKind::kCrossEntropy:
    case KernelKind::kOptimizer:
    case KernelKind::kAccumulate: break;
  }
  return profile.kernel_floor_s + stream_seconds(bytes_of(kernel), 1, gpu, profile);
}

double row_kernel_seconds(double bytes, double row_elements, const GpuType& gpu, const Profile& profile) {
  const double stream_s = stream_seconds(bytes, profile.memory.row_efficiency, gpu, profile);
  return profile.kernel_floor_s + side_by_side(stream_s, row_elements * profile.memory.row_element_s);
}

TimeInterval kernel_interval(double seconds, const CostError& error) {
  constexpr double kNormal95 = 1.645;  // 90 % of a normal distribution lie within so many deviations.
  const double spread = std::exp(kNormal95 * std::hypot(error.family_sigma, error.entry_sigma));
  return {seconds / spread, seconds * spread};
}

const CostError& kernel_error(KernelKind kind, const Profile& profile) {
  switch (kind) {
    case KernelKind::kMatmul: return profile.errors.matmul;
    case KernelKind::kAttention: return profile.errors.attention;
    case KernelKind::kAttentionBackward: return profile.errors.attention_backward;
    default: return profile.errors.memory;
  }
}

}  // namespace orrery
