#include "topology/import/hwloc_trial.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.hpp"

namespace orrery {
namespace {

// Processor time, since a starved machine is no fault of the file's.
void limit(int cpu_seconds) {
  const auto seconds = static_cast<rlim_t>(cpu_seconds);
  const rlimit time{seconds, seconds}, core{0, 0};
  ::setrlimit(RLIMIT_CPU, &time);
  ::setrlimit(RLIMIT_CORE, &core);
}

// Whoever catches crashes in this program (sanitizers, tests) shall not take the child's for its own.
void reset_signals() {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}) ::signal(number, SIG_DFL);
}

[[noreturn]] void be_child(const std::function<void()>& work, int cpu_seconds) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  reset_signals();
  limit(cpu_seconds);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  try {
    work();
  } catch (const std::exception&) {  // The parent meets the same one.
  }
  ::_exit(0);
}

}  // namespace

std::optional<std::string> fault_of_trial(const std::function<void()>& work, int cpu_seconds) {
  std::fflush(nullptr);  // Else the child would have a copy to write.
  const pid_t child = ::fork();
  if (child < 0)
    fail(ErrorKind::kRuntime, "can't start a process to try a file in: {}", std::strerror(errno));
  if (child == 0) be_child(work, cpu_seconds);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (!WIFSIGNALED(status)) return fmt::format("ends with {}", WEXITSTATUS(status));
  // The hard limit kills.
  if (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU)
    return fmt::format("isn't done after {} s", cpu_seconds);
  return fmt::format("is ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

}  // namespace orrery
