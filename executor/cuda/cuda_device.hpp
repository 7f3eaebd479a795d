#pragma once
// One GPU of this process.

#include <vector>

#include "executor/cuda/memory.hpp"
#include "executor/device/device.hpp"

namespace orrery::cuda {

class CudaDevice : public device::Device {
 public:
  // THROWS Error(kRuntime) where the GPU or a library can't be used.
  explicit CudaDevice(int index);

  device::DeviceInfo info() const override;
  std::byte* allocate(std::int64_t bytes, std::string_view what) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(std::span<std::byte> to, const std::byte* from) override;
  void perform(std::span<const device::Launch> launches) override;
  std::unique_ptr<device::Runner> prepare(const device::DeviceStep& step,
                                          const device::RunnerOptions& options) override;

 private:
  int index_;
  std::string name_;
  std::vector<Memory> memory_;
};

}  // namespace orrery::cuda
