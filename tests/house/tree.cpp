#include "tests/house/tree.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace orrery::house {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("can't read " + file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> files(const std::string& folder, const std::vector<std::string>& extensions) {
  std::vector<std::string> found;
  if (!std::filesystem::is_directory(kRoot / folder)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
    const auto extension = entry.path().extension().string();
    if (entry.is_regular_file() &&
        std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) {
      found.push_back(entry.path().lexically_relative(kRoot).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> words(const std::string& text) {
  std::string blanks = text;
  std::replace_if(blanks.begin(), blanks.end(), [](char c) { return c == ',' || c == '`'; }, ' ');
  std::istringstream in(blanks);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

}  // namespace orrery::house
