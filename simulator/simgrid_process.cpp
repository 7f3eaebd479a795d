#include "simulator/simgrid_process.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

#include "base/error.hpp"

namespace orrery::simgrid_engine {
namespace {

// An answer begins with one of these: 0, or the kind of the Error whose message follows.
constexpr char kResult = 0;

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);  // The parent is gone.
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Leaves without a word to the parent's exit handlers and open files.
[[noreturn]] void be_child(const std::function<std::string()>& work, int answer, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  std::string text(1, kResult);
  try {
    text += work();
  } catch (const Error& error) {
    text = std::string(1, static_cast<char>(error.kind())) + error.what();
  } catch (const std::exception& error) {
    text = std::string(1, static_cast<char>(ErrorKind::kRuntime)) + "SimGrid: " + error.what();
  }
  write_all(answer, text);
  ::_exit(0);
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// Until the child is gone, also when reading its answer failed: a closed pipe ends it.
class Child {
 public:
  explicit Child(const std::function<std::string()>& work) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) no_process();
    std::fflush(nullptr);  // Else the child would have a copy to write.
    const pid_t parent = ::getpid();
    id_ = ::fork();
    if (id_ == 0) {
      ::close(ends[0]);
      be_child(work, ends[1], parent);
    }
    ::close(ends[1]);
    answer_ = ends[0];
    if (id_ < 0) {
      ::close(answer_);
      no_process();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { wait(); }

  std::string answer() const { return read_all(answer_); }

  // How it ended.
  int wait() {
    if (id_ < 0) return status_;
    ::close(answer_);
    while (::waitpid(id_, &status_, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return status_;
  }

 private:
  [[noreturn]] static void no_process() {
    fail(ErrorKind::kRuntime, "can't start a process for SimGrid: {}", std::strerror(errno));
  }

  pid_t id_ = -1;
  int answer_ = -1;
  int status_ = 0;
};

}  // namespace

std::string run_in_child(const std::function<std::string()>& work) {
  Child child(work);
  std::string text = child.answer();
  const int status = child.wait();
  if (WIFSIGNALED(status))
    fail(ErrorKind::kRuntime, "the SimGrid engine's process was ended by signal {} ({})", WTERMSIG(status),
         ::strsignal(WTERMSIG(status)));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.empty())
    fail(ErrorKind::kRuntime, "the SimGrid engine's process ended with {} and no answer",
         WEXITSTATUS(status));
  if (text.front() != kResult) throw Error(static_cast<ErrorKind>(text.front()), text.substr(1));
  return text.substr(1);
}

}  // namespace orrery::simgrid_engine
