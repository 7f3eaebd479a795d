#pragma once
// The published logs and tables in the data folder, and notes looked up by their words.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery::log_test {

inline std::filesystem::path data_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return given;
  return std::filesystem::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data";
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline bool says(const std::vector<ImportNote>& notes, std::string_view words) {
  return std::ranges::any_of(
      notes, [&](const ImportNote& note) { return note.text.find(words) != std::string::npos; });
}

inline bool says_at(const std::vector<ImportNote>& notes, std::int32_t line, std::string_view words) {
  return std::ranges::any_of(notes, [&](const ImportNote& note) {
    return note.line == line && note.text.find(words) != std::string::npos;
  });
}

}  // namespace orrery::log_test
