#pragma once
// A named span of the host's time, for whoever watches with NVIDIA's profilers. Next to free when nobody
// does: NVTX is headers alone and loads what a profiler brings.

#include <nvtx3/nvToolsExt.h>

namespace orrery::cuda {

class NvtxRange {
 public:
  explicit NvtxRange(const char* name) {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &event);
  }
  ~NvtxRange() { nvtxDomainRangePop(domain()); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t made = nvtxDomainCreateA("orrery");
    return made;
  }
};

}  // namespace orrery::cuda
