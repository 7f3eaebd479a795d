#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace orrery {

Progress::Progress() {
  if (::isatty(STDERR_FILENO) == 0) return;
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Progress::~Progress() { finish(); }

void Progress::stage(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::finish() {
  if (!watcher_.joinable()) return;
  watcher_.request_stop();
  changed_.notify_all();
  watcher_.join();
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::watch(const std::stop_token& stop) {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  for (auto wait = 2000ms;; wait = 500ms) {
    if (changed_.wait_for(lock, stop, wait, [&] { return stop.stop_requested(); })) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    fmt::print(stderr, "\r\033[K{} … {:.0f} s", what_, elapsed.count());
    shown_ = true;
  }
}

}  // namespace orrery
