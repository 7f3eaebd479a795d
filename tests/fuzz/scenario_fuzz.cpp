// Whatever is written in a scenario file, reading it ends in a Scenario or in an input Error with a place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "scenarios/scenario.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const orrery::Scenario scenario = orrery::parse_scenario(text, "fuzz.yaml");
    if (scenario.cluster.gpu_count() < 1 || scenario.model.layers < 1) std::abort();
  } catch (const orrery::Error& error) {
    const std::string_view message = error.what();
    if (error.kind() != orrery::ErrorKind::kInput || !message.starts_with("fuzz.yaml:")) std::abort();
  }
  return 0;
}
