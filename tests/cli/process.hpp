#pragma once
// Runs the built program as a user would.

#include <filesystem>
#include <string>

namespace orrery::cli_test {

struct Outcome {
  int code = -1;
  std::string out, err;
};

// A scenario that simulates at once: 4 layers, tensor, pipeline and data parallelism on as many DGX H100 as
// asked for, with all their GPUs.
std::string small_scenario(int nodes);

// `arguments` is shell text; the working folder is the repository's root.
Outcome run_orrery(const std::string& arguments);
// Any shell command; "$ORRERY" is the program.
Outcome shell(const std::string& command);

std::string read(const std::filesystem::path& file);

// A folder of its own, removed at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  std::filesystem::path write(const std::string& name, const std::string& text) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace orrery::cli_test
