#pragma once
// NVIDIA's management library, found at run time (libnvidia-ml.so.1 comes with the driver). Reads only.

#include <optional>
#include <string>

namespace orrery::cuda {

struct GpuState {
  int sm_clock_mhz = 0;
  int power_w = 0;
  int temperature_c = 0;
};

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // "580.159.04"; "" when the library isn't there.
  // Of the GPU at this PCI address, as CUDA writes it. Zeros for what can't be read.
  GpuState state(const std::string& pci_bus_id) const;
  // That this GPU has taken since the driver was loaded; none where it isn't counted. The counter moves every
  // few ten milliseconds.
  std::optional<double> energy_j(const std::string& pci_bus_id) const;

 private:
  void* library_ = nullptr;
};

}  // namespace orrery::cuda
