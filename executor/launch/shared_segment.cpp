#include "executor/launch/shared_segment.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace orrery::launch {
namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr std::string_view kPrefix = "orrery-";
// A name lives for milliseconds, or until the deadline of an exchange; an hour is far beyond both.
constexpr time_t kStale_s = 3600;

std::string error_text(int code) { return std::generic_category().message(code); }

// 0 for the size is the caller's mistake: mmap refuses it.
std::byte* map(std::size_t bytes, int fd, const std::string& what) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) {
    fail(ErrorKind::kRuntime, "{} of {} can't be mapped: {}", what, format_bytes(static_cast<double>(bytes)),
         error_text(errno));
  }
  return static_cast<std::byte*>(data);
}

std::string free_space() {
  struct statvfs info = {};
  if (statvfs(kFolder, &info) != 0) return "an unknown amount";
  return format_bytes(static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize));
}

void remove_stale() {
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    struct stat info = {};
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool ours = S_ISREG(info.st_mode) && info.st_uid == geteuid();
    if (ours && info.st_mtime + kStale_s < time(nullptr)) unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
}

// The same for processes that see the same /dev/shm: this start of this kernel, and the mounted file system.
std::string folder_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat info = {};
  stat(kFolder, &info);
  return fmt::format("{}/{}", boot, info.st_dev);
}

std::string new_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) fail(ErrorKind::kRuntime, "no random numbers");
  return fmt::format("{}{:016x}", kPrefix, number);
}

// Passes on what one rank couldn't do, so that all throw and nobody waits for it.
template <class Work>
std::string fault_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Takes a name away at the end, also one that another rank made and was killed before it could.
struct NameRemoval {
  explicit NameRemoval(std::string removed) : name(std::move(removed)) {}
  NameRemoval(const NameRemoval&) = delete;
  NameRemoval& operator=(const NameRemoval&) = delete;
  ~NameRemoval() { shm_unlink(name.c_str()); }

  std::string name;
};

void throw_first_fault(const std::vector<std::string>& faults) {
  for (std::size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) fail(ErrorKind::kRuntime, "rank {}: {}", rank, faults[rank]);
  }
}

}  // namespace

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      name_(std::move(other.name_)) {
  other.name_.clear();
}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  return *this;
}

SharedSegment::~SharedSegment() {
  unlink();
  if (data_ != nullptr) munmap(data_, size_);
}

SharedSegment SharedSegment::anonymous(std::size_t bytes) {
  return SharedSegment(map(bytes, -1, "memory shared with forked ranks"), bytes, "");
}

SharedSegment SharedSegment::create(const std::string& name, std::size_t bytes) {
  const FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    fail(ErrorKind::kRuntime, "shared memory {}/{} can't be created: {}", kFolder, name, error_text(errno));
  }
  SharedSegment result(nullptr, 0, name);  // From here on, whatever is thrown takes the name away.
  int fault = 0;
  do {
    fault = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  } while (fault == EINTR);
  if (fault != 0) {
    fail(ErrorKind::kRuntime,
         "shared memory of {} can't be had: {} ({} of {} are free); remount it with a larger size=, or give "
         "the "
         "container a larger --shm-size",
         format_bytes(static_cast<double>(bytes)), error_text(fault), free_space(), kFolder);
  }
  result.data_ = map(bytes, fd.get(), name);
  result.size_ = bytes;
  return result;
}

SharedSegment SharedSegment::open(const std::string& name, std::size_t bytes) {
  const FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat info = {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    fail(ErrorKind::kRuntime, "shared memory {}/{} can't be opened: {}", kFolder, name, error_text(errno));
  }
  if (info.st_size != static_cast<off_t>(bytes)) {
    fail(ErrorKind::kRuntime, "shared memory {}/{} has {} bytes; expected {}", kFolder, name, info.st_size,
         bytes);
  }
  return SharedSegment(map(bytes, fd.get(), name), bytes, "");
}

void SharedSegment::unlink() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  name_.clear();
}

HostSegment share_on_host(Rendezvous& rendezvous, std::size_t bytes) {
  const std::string here = folder_identity();
  const std::vector<std::string> folders = rendezvous.all_gather(here);
  // All know a name before it exists.
  const std::vector<std::string> names = rendezvous.all_gather(new_name());
  HostSegment result;
  for (int rank = 0; rank < rendezvous.world_size(); ++rank) {
    if (folders[static_cast<std::size_t>(rank)] == here) result.ranks.push_back(rank);
  }
  const int creator = result.ranks.front();
  const bool creates = creator == rendezvous.rank();
  const NameRemoval removal(names[static_cast<std::size_t>(creator)]);
  throw_first_fault(rendezvous.all_gather(fault_of([&] {
    if (creates) remove_stale();
    if (creates) result.segment = SharedSegment::create(removal.name, bytes);
  })));
  throw_first_fault(rendezvous.all_gather(fault_of([&] {
    if (!creates) result.segment = SharedSegment::open(removal.name, bytes);
  })));
  result.segment.unlink();
  return result;
}

}  // namespace orrery::launch
