#include "executor/cuda/checks.hpp"

#include "base/error.hpp"

namespace orrery::cuda {

void check(cudaError_t status, std::string_view doing) {
  if (status == cudaSuccess) return;
  fail(ErrorKind::kRuntime, "{}: {} ({})", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace orrery::cuda
