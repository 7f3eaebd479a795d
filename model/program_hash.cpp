#include "model/program_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace orrery {

std::string program_hash(const Program& program) {
  const std::string text = to_text(program);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace orrery
