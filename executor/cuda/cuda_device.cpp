#include "executor/cuda/cuda_device.hpp"

#include "executor/cuda/checks.hpp"
#include "executor/cuda/launcher.hpp"
#include "executor/cuda/libraries.hpp"
#include "executor/cuda/runner.hpp"

namespace orrery::cuda {

CudaDevice::CudaDevice(int index) : index_(index) {
  check(cudaSetDevice(index), "choosing a GPU");
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties");
  name_ = properties.name;
}

device::DeviceInfo CudaDevice::info() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading how much memory is free");
  device::DeviceInfo info;
  info.name = name_;
  info.memory_bytes = static_cast<std::int64_t>(total);
  info.free_bytes = static_cast<std::int64_t>(free);
  info.libraries = report();
  return info;
}

std::byte* CudaDevice::allocate(std::int64_t bytes, std::string_view what) {
  return memory_.emplace_back(bytes, what).data();
}

void CudaDevice::write(std::byte* to, std::span<const std::byte> from) {
  check(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "writing to the GPU");
}

void CudaDevice::read(std::span<std::byte> to, const std::byte* from) {
  check(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "reading from the GPU");
}

void CudaDevice::perform(std::span<const device::Launch> launches) {
  const OwnStream stream;
  Launcher launcher(name_, "");
  for (const device::Launch& launch : launches) launcher.add(launch, 0);
  launcher.ready({stream}, nullptr);
  for (std::size_t i = 0; i < launches.size(); ++i) launcher.perform(i);
  check(cudaStreamSynchronize(stream), "running kernels");
}

std::unique_ptr<device::Runner> CudaDevice::prepare(const device::DeviceStep& step,
                                                    const device::RunnerOptions& options) {
  return std::make_unique<CudaRunner>(name_, step, options);
}

}  // namespace orrery::cuda
