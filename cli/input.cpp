#include "cli/input.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace orrery {

std::string read_file(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) fail(ErrorKind::kInput, "{}: no such file", file);
  if (std::filesystem::is_directory(file, error))
    fail(ErrorKind::kInput, "{}: a folder; expected a file", file);
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad() || !in.is_open()) fail(ErrorKind::kInput, "{}: can't be read", file);
  return bytes;
}

}  // namespace orrery
