// Whatever a settings file holds, importing it ends in a plan whose text is one scenario, or in an Error with
// its name. The first byte says what kind of file it is.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "scenarios/framework_import.hpp"
#include "scenarios/yaml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::array<std::string_view, 4> kFiles = {"fuzz.sh", "fuzz.yaml", "fuzz.toml", "fuzz.json"};
  const std::string_view place = kFiles[data[0] % kFiles.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const orrery::ImportedPlan plan = orrery::import_plan(text, place);
    orrery::parse_yaml(orrery::scenario_text(plan, place), "out.yaml");
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput || std::string_view(error.what()).find("fuzz.") != 0)
      std::abort();
  }
  return 0;
}
