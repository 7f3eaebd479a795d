#include "cli/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace orrery {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_to_write(const fs::path& file, std::string_view reason) {
  fail(ErrorKind::kRuntime, "can't write {}: {}", file.string(), reason);
}

std::string reason_of(int error) { return error == 0 ? "the disk may be full" : std::strerror(error); }

void write_stream(const fs::path& shown, const fs::path& file,
                  const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  if (!stream) fail_to_write(shown, reason_of(errno));
  write(stream);
  stream.close();
  if (!stream) fail_to_write(shown, reason_of(errno));
}

// Devices and pipes are written in place: there is nothing to replace.
bool is_special(const fs::path& file) {
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// Removes the file unless it has been moved away.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

void print(std::string_view text) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return;
  if (errno == EPIPE) throw BrokenPipe();
  fail(ErrorKind::kRuntime, "can't write to standard output: {}", reason_of(errno));
}

void write_file(const fs::path& file, const std::function<void(std::ostream&)>& write) {
  if (is_standard_output(file)) {
    std::ostringstream text;
    write(text);
    print(text.str());
    return;
  }
  expect_writable(file);
  if (is_special(file)) {
    write_stream(file, file, write);
    return;
  }
  const fs::path target = fs::weakly_canonical(file);  // A link's target is replaced, not the link.
  const Temporary temporary{fs::path(target.string() + fmt::format(".{}.tmp", ::getpid()))};
  write_stream(file, temporary.path, write);
  std::error_code error;
  fs::rename(temporary.path, target, error);
  if (error) fail_to_write(file, error.message());
}

void expect_writable(const fs::path& file) {
  if (is_standard_output(file)) return;
  std::error_code error;
  if (fs::is_directory(file, error)) fail_to_write(file, "it is a folder");
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (!fs::is_directory(folder, error)) {
    fail_to_write(file, fmt::format("there is no folder {}", folder.string()));
  }
  const fs::path touched = fs::exists(file, error) && is_special(file) ? file : folder;
  if (::access(touched.c_str(), W_OK) != 0) fail_to_write(file, std::strerror(errno));
}

}  // namespace orrery
