#include "executor/cuda/kernels_host.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"

namespace orrery::cuda {

int multiprocessors() {
  constexpr std::size_t kDevices = 64;
  static std::array<std::atomic<int>, kDevices> known{};  // 0: not asked for yet.
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  const auto slot = static_cast<std::size_t>(device) % kDevices;
  int count = known[slot].load(std::memory_order_relaxed);
  if (count > 0) return count;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking for the number of multiprocessors");
  known[slot].store(count, std::memory_order_relaxed);
  return count;
}

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  fail(ErrorKind::kRuntime,
       "CUDA: kernel {} was not launched: {} ({}); a kernel for another GPU architecture, or a fault of an "
       "earlier kernel: run with CUDA_LAUNCH_BLOCKING=1 to see which",
       kernel, cudaGetErrorName(error), cudaGetErrorString(error));
}

void refuse_type(const char* kernel, DType type) {
  fail(ErrorKind::kRuntime, "CUDA: kernel {} has no version for {}; expected bf16, fp16 or fp32", kernel,
       to_string(type));
}

void refuse(const char* kernel, const char* what) {
  fail(ErrorKind::kRuntime, "CUDA: kernel {} can't run: {}", kernel, what);
}

}  // namespace orrery::cuda
