#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "topology/import/detect_host.hpp"
#include "topology/import/pci_address.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;

// From NVIDIA's published NVML API reference; nvmlReturn_t 0 is success.
using Device = void*;
struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
using Init = int (*)();
using Count = int (*)(unsigned*);
using HandleByIndex = int (*)(unsigned, Device*);
using GetPciInfo = int (*)(Device, PciInfo*);
using GetName = int (*)(Device, char*, unsigned);
using Capability = int (*)(Device, int*, int*);
using LinkState = int (*)(Device, unsigned, unsigned*);
using LinkRemotePci = int (*)(Device, unsigned, PciInfo*);
using LinkRemoteType = int (*)(Device, unsigned, unsigned*);
constexpr unsigned kMaxLinks = 36;  // Twice NVML_NVLINK_MAX_LINKS of today's headers; asking ends earlier.

// The library while it is open; nothing is found where it isn't there.
class Library {
 public:
  Library() : handle_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = find<Init>("nvmlInit_v2");
    works_ = init != nullptr && init() == 0;
  }
  ~Library() {
    const auto shutdown = find<Init>("nvmlShutdown");
    if (works_ && shutdown != nullptr) shutdown();
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool works() const { return works_; }
  template <class Function>
  Function find(const char* name) const {
    return handle_ != nullptr ? reinterpret_cast<Function>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
  bool works_ = false;
};

std::uint32_t target_class(unsigned remote_type) {
  switch (remote_type) {
    case 0: return 0x030200;         // NVML_NVLINK_DEVICE_TYPE_GPU
    case 1: return kCpuBridgeClass;  // …_IBMNPU: the CPU.
    default: return kNvSwitchClass;  // …_SWITCH, or unknown, as virtual machines have it.
  }
}

// Links by their far end, in the order of their numbers; those that are down count 0.
std::vector<HostNvLink> nvlinks(const Library& library, Device device) {
  const auto state = library.find<LinkState>("nvmlDeviceGetNvLinkState");
  const auto remote = library.find<LinkRemotePci>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  const auto type = library.find<LinkRemoteType>("nvmlDeviceGetNvLinkRemoteDeviceType");
  std::vector<HostNvLink> links;
  if (state == nullptr || remote == nullptr) return links;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned up = 0, far_type = 2;
    if (state(device, link, &up) != 0) break;
    PciInfo far{};
    const bool named = remote(device, link, &far) == 0;
    if (type != nullptr && type(device, link, &far_type) != 0) far_type = 2;
    HostNvLink found;
    found.target = named ? normal_bus_id(std::string_view(far.bus_id, strnlen(far.bus_id, sizeof far.bus_id)))
                         : "fffffff:ff:ff.0";  // As NCCL writes switches that it can't see.
    found.target_class = target_class(far_type);
    auto same = std::ranges::find(links, found.target, &HostNvLink::target);
    if (same == links.end()) same = links.insert(same, found);
    if (up != 0) ++same->count;
  }
  // A far end that nobody named says nothing when none of its links is up and others are.
  std::erase_if(links, [&](const HostNvLink& link) {
    return link.count == 0 && links.size() > 1 && link.target == "fffffff:ff:ff.0";
  });
  return links;
}

// The GPU at this address; added under a CPU of unknown number where the PCIe tree doesn't show it.
HostGpu& gpu_at(Host& host, const std::string& bus_id, NoteTally& notes) {
  auto pci = std::ranges::find(host.pci, bus_id, &PciDevice::bus_id);
  if (pci == host.pci.end()) {
    PciDevice device;
    device.bus_id = bus_id;
    device.device_class = 0x030200;
    const auto unknown = std::ranges::find(host.cpus, -1, &HostCpu::numa);
    device.cpu = static_cast<std::int32_t>(unknown - host.cpus.begin());
    if (unknown == host.cpus.end()) host.cpus.emplace_back();
    pci = host.pci.insert(pci, std::move(device));
    notes.add(Kind::kMissing, 0, bus_id, "NVML lists this GPU, and the PCIe tree here doesn't show it",
              "run outside the container, or mount /sys into it");
  }
  const auto index = static_cast<std::int32_t>(pci - host.pci.begin());
  const auto gpu = std::ranges::find(host.gpus, index, &HostGpu::pci);
  if (gpu != host.gpus.end()) return *gpu;
  host.gpus.emplace_back();
  host.gpus.back().pci = index;
  return host.gpus.back();
}

}  // namespace

void add_nvml(Host& host, NoteTally& notes) {
  const Library library;
  const auto count_gpus = library.find<Count>("nvmlDeviceGetCount_v2");
  const auto handle = library.find<HandleByIndex>("nvmlDeviceGetHandleByIndex_v2");
  const auto pci_info = library.find<GetPciInfo>("nvmlDeviceGetPciInfo_v3");
  unsigned count = 0;
  if (!library.works() || handle == nullptr || pci_info == nullptr || count_gpus == nullptr ||
      count_gpus(&count) != 0) {
    notes.add(Kind::kMissing, 0, "",
              "NVIDIA's management library (libnvidia-ml.so.1) is not here or doesn't start: GPU models, "
              "capabilities and NVLinks are not known",
              "nvidia-smi; it comes with the driver");
    return;
  }
  const auto name = library.find<GetName>("nvmlDeviceGetName");
  const auto capability = library.find<Capability>("nvmlDeviceGetCudaComputeCapability");
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    PciInfo pci{};
    if (handle(index, &device) != 0 || pci_info(device, &pci) != 0) {
      notes.add(Kind::kMissing, 0, "GPU " + std::to_string(index), "NVML can't open this GPU",
                "dmesg | grep -i xid");
      continue;
    }
    HostGpu& gpu = gpu_at(
        host, normal_bus_id(std::string_view(pci.bus_id, strnlen(pci.bus_id, sizeof pci.bus_id))), notes);
    gpu.index = static_cast<std::int32_t>(index);
    char text[96] = "";
    if (name != nullptr && name(device, text, sizeof text) == 0) gpu.model = text;
    int major = 0, minor = 0;
    if (capability != nullptr && capability(device, &major, &minor) == 0)
      gpu.compute_capability = 10 * major + minor;
    gpu.nvlinks = nvlinks(library, device);
  }
  std::ranges::stable_sort(host.gpus, {}, &HostGpu::index);
}

}  // namespace orrery
