#pragma once
// The one exception type. Its message names the place, what was expected and how to mend it; its
// kind says which exit code the command line gives it. Broken promises inside the program are
// asserts, not Errors.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace orrery {

enum class ErrorKind {
  kUsage = 2,         // Wrong command line.
  kInput = 3,         // A file that can't be read or says something impossible.
  kInfeasible = 4,    // The plan can't work: out of memory, indivisible degrees.
  kRuntime = 5,       // Failed while running.
  kDisagreement = 6,  // Two answers that should agree don't.
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace orrery
