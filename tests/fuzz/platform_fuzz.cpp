// Whatever bytes come in, read_simgrid_platform gives a platform that is written and read back equal, or
// throws Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/platform.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const orrery::PlatformDescription platform = orrery::read_simgrid_platform(bytes, "fuzz.xml");
    const std::string text = orrery::write_simgrid_platform(platform);
    if (orrery::read_simgrid_platform(text, "again.xml") != platform) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
