#include "topology/kernel_costs.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// Fitted by calibration/kernel_fit.hpp to docs/results/kernels-h200.csv (H200, driver 580.159.04, CUDA 13.0,
// PyTorch's cuBLAS and cuDNN 9.19), which tests/calibration does again and compares. Held out errors are in
// docs/kernel-costs.md.
constexpr double kMemoryEfficiency = 0.84803;
constexpr double kKernelFloor = 1.2272e-6;
constexpr MemoryCosts kMemory{29.949, 0.46814, 1.33195e-9};

constexpr double kMatmulEfficiency = 0.79158;
constexpr double kFp8Efficiency = 0.92137, kTf32Efficiency = 1.01852, kFp32Efficiency = 0.93160;
// Geometric means over docs/results/gpu-products-h200.json (product-speed on an H200 whose clocks have
// settled), against sums in fp32 and one scale, which the fit above has seen; tests/calibration works them
// out again.
constexpr double kFp8Fast = 1.108, kFp8Squares = 0.918, kFp8Rows = 0.745;
constexpr double kTileStart = 1.8248e-6, kQuantisation = 1, kSplit = 7.0939e-6, kCacheReuse = 2.36436;
constexpr double kMisaligned4 = 3.0847, kMisaligned2 = 5.4271;
// The clocks settle within some tens of milliseconds; measurements don't tell more closely.
constexpr double kSustainedSlowdown = 1.05826, kThrottle = 10e-3;

// What a matmul takes longer when it is timed by itself, between two events, than as one of many.
constexpr double kSingleLaunch = 3.18e-6;

// cuDNN. Per SM and clock Blackwell's products are twice as fast as Hopper's; exponentials and shared memory
// aren't. Its forward kernels work out a part of the exponentials on other units, which keeps the balance;
// its backward kernels, bound by shared memory, have no such relief (FlashAttention 4).
constexpr double kNativeEfficiency = 1.0, kNativeBackwardEfficiency = 0.74764;
constexpr AttentionCosts kNativeAttention{0.45805, 1.44488e-6, 1, 0};
constexpr AttentionCosts kNativeAttentionBackward{0.23485, 7.74553e-6, 1, 0};
// FlashAttention 2.
constexpr double kLegacyEfficiency = 0.39012, kLegacyBackwardEfficiency = 0.32589;
constexpr AttentionCosts kLegacyAttention{0.090526, 1.95458e-6, 1, 0};
constexpr AttentionCosts kLegacyAttentionBackward{0.042943, 3.6182e-6, 0, 17.3398};
// FlashAttention 2 runs the same instructions on Ampere, Ada and Hopper (Dao 2023: unmodified, none of
// Hopper's own) and is held by issuing them, by exponentials and by shared memory, of which an SM has as much
// per clock on each. So it does the same per SM and clock, which is another part of another peak, as far as
// the peak goes.
constexpr double kHopperHalfFlopsPerClock = 4096;
// Elsewhere (other makers, chips whose clock isn't known) a fraction of peak: Ampere's instructions
// reach 62.9 % of Hopper's peak (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture
// via Microbenchmarking, 2024).
constexpr double kLegacyShareOfHopper = 0.629;

// What a kernel costs in cycles takes as much longer as the clock is slower: the H200's peak counts at 1,830
// MHz.
constexpr double kReferenceClock = 1.83e9;

double cycles_scale(const GpuType& gpu) { return gpu.clock_hz > 0 ? kReferenceClock / gpu.clock_hz : 1; }

// Hopper's clusters load an operand once for two SMs and more (fitted). Before there were none. A Blackwell
// pair of SMs works on one tile of twice the width besides.
double cache_reuse(Architecture architecture) {
  switch (architecture) {
    case Architecture::kHopper: return kCacheReuse;
    case Architecture::kBlackwell: return 2 * kCacheReuse;
    case Architecture::kVolta:
    case Architecture::kAmpere:
    case Architecture::kAda: return 1;
    case Architecture::kCdna3:
    case Architecture::kHost:
    case Architecture::kUnknown: break;
  }
  return kCacheReuse;
}

// The H200's large matmuls are held by its power limit: they run at 1,365 to 1,425 MHz (docs/results), where
// their rate is 98 % of what tensor cores can do at that clock. Another GPU's clock under load follows from
// the watts that it has per FLOP/s against those that it needs; power grows about with the cube of the clock,
// as voltage rises with it. What is needed changes with the process: 4N (as N5) takes 0.7 of N7's power at
// equal speed, N7 0.4 of 16 nm's, of which 12 nm is a variant (TSMC technology pages). Blackwell's tensor
// cores are another design on the same process, whose need isn't known: its first module is taken to be as
// well fed as the H200, and its other boards are compared to that.
double clock_scale(const GpuType& gpu) {
  constexpr double kH200Watts = 700 / 989.4;  // Per TFLOP/s.
  double needed = 0;
  switch (gpu.architecture) {
    case Architecture::kVolta: needed = kH200Watts / 0.7 / 0.4; break;
    case Architecture::kAmpere: needed = kH200Watts / 0.7; break;
    case Architecture::kAda:
    case Architecture::kHopper: needed = kH200Watts; break;
    case Architecture::kBlackwell: needed = 1000 / 2250.0; break;
    case Architecture::kCdna3:
    case Architecture::kHost:
    case Architecture::kUnknown: return 1;
  }
  const double teraflops = gpu.peak(DType::kFp16) / 1e12;
  if (teraflops <= 0 || gpu.power_w <= 0) return 1;
  return std::cbrt(gpu.power_w / teraflops / needed);
}
// Of the tensor cores' rate, at whatever clock.
constexpr double kMostEfficiency = 0.95;

bool native_attention(Architecture architecture) {
  return architecture == Architecture::kHopper || architecture == Architecture::kBlackwell;
}

// How many times the fraction of peak that FlashAttention 2 reaches on Hopper.
double legacy_gain(const GpuType& gpu) {
  if (native_attention(gpu.architecture)) return 1;
  const bool nvidia = gpu.architecture == Architecture::kVolta || gpu.architecture == Architecture::kAmpere ||
                      gpu.architecture == Architecture::kAda;
  const double per_clock =
      gpu.sms > 0 && gpu.clock_hz > 0 ? gpu.peak(DType::kFp16) / (gpu.sms * gpu.clock_hz) : 0;
  return nvidia && per_clock > 0 ? kHopperHalfFlopsPerClock / per_clock : 1 / kLegacyShareOfHopper;
}

AttentionCosts carried(AttentionCosts costs, double exponentials, const GpuType& gpu) {
  costs.exponential_share *= exponentials;
  costs.tile_start_s *= cycles_scale(gpu);
  return costs;
}

// Deviations of ln(measured / predicted). Entries: of the third of the H200's shapes that a fit had not seen,
// rounded up for other versions of the libraries. Families: 5 % on the GPU that was measured; for others what
// a fraction of peak is trusted to carry over.
double transfer_sigma(const GpuType& gpu) {
  if (gpu.name.starts_with("H200")) return 0.05;
  switch (gpu.architecture) {
    case Architecture::kHopper: return 0.10;
    case Architecture::kAmpere:
    case Architecture::kAda:
    case Architecture::kBlackwell: return 0.20;
    case Architecture::kVolta: return 0.25;
    case Architecture::kCdna3:
    case Architecture::kHost:
    case Architecture::kUnknown: break;
  }
  return 0.35;
}

KernelErrors errors_of(const GpuType& gpu) {
  const double family = transfer_sigma(gpu);
  KernelErrors errors;
  errors.matmul = {family, 0.10};
  errors.attention = {family, 0.10};
  errors.attention_backward = {family, 0.12};
  errors.memory = {family, 0.20};
  errors.rows = {family, 0.47};
  // Assumed; the measurements are medians and don't tell.
  errors.launch_sigma = 0.02;
  return errors;
}

}  // namespace

void set_attention_kernels(const GpuType& gpu, AttentionKernels kernels, Profile& profile) {
  const bool native = kernels == AttentionKernels::kNative;
  const double gain = native ? 1 : legacy_gain(gpu);
  profile.attention_efficiency =
      native ? kNativeEfficiency : std::min(kMostEfficiency, kLegacyEfficiency * gain);
  profile.attention_backward_efficiency =
      native ? kNativeBackwardEfficiency : std::min(kMostEfficiency, kLegacyBackwardEfficiency * gain);
  profile.attention = carried(native ? kNativeAttention : kLegacyAttention, 1, gpu);
  profile.attention_backward = carried(native ? kNativeAttentionBackward : kLegacyAttentionBackward,
                                       gpu.architecture == Architecture::kBlackwell ? 2 : 1, gpu);
}

void set_kernel_costs(const GpuType& gpu, Profile& profile) {
  profile.memory_efficiency = kMemoryEfficiency;
  profile.memory = kMemory;
  profile.memory.row_element_s *= cycles_scale(gpu);
  profile.kernel_floor_s = kKernelFloor * cycles_scale(gpu);

  profile.matmul_efficiency = std::min(kMostEfficiency, kMatmulEfficiency * clock_scale(gpu));
  auto& by_type = profile.matmul.type_efficiency;
  by_type[static_cast<std::size_t>(DType::kFp8)] = kFp8Efficiency;
  by_type[static_cast<std::size_t>(DType::kTf32)] = kTf32Efficiency;
  by_type[static_cast<std::size_t>(DType::kFp32)] = kFp32Efficiency;
  profile.matmul.fp8_fast = kFp8Fast;
  profile.matmul.fp8_squares = kFp8Squares;
  profile.matmul.fp8_rows = kFp8Rows;
  profile.matmul.tile_start_s = kTileStart * cycles_scale(gpu);
  profile.matmul.quantisation = kQuantisation;
  profile.matmul.split_s = kSplit * cycles_scale(gpu);
  profile.matmul.cache_reuse = cache_reuse(gpu.architecture);
  profile.matmul.misaligned_4 = kMisaligned4;
  profile.matmul.misaligned_2 = kMisaligned2;
  profile.sustained_slowdown = kSustainedSlowdown;
  profile.throttle_s = kThrottle;
  profile.single_launch_s = kSingleLaunch;
  set_attention_kernels(
      gpu, native_attention(gpu.architecture) ? AttentionKernels::kNative : AttentionKernels::kLegacy,
      profile);
  profile.errors = errors_of(gpu);
}

}  // namespace orrery
