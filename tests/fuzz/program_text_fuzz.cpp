// Whatever text comes in, parse_program either gives a Program that prints and reads back to itself, or
// throws Error(kInput); verify answers for either.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "model/program.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A few characters can ask for a million ranks, which is allowed but slow to print: not what is looked for.
  constexpr std::int32_t kRanks = 10'000;
  try {
    const orrery::Program program = orrery::parse_program({reinterpret_cast<const char*>(data), size});
    if (program.world_size() > kRanks) return 0;
    orrery::verify(program);
    const std::string text = orrery::to_text(program);
    const orrery::Program again = orrery::parse_program(text);
    if (!(again == program) || orrery::to_text(again) != text) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
