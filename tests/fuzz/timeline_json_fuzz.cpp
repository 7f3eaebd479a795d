// Whatever is written in a timeline's file, reading it ends in a record that is written and read back, or in
// an input Error with a place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "model/timeline_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  orrery::TimelineRecord record;
  try {
    record = orrery::parse_timeline_json(text, "fuzz.json");
  } catch (const orrery::Error& error) {
    const std::string_view message = error.what();
    if (error.kind() != orrery::ErrorKind::kInput || !message.starts_with("fuzz.json:")) std::abort();
    return 0;
  }
  if (orrery::parse_timeline_json(orrery::to_json(record), "written.json") != record) std::abort();
  return 0;
}
