#pragma once
// Says on standard error what is being done, once it takes long and somebody watches.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace orrery {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(std::string what);
  void finish();  // Takes the line away; also done by the destructor.

 private:
  void watch(const std::stop_token& stop);

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_;
  bool shown_ = false;
  std::jthread watcher_;  // Last: it uses the others.
};

}  // namespace orrery
