// Memory shared between processes, and that nothing of it is left behind.
#include <catch2/catch.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <set>

#include "executor/launch/shared_segment.hpp"
#include "executor/launch/status_page.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;
using test::comes_true;
using test::free_port;
using test::in_processes;
using test::member;

std::set<std::string> segments() {
  std::set<std::string> names;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (std::string_view(entry->d_name).starts_with("orrery-")) names.insert(entry->d_name);
  }
  closedir(folder);
  return names;
}

std::atomic<int>& counter(const SharedSegment& segment) {
  return *reinterpret_cast<std::atomic<int>*>(segment.bytes().data());
}

std::string unique_name() { return fmt::format("orrery-test-{}", getpid()); }

}  // namespace

TEST_CASE("forked processes share anonymous memory", "[launch]") {
  const SharedSegment segment = SharedSegment::anonymous(4096);
  CHECK(counter(segment) == 0);
  in_processes(3, [&](int rank) {
    counter(segment) += rank + 1;
    return std::string();
  });
  CHECK(counter(segment) == 1 + 2 + 3);
}

TEST_CASE("a segment with a name is found, once, and goes with its creator", "[launch]") {
  const std::string name = unique_name();
  {
    const SharedSegment created = SharedSegment::create(name, 100);
    const SharedSegment opened = SharedSegment::open(name, 100);
    counter(created) = 7;
    CHECK(counter(opened) == 7);
    CHECK_THROWS_WITH(SharedSegment::create(name, 100),
                      fmt::format("shared memory /dev/shm/{} can't be created: File exists", name));
    CHECK_THROWS_WITH(SharedSegment::open(name, 99),
                      fmt::format("shared memory /dev/shm/{} has 100 bytes; expected 99", name));
  }
  CHECK(segments().count(name) == 0);
  CHECK_THROWS_WITH(
      SharedSegment::open(name, 100),
      fmt::format("shared memory /dev/shm/{} can't be opened: No such file or directory", name));
}

TEST_CASE("a full /dev/shm is an error and leaves nothing", "[launch]") {
  // In a mount namespace of its own, with a /dev/shm of 64 KiB.
  const auto said = in_processes(1, [&](int) -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) {
      return std::string("skipped: no mount namespace: ") + std::strerror(errno);
    }
    const SharedSegment fits = SharedSegment::create("orrery-fits", 32 << 10);
    try {
      SharedSegment::create("orrery-large", 64 << 10);
    } catch (const Error& error) {
      return fmt::format("{} {}", segments().size(), error.what());
    }
    return "fits";
  });
  if (said[0].starts_with("skipped")) {
    std::cout << said[0] << "\n";
    return;
  }
  CHECK(said[0] ==
        "1 shared memory of 64.0 KiB can't be had: No space left on device (32.0 KiB of /dev/shm are free); "
        "remount it "
        "with a larger size=, or give the container a larger --shm-size");
}

TEST_CASE("ranks launched by others share a segment that has no name any more", "[launch]") {
  const std::set<std::string> before = segments();
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    Rendezvous rendezvous(member(rank, 4, "127.0.0.1", port));
    HostSegment shared = share_on_host(rendezvous, 4096);
    rendezvous.barrier();
    const std::size_t names = segments().size();
    counter(shared.segment) += 1 << rank;
    rendezvous.barrier();
    return fmt::format("{} {} {}", counter(shared.segment).load(), shared.ranks.size(), names);
  });
  for (const std::string& text : said)
    CHECK(text == fmt::format("15 4 {}", before.size()));  // 1 + 2 + 4 + 8.
  CHECK(segments() == before);
}

TEST_CASE("killed ranks leave no segment", "[launch]") {
  const std::set<std::string> before = segments();
  const std::uint16_t port = free_port("127.0.0.1");
  const SharedSegment ready = SharedSegment::anonymous(4096);
  std::vector<test::Process> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(test::start([&, rank] {
      Rendezvous rendezvous(member(rank, 3, "127.0.0.1", port));
      const HostSegment shared = share_on_host(rendezvous, 4096);
      ++counter(ready);
      while (true) std::this_thread::sleep_for(1s);
      return std::string();
    }));
  }
  CHECK(comes_true([&] { return counter(ready) == 3; }));
  for (const auto& rank : ranks) kill(rank.pid, SIGKILL);
  for (const auto& rank : ranks) rank.wait();
  CHECK(segments() == before);
}

TEST_CASE("one rank's failure to share is everybody's", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(2, [&](int rank) {
    Rendezvous rendezvous(member(rank, 2, "127.0.0.1", port));
    share_on_host(rendezvous, std::size_t{1} << 50);  // A pebibyte.
    return std::string("shared");
  });
  for (const std::string& text : said) {
    CAPTURE(text);
    CHECK(text.starts_with("rank 0: shared memory of 1024.00 TiB can't be had: "));
  }
}

TEST_CASE("names that killed runs left are taken away after an hour", "[launch]") {
  const std::string old = unique_name() + "-old", young = unique_name() + "-young";
  for (const std::string& name : {old, young}) {
    const FileDescriptor fd(open(("/dev/shm/" + name).c_str(), O_CREAT | O_RDWR, 0600));
    REQUIRE(fd.valid());
  }
  const timespec times[2] = {{time(nullptr) - 3700, 0}, {time(nullptr) - 3700, 0}};
  REQUIRE(utimensat(AT_FDCWD, ("/dev/shm/" + old).c_str(), times, 0) == 0);
  Rendezvous alone(member(0, 1, "127.0.0.1", 1));
  share_on_host(alone, 4096);
  CHECK(segments().count(old) == 0);
  CHECK(segments().count(young) == 1);
  unlink(("/dev/shm/" + young).c_str());
}

}  // namespace orrery::launch
