// Whatever bytes come in, read_chakra gives a Program that prints and reads back to itself, or throws
// Error(kInput); verify answers for either.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "model/import_chakra.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  orrery::ChakraOptions options;
  options.ranks = 4;
  try {
    const orrery::ChakraImport made =
        orrery::read_chakra({{"fuzz.et", {reinterpret_cast<const char*>(data), size}}}, options);
    orrery::verify(made.program);
    if (!(orrery::parse_program(orrery::to_text(made.program)) == made.program)) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
