#pragma once
// The source tree as the tests in this folder read it.

#include <filesystem>
#include <string>
#include <vector>

namespace orrery::house {

inline const std::filesystem::path kRoot = ORRERY_SOURCE_DIR;

std::string read(const std::filesystem::path& file);

// Files below `folder` (relative to the root) with one of the extensions, as relative paths in
// alphabetical order. A folder that doesn't exist has none.
std::vector<std::string> files(const std::string& folder, const std::vector<std::string>& extensions);

// The words of `text`: pieces between blanks, commas and back quotes.
std::vector<std::string> words(const std::string& text);

}  // namespace orrery::house
