#pragma once
// Real processes for tests of what ranks do to each other. None outlives its test by more than 30 s.

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "executor/launch/control.hpp"
#include "executor/launch/membership.hpp"

namespace orrery::launch::test {

struct Process {
  pid_t pid = -1;
  int output = -1;

  // Its text, when it has ended; "" where it was killed.
  std::string wait() const {
    std::string text;
    char piece[4096];
    for (ssize_t size = read(output, piece, sizeof piece); size > 0;
         size = read(output, piece, sizeof piece)) {
      text.append(piece, static_cast<std::size_t>(size));
    }
    close(output);
    waitpid(pid, nullptr, 0);
    return text;
  }
};

// A process whose text is what `work` returns, or what the Error says that it throws.
inline Process start(const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorKind::kRuntime, "no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    close(ends[0]);
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t size = write(ends[1], text.data() + done, text.size() - done);
      if (size <= 0) _exit(1);
      done += static_cast<std::size_t>(size);
    }
    _exit(0);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

// What n processes say, by rank.
inline std::vector<std::string> in_processes(int count, const std::function<std::string(int)>& work) {
  std::vector<Process> processes;
  for (int rank = 0; rank < count; ++rank) processes.push_back(start([&] { return work(rank); }));
  std::vector<std::string> texts;
  for (const Process& process : processes) texts.push_back(process.wait());
  return texts;
}

inline bool exists(pid_t pid) { return access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0; }

// Nobody waits longer than that for something that has to come.
template <class Condition>
bool comes_true(const Condition& condition) {
  for (int turn = 0; turn < 1000; ++turn) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

inline std::uint16_t free_port(const std::string& host) { return listen_at(host, 0).port; }

inline Membership member(int rank, int world_size, const std::string& host, std::uint16_t port) {
  Membership membership;
  membership.rank = membership.local_rank = rank;
  membership.world_size = membership.local_size = world_size;
  membership.coordinator_host = host;
  membership.coordinator_port = port;
  membership.job_id = "a test";
  return membership;
}

}  // namespace orrery::launch::test
