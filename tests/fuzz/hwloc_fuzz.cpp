// Whatever bytes come in, read_hwloc_xml gives a host whose indices hold, or throws Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/hwloc_host.hpp"

// libhwloc 2.9 forgets objects of files that it gives up on. Weak: the replay of corpora has a suppression of
// its own.
extern "C" __attribute__((weak)) const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:libhwloc\n"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const orrery::Host host = orrery::read_hwloc_xml(bytes, "fuzz.xml").hosts.at(0);
    const auto devices = static_cast<std::int32_t>(host.pci.size());
    for (std::int32_t i = 0; i < devices; ++i)
      if (host.pci[static_cast<std::size_t>(i)].parent >= i) std::abort();
    for (const orrery::HostGpu& gpu : host.gpus)
      if (gpu.pci < 0 || gpu.pci >= devices) std::abort();
    for (const orrery::HostNic& nic : host.nics)
      if (nic.pci < 0 || nic.pci >= devices) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
