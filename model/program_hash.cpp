#include "model/program_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace orrery {

std::string program_hash(const Program& program) {
  Program unplaced = program;
  for (Role& role : unplaced.roles) {
    for (Buffer& buffer : role.buffers) buffer.offset = -1;
  }
  return text_hash(to_text(unplaced));
}

std::string text_hash(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace orrery
