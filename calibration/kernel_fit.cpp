#include "calibration/kernel_fit.hpp"

#include <algorithm>
#include <cmath>

#include "calibration/least_squares.hpp"
#include "simulator/kernel_model.hpp"

namespace orrery {
namespace {

using Pointers = std::vector<const KernelMeasurement*>;

// One figure of a Profile that a fit moves.
struct Figure {
  double Profile::* direct = nullptr;
  double& (*inside)(Profile&) = nullptr;
  double start = 1;
  double most = 1e30;
  double least = 0;

  double& of(Profile& profile) const { return direct != nullptr ? profile.*direct : inside(profile); }
};

// A captured graph holds as many launches as take 20 ms, at most 200 and at least 4 (tools/gpu-kernels).
double run_seconds(const KernelMeasurement& it) {
  if (it.state == MeasuredState::kSustained) return kSustained;
  if (it.state == MeasuredState::kBurst) return it.seconds;
  return std::max(4.0, std::min(200.0, 20e-3 / it.seconds)) * it.seconds;
}

// What a measurement adds to a kernel's own time: a single launch between two events carries the launch.
double predicted(const KernelMeasurement& it, const GpuType& gpu, const Profile& profile,
                 double burst_extra_s) {
  const bool rows = it.name == "layer_norm_fwd" || it.name == "softmax_fwd";
  const double bytes =
      static_cast<double>(it.kernel.read_bytes) + static_cast<double>(it.kernel.written_bytes);
  GpuType used = gpu;
  if (it.state == MeasuredState::kBurst) used.cache_bytes = 0;  // Flushed before each launch.
  const double own_s = rows ? row_kernel_seconds(bytes, static_cast<double>(it.kernel.n), used, profile)
                            : kernel_seconds(it.kernel, used, profile, run_seconds(it));
  return own_s + (it.state == MeasuredState::kBurst ? burst_extra_s : 0);
}

// The clocks settle within some tens of milliseconds; the measurements don't tell more closely (3 to 30 ms
// fit equally well, with the slowdown to match).
constexpr double kThrottle = 10e-3;

// A handful of sustained measurements decide what training steps take; hundreds of others must not outvote
// them.
constexpr int kSustainedWeight = 10;

// Fits `figures` (and the cost of a single launch, last) to `measurements`.
double fit_figures(const Pointers& measurements, const GpuType& gpu, const std::vector<Figure>& figures,
                   double burst_extra_s, Profile& profile) {
  std::vector<double> start;
  for (const Figure& figure : figures) start.push_back(figure.start);
  start.push_back(burst_extra_s);
  const auto apply = [&](const std::vector<double>& values) {
    for (std::size_t i = 0; i < figures.size(); ++i)
      figures[i].of(profile) = std::clamp(values[i], figures[i].least, figures[i].most);
  };
  const std::vector<double> best = fit_positive(start, [&](const std::vector<double>& values) {
    apply(values);
    std::vector<double> residuals;
    for (const KernelMeasurement* it : measurements) {
      const int copies = it->state == MeasuredState::kSustained ? kSustainedWeight : 1;
      residuals.insert(residuals.end(), copies,
                       std::log(predicted(*it, gpu, profile, values.back()) / it->seconds));
    }
    return residuals;
  });
  apply(best);
  return best.back();
}

FitError fit_error(const Pointers& measurements, const GpuType& gpu, const Profile& profile,
                   double burst_extra_s) {
  FitError error;
  error.measurements = static_cast<std::int64_t>(measurements.size());
  if (measurements.empty()) return error;
  std::vector<double> logs, sizes;
  for (const KernelMeasurement* it : measurements) {
    const double ratio = predicted(*it, gpu, profile, burst_extra_s) / it->seconds;
    logs.push_back(-std::log(ratio));
    sizes.push_back(std::abs(ratio - 1));
  }
  const auto quantile = [](std::vector<double>& values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  error.median_abs = quantile(sizes, 0.5);
  error.bias = quantile(logs, 0.5);
  error.sigma = (quantile(logs, 0.84) - quantile(logs, 0.16)) / 2;
  return error;
}

// One family's measurements, what is fitted to them, and where the fit starts.
struct Family {
  KernelFamily family;
  std::vector<Figure> figures;
  double burst_extra_s = 4e-6;  // Start value.
};

template <double Profile::* Field>
constexpr Figure direct(double start, double most = 1e30) {
  return {Field, nullptr, start, most};
}

std::vector<Family> families() {
  const auto inside = [](double& (*of)(Profile&), double start, double most = 1e30) {
    return Figure{nullptr, of, start, most};
  };
  const auto type = [&](double& (*of)(Profile&)) { return inside(of, 1, 1.3); };
  return {
      {KernelFamily::kStream,
       {direct<&Profile::memory_efficiency>(0.9, 1), direct<&Profile::kernel_floor_s>(1e-6),
        inside([](Profile& p) -> double& { return p.memory.cache_bytes_per_clock; }, 30)}},
      {KernelFamily::kRows,
       {inside([](Profile& p) -> double& { return p.memory.row_efficiency; }, 0.6, 1),
        inside([](Profile& p) -> double& { return p.memory.row_element_s; }, 1e-9)}},
      {KernelFamily::kMatmul,
       {direct<&Profile::matmul_efficiency>(0.8, 1), type([](Profile& p) -> double& {
          return p.matmul.type_efficiency[static_cast<std::size_t>(DType::kFp8)];
        }),
        type([](Profile& p) -> double& {
          return p.matmul.type_efficiency[static_cast<std::size_t>(DType::kTf32)];
        }),
        type([](Profile& p) -> double& {
          return p.matmul.type_efficiency[static_cast<std::size_t>(DType::kFp32)];
        }),
        inside([](Profile& p) -> double& { return p.matmul.tile_start_s; }, 1e-6),
        inside([](Profile& p) -> double& { return p.matmul.quantisation; }, 0.7, 1),
        inside([](Profile& p) -> double& { return p.matmul.split_s; }, 2e-6),
        inside([](Profile& p) -> double& { return p.matmul.cache_reuse; }, 2, 8),
        inside([](Profile& p) -> double& { return p.matmul.misaligned_4; }, 3),
        inside([](Profile& p) -> double& { return p.matmul.misaligned_2; }, 6),
        Figure{&Profile::sustained_slowdown, nullptr, 1.1, 2, 1}}},
      {KernelFamily::kAttention,
       {direct<&Profile::attention_efficiency>(0.8, 1),
        inside([](Profile& p) -> double& { return p.attention.exponential_share; }, 0.3),
        inside([](Profile& p) -> double& { return p.attention.tile_start_s; }, 1e-6),
        inside([](Profile& p) -> double& { return p.attention.quantisation; }, 0.7, 1)}},
      {KernelFamily::kAttentionBackward,
       {direct<&Profile::attention_backward_efficiency>(0.7, 1),
        inside([](Profile& p) -> double& { return p.attention_backward.exponential_share; }, 0.2),
        inside([](Profile& p) -> double& { return p.attention_backward.tile_start_s; }, 1e-6),
        inside([](Profile& p) -> double& { return p.attention_backward.quantisation; }, 0.7, 1),
        inside([](Profile& p) -> double& { return p.attention_backward.passes; }, 8)}},
  };
}

bool belongs(const KernelMeasurement& it, KernelFamily family, const KernelFitOptions& options) {
  // A backward pass through a framework's tape takes its host some 100 us: shorter ones say nothing of the
  // GPU.
  constexpr double kHostBound = 200e-6;
  switch (family) {
    case KernelFamily::kMatmul: return it.name == "matmul";
    case KernelFamily::kAttention:
      return it.name == "attention_fwd" && it.implementation == options.attention;
    case KernelFamily::kAttentionBackward:
      return it.name == "attention_bwd" && it.implementation == options.attention && it.seconds > kHostBound;
    case KernelFamily::kStream: return it.name == "copy" || it.name == "add" || it.name == "gelu";
    case KernelFamily::kRows: return it.name == "layer_norm_fwd" || it.name == "softmax_fwd";
  }
  return false;
}

}  // namespace

const char* to_string(KernelFamily family) {
  switch (family) {
    case KernelFamily::kMatmul: return "matmul";
    case KernelFamily::kAttention: return "attention";
    case KernelFamily::kAttentionBackward: return "attention backward";
    case KernelFamily::kStream: return "stream";
    case KernelFamily::kRows: return "rows";
  }
  return "";
}

GpuKernelFit fit_kernels(const std::vector<KernelMeasurement>& measurements, const GpuType& gpu,
                         const Profile& start, const KernelFitOptions& options) {
  GpuKernelFit fit;
  fit.profile = start;
  fit.profile.throttle_s = kThrottle;
  for (const Family& family : families()) {
    Pointers used, apart;
    for (const KernelMeasurement& it : measurements) {
      if (!belongs(it, family.family, options)) continue;
      (options.hold_out && it.held_out ? apart : used).push_back(&it);
    }
    const double extra_s = fit_figures(used, gpu, family.figures, family.burst_extra_s, fit.profile);
    const auto index = static_cast<std::size_t>(family.family);
    fit.single_launch_s[index] = extra_s;
    fit.fitted[index] = fit_error(used, gpu, fit.profile, extra_s);
    fit.held_out[index] = fit_error(apart, gpu, fit.profile, extra_s);
  }
  return fit;
}

}  // namespace orrery
