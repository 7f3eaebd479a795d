#include "executor/launch/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <optional>
#include <system_error>

#include "base/error.hpp"

namespace orrery::launch {
namespace {

// SIGINT, SIGTERM and SIGCHLD come as bytes that can be polled for, until destruction.
class SignalInbox {
 public:
  SignalInbox() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken, signal);
    pthread_sigmask(SIG_BLOCK, &taken, &before_);
    // A caller that ignores SIGCHLD would have its children's ends thrown away.
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &plain, &child_before_);
    fd_ = FileDescriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  ~SignalInbox() { restore(); }

  void restore() {  // Also for forked processes.
    sigaction(SIGCHLD, &child_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_.get(); }

  int next_interrupt() {  // 0: none.
    signalfd_siginfo info = {};
    while (read(fd_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

 private:
  sigset_t before_ = {};
  struct sigaction child_before_ = {};
  FileDescriptor fd_;
};

struct Child {
  pid_t pid = -1;
  FileDescriptor says;  // Its standard error.
  std::string line;     // What has come of one.
  bool runs = true;
  bool closed = false;
};

// What a forked process does; never returns.
[[noreturn]] void be_rank(int rank, pid_t parent, pid_t group, const FileDescriptor& says,
                          const StatusPage& page, const RankWork& work) {
  setpgid(0, group);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // It died before it could be asked to take us along.
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(says.get(), STDERR_FILENO);
  int exit_code = static_cast<int>(ErrorKind::kRuntime);
  join_page(page, rank);
  try {
    exit_code = work(rank, page);
  } catch (const Error& error) {
    exit_code = static_cast<int>(error.kind());
    end_run(page, {rank, fmt::format("rank {}: {}", rank, error.what())});
  } catch (const std::exception& error) {
    end_run(page, {rank, fmt::format("rank {}: {}", rank, error.what())});
  }
  leave_page();
  std::cout.flush();
  std::fflush(nullptr);
  _exit(exit_code);
}

class Run {
 public:
  Run(int ranks, const SupervisorOptions& options)
      : options_(options), page_(SharedSegment::anonymous(StatusPage::bytes(ranks)), ranks) {
    result_.ranks.resize(static_cast<std::size_t>(ranks));
    children_.resize(static_cast<std::size_t>(ranks));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  ~Run() {  // Something was thrown while ranks ran.
    if (first_ > 0 && !finished_) killpg(first_, SIGKILL);
    for (int rank = 0; rank < page_.world_size() && !finished_; ++rank) {
      const pid_t pid = child(rank).pid;
      if (pid > 0 && (rank == 0 || child(rank).runs)) waitpid(pid, nullptr, 0);
    }
  }

  RunResult watch(const RankWork& work) {
    start(work);
    while (running() > 0) {
      wait();
      if (const int signal = signals_.next_interrupt(); signal != 0) interrupt(signal);
      for (Child& child : children_) listen(child);
      for (int rank = 0; rank < page_.world_size(); ++rank) look_after(rank);
      judge();
      end_ranks();
    }
    finish();
    return std::move(result_);
  }

 private:
  Child& child(int rank) { return children_[static_cast<std::size_t>(rank)]; }

  int running() const {
    int count = 0;
    for (const Child& one : children_) count += one.runs;
    return count;
  }

  void start(const RankWork& work) {
    // What stands in buffers would be written by every process.
    std::cout.flush();
    std::fflush(nullptr);
    const pid_t parent = getpid();
    for (int rank = 0; rank < page_.world_size(); ++rank) {
      int ends[2] = {-1, -1};
      const int no_pipe = pipe2(ends, O_CLOEXEC);
      child(rank).says = FileDescriptor(ends[0]);
      const FileDescriptor written(ends[1]);
      const pid_t pid = no_pipe == 0 ? fork() : -1;
      if (pid == 0) {
        signals_.restore();
        children_.clear();  // The other ranks' pipes.
        be_rank(rank, parent, first_, written, page_, work);
      }
      if (pid < 0) {
        fail(ErrorKind::kRuntime, "no process for rank {}: {}", rank, std::generic_category().message(errno));
      }
      child(rank).pid = pid;
      if (rank == 0) first_ = pid;
      setpgid(pid, first_);  // Here as well: whoever of us two is first.
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
  }

  void wait() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    for (const Child& one : children_) fds.push_back({one.closed ? -1 : one.says.get(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(options_.watchdog.interval.count()));
  }

  void say(int rank, std::string_view line) {
    if (options_.on_line) {
      options_.on_line(rank, line);
    } else {
      fmt::print(stderr, "[rank {}] {}\n", rank, line);
    }
  }

  void listen(Child& one) {
    const auto rank = static_cast<int>(&one - children_.data());
    std::array<char, 4096> piece;
    while (!one.closed) {
      const ssize_t size = read(one.says.get(), piece.data(), piece.size());
      if (size < 0) return;
      one.closed = size == 0;
      one.line.append(piece.data(), static_cast<std::size_t>(size));
      for (std::size_t end = one.line.find('\n'); end != std::string::npos; end = one.line.find('\n')) {
        say(rank, std::string_view(one.line).substr(0, end));
        one.line.erase(0, end + 1);
      }
    }
  }

  // Notes how a rank ended. The first one stays a zombie: its pid is the group's name until the very end.
  void look_after(int rank) {
    siginfo_t info = {};
    if (!child(rank).runs) return;
    if (waitid(P_PID, static_cast<id_t>(child(rank).pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
    if (info.si_pid == 0) return;
    child(rank).runs = false;
    if (rank != 0) waitpid(child(rank).pid, nullptr, 0);
    RankStatus& status = page_.rank(rank);
    RankExit& exit = result_.ranks[static_cast<std::size_t>(rank)];
    if (status.state != RankState::kAbsent) exit.step = status.step;
    if (status.state != RankState::kAbsent) exit.instruction = status.instruction;
    const std::string where = where_is(status, rank, options_.watchdog.instruction_name);
    status.state = RankState::kDone;
    if (info.si_code == CLD_EXITED) {
      exit.exit_code = info.si_status;
      if (exit.exit_code == 0) return;
      end_run(page_, {rank, fmt::format("rank {} ended with exit code {} {}", rank, exit.exit_code, where)});
      return;
    }
    exit.exit_code = -1;
    exit.signal = info.si_status;
    exit.ended_by_us = signalled_ != 0 && (exit.signal == SIGTERM || exit.signal == SIGKILL);
    end_run(page_, {rank, fmt::format("rank {} was killed by signal {} ({}) {}", rank, exit.signal,
                                      strsignal(exit.signal), where)});
  }

  void judge() {
    if (run_end(page_)) return;
    const std::int64_t now_ns = monotonic_ns();
    if (const std::optional<RunEnd> stuck = find_stuck(page_, now_ns, now_ns, options_.watchdog)) {
      end_run(page_, *stuck);
    }
  }

  void interrupt(int signal) {
    end_run(page_, {-1, fmt::format("interrupted by signal {} ({})", signal, strsignal(signal))});
    result_.interrupted = true;
    send(signalled_ == 0 ? SIGTERM : SIGKILL);
  }

  // First the ranks can end by themselves, then they are asked to, then they are ended.
  void end_ranks() {
    if (!run_end(page_)) return;
    const auto now = std::chrono::steady_clock::now();
    if (!ended_) ended_ = now;
    if (signalled_ == 0 && now >= *ended_ + options_.grace) send(SIGTERM);
    if (signalled_ == SIGTERM && now >= asked_ + options_.kill) send(SIGKILL);
  }

  void send(int signal) {
    killpg(first_, signal);
    signalled_ = signal;
    asked_ = std::chrono::steady_clock::now();
  }

  void finish() {
    killpg(first_, SIGKILL);  // What the ranks may have started and left.
    waitpid(first_, nullptr, 0);
    finished_ = true;
    for (Child& one : children_) {
      listen(one);
      if (!one.line.empty()) say(static_cast<int>(&one - children_.data()), one.line);
    }
    if (const std::optional<RunEnd> end = run_end(page_)) {
      result_.culprit = end->rank;
      result_.message = end->message;
    }
  }

  const SupervisorOptions& options_;
  StatusPage page_;
  SignalInbox signals_;
  std::vector<Child> children_;
  RunResult result_;
  pid_t first_ = 0;  // Rank 0's process, which gives the group its number.
  bool finished_ = false;
  int signalled_ = 0;  // What was sent last to all.
  std::chrono::steady_clock::time_point asked_;
  std::optional<std::chrono::steady_clock::time_point> ended_;
};

}  // namespace

RunResult run_ranks(int ranks, const SupervisorOptions& options, const RankWork& work) {
  if (ranks < 1) fail(ErrorKind::kUsage, "{} ranks; expected at least one", ranks);
  return Run(ranks, options).watch(work);
}

}  // namespace orrery::launch
