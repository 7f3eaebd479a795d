#include "executor/cuda/nvml.hpp"

#include <dlfcn.h>

namespace orrery::cuda {
namespace {

// From NVIDIA's published NVML API reference; nvmlReturn_t 0 is success.
using Device = void*;
using Init = int (*)();
using DriverVersion = int (*)(char*, unsigned);
using HandleByPciBusId = int (*)(const char*, Device*);
using ClockInfo = int (*)(Device, int, unsigned*);
using PowerUsage = int (*)(Device, unsigned*);
using Temperature = int (*)(Device, int, unsigned*);
using TotalEnergy = int (*)(Device, unsigned long long*);
constexpr int kClockSm = 1;         // NVML_CLOCK_SM
constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU

template <class Function>
Function find(void* library, const char* name) {
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

}  // namespace

Nvml::Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  const auto init = find<Init>(library_, "nvmlInit_v2");
  if (library_ != nullptr && (init == nullptr || init() != 0)) {
    dlclose(library_);
    library_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (const auto shutdown = find<Init>(library_, "nvmlShutdown")) shutdown();
  if (library_ != nullptr) dlclose(library_);
}

std::string Nvml::driver_version() const {
  const auto version = find<DriverVersion>(library_, "nvmlSystemGetDriverVersion");
  char text[96] = "";
  if (version == nullptr || version(text, sizeof text) != 0) return "";
  return text;
}

GpuState Nvml::state(const std::string& pci_bus_id) const {
  GpuState state;
  Device device = nullptr;
  const auto handle = find<HandleByPciBusId>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (handle == nullptr || handle(pci_bus_id.c_str(), &device) != 0) return state;
  unsigned value = 0;
  const auto clock = find<ClockInfo>(library_, "nvmlDeviceGetClockInfo");
  if (clock != nullptr && clock(device, kClockSm, &value) == 0) state.sm_clock_mhz = static_cast<int>(value);
  const auto power = find<PowerUsage>(library_, "nvmlDeviceGetPowerUsage");  // Milliwatts.
  if (power != nullptr && power(device, &value) == 0) state.power_w = static_cast<int>(value / 1000);
  const auto temperature = find<Temperature>(library_, "nvmlDeviceGetTemperature");
  if (temperature != nullptr && temperature(device, kTemperatureGpu, &value) == 0) {
    state.temperature_c = static_cast<int>(value);
  }
  return state;
}

std::optional<double> Nvml::energy_j(const std::string& pci_bus_id) const {
  Device device = nullptr;
  unsigned long long millijoules = 0;
  const auto handle = find<HandleByPciBusId>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto energy = find<TotalEnergy>(library_, "nvmlDeviceGetTotalEnergyConsumption");
  if (handle == nullptr || energy == nullptr || handle(pci_bus_id.c_str(), &device) != 0) return std::nullopt;
  if (energy(device, &millijoules) != 0) return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace orrery::cuda
