#pragma once
// The small files in tests/data/topo, the published ones in the data folder, and what was noted about them.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery::topo_test {

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path own_folder() {
  return std::filesystem::path(ORRERY_SOURCE_DIR) / "tests" / "data" / "topo";
}

inline std::filesystem::path published_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return std::filesystem::path(given) / "topo";
  return std::filesystem::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data" / "topo";
}

// The first note of this kind whose text holds `words`; nullptr: there is none.
inline const ImportNote* find_note(const std::vector<ImportNote>& notes, ImportNote::Kind kind,
                                   std::string_view words) {
  const auto found = std::ranges::find_if(notes, [&](const ImportNote& note) {
    return note.kind == kind && note.text.find(words) != std::string::npos;
  });
  return found == notes.end() ? nullptr : &*found;
}

}  // namespace orrery::topo_test
