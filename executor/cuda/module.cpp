// What the program finds in this module.

#include <cstdlib>

#include "executor/cuda/cuda_device.hpp"
#include "executor/cuda/libraries.hpp"
#include "executor/device/module_entry.hpp"

namespace orrery::cuda {
namespace {

int device_count(std::string& why) {
  // A step's streams in queues of their own, or a collective that waits could keep another stream waiting.
  // What the environment says stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  switch (status) {
    case cudaErrorInsufficientDriver:
      why = "the driver is older than this module, which needs one for CUDA 13 (580 or later): update it";
      break;
    case cudaErrorNoDevice:
    case cudaSuccess:
      why =
          "the driver sees none: look at nvidia-smi and CUDA_VISIBLE_DEVICES; without a GPU use --backend "
          "host";
      break;
    default: why = std::string(cudaGetErrorString(status)) + ": look at nvidia-smi"; break;
  }
  return 0;
}

std::unique_ptr<device::Device> open_device(int index) { return std::make_unique<CudaDevice>(index); }

std::vector<std::string> libraries() { return report(); }

}  // namespace
}  // namespace orrery::cuda

extern "C" const orrery::device::ModuleEntry orrery_device_module;
extern "C" __attribute__((visibility("default"))) const orrery::device::ModuleEntry orrery_device_module = {
    orrery::device::kBuild, orrery::cuda::device_count, orrery::cuda::open_device, orrery::cuda::libraries};
