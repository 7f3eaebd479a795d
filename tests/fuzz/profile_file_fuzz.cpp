// Whatever is written in a Profile's file, reading it ends in a Profile that is written and read back, or in
// an input Error with a place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "scenarios/profile_file.hpp"
#include "topology/host_cores.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const orrery::GpuType core = orrery::make_host_node({}).gpu;
  orrery::Profile profile;
  try {
    orrery::read_profile_json(text, "fuzz.json", core, profile);
  } catch (const orrery::Error& error) {
    const std::string_view message = error.what();
    if (error.kind() != orrery::ErrorKind::kInput || !message.starts_with("fuzz.json:")) std::abort();
    return 0;
  }
  const std::string written = orrery::profile_json(profile, core);
  orrery::Profile again;
  orrery::read_profile_json(written, "written.json", core, again);
  if (again.kernels.size() != profile.kernels.size()) std::abort();
  return 0;
}
