#pragma once
// Fits the kernel figures of a Profile to kernel times measured on one GPU.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// How the times of a measurement were taken (docs/results: kernels-*.csv).
enum class MeasuredState : std::uint8_t {
  kCaptured,   // In a replayed graph, among launches of the same kernel: caches warm, no host in the way.
  kBurst,      // A single launch between two events, caches cold.
  kSustained,  // Long runs of the same kernel.
};

enum class AttentionImplementation : std::uint8_t { kCudnn, kFlash2 };

struct KernelMeasurement {
  Kernel kernel;
  std::string name;  // "matmul", "layer_norm_fwd", …
  MeasuredState state = MeasuredState::kCaptured;
  AttentionImplementation implementation = AttentionImplementation::kCudnn;
  double seconds = 0;
  // One of three shapes is held out of a fit that is to be judged; chosen by a hash of the shape, so that all
  // measurements of a shape stay together.
  bool held_out = false;
};

// The kernel of a shape, with its arithmetic and its least traffic.
Kernel matmul_kernel(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1);
Kernel attention_kernel(bool backward, DType dtype, std::int64_t sequences, std::int64_t heads,
                        std::int64_t key_heads, std::int64_t queries, std::int64_t keys,
                        std::int64_t head_dim, bool causal);

// THROWS Error(kInput) for a file that isn't such a table.
std::vector<KernelMeasurement> read_kernel_measurements(const std::string& file);

enum class KernelFamily : std::uint8_t { kMatmul, kAttention, kAttentionBackward, kStream, kRows };
inline constexpr int kKernelFamilyCount = 5;
const char* to_string(KernelFamily family);

// Spread of ln(measured / predicted) over the measurements of a family.
struct FitError {
  std::int64_t measurements = 0;
  double median_abs = 0;
  double sigma = 0;  // Robust: from the middle 68 %.
  double bias = 0;   // Median.
};

struct GpuKernelFit {
  Profile profile;                                  // The fitted figures; everything else as in `start`.
  double single_launch_s[kKernelFamilyCount] = {};  // What a burst takes beside the kernel.
  FitError fitted[kKernelFamilyCount], held_out[kKernelFamilyCount];
};

struct KernelFitOptions {
  bool hold_out = false;  // Fit without the held out third; else everything, and held_out stays empty.
  AttentionImplementation attention = AttentionImplementation::kCudnn;
};

GpuKernelFit fit_kernels(const std::vector<KernelMeasurement>& measurements, const GpuType& gpu,
                         const Profile& start, const KernelFitOptions& options = {});

}  // namespace orrery
