#include "tests/cli/process.hpp"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace orrery::cli_test {

std::string small_scenario(int nodes) {
  return "name: small\n"
         "model: {hidden: 1024, layers: 4, heads: 8, ffn: 4096, vocab: 32000}\n"
         "sequence: 1024\n"
         "global_batch: 16\n"
         "cluster: {node: dgx-h100, nodes: " +
         std::to_string(nodes) + "}\nplan: {dp: " + std::to_string(2 * nodes) + ", tp: 2, pp: 2}\n";
}

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

Outcome shell(const std::string& command) {
  const Scratch scratch;
  const std::string line = "cd '" ORRERY_SOURCE_DIR "' && export ORRERY='" ORRERY_BINARY "' && { " + command +
                           "\n} >'" + (scratch / "out").string() + "' 2>'" + (scratch / "err").string() + "'";
  const int status = std::system(line.c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read(scratch / "out");
  outcome.err = read(scratch / "err");
  return outcome;
}

Outcome run_orrery(const std::string& arguments) { return shell("\"$ORRERY\" " + arguments); }

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "orrery-cli-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
  folder_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::filesystem::path Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_ / name) << text;
  return folder_ / name;
}

}  // namespace orrery::cli_test
