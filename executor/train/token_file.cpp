#include "executor/train/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace orrery {

TokenFile::TokenFile(const std::filesystem::path& file, int width_bytes)
    : path_(file), width_bytes_(width_bytes) {
  assert(width_bytes == 1 || width_bytes == 2 || width_bytes == 4);
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(ErrorKind::kInput, "{}: can't be read: {}", file.string(), std::strerror(errno));
  struct stat status = {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  bytes_ = regular ? static_cast<std::size_t>(status.st_size) : 0;
  if (bytes_ == 0 || bytes_ % static_cast<std::size_t>(width_bytes) != 0) {
    close(descriptor);
    if (!regular) fail(ErrorKind::kInput, "{}: is no file of tokens", file.string());
    fail(ErrorKind::kInput,
         "{}: has {} bytes; expected tokens of {} bytes each (training.token_bytes says how many)",
         file.string(), bytes_, width_bytes);
  }
  void* const data = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  close(descriptor);
  if (data == MAP_FAILED)
    fail(ErrorKind::kInput, "{}: can't be mapped: {}", file.string(), std::strerror(error));
  data_ = static_cast<const std::byte*>(data);
  size_ = static_cast<std::int64_t>(bytes_) / width_bytes;
}

TokenFile::~TokenFile() { munmap(const_cast<std::byte*>(data_), bytes_); }

std::int64_t TokenFile::operator[](std::int64_t index) const {
  assert(index >= 0 && index < size_);
  std::uint32_t token = 0;  // Little-endian, as the files are.
  std::memcpy(&token, data_ + index * width_bytes_, static_cast<std::size_t>(width_bytes_));
  return token;
}

std::int64_t TokenFile::largest() const {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < size_; ++i) most = std::max(most, (*this)[i]);
  return most;
}

}  // namespace orrery
