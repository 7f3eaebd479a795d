#include "cli/arguments.hpp"

#include <CLI/App.hpp>

namespace orrery {

void add_overrides(CLI::App& command, Overrides& overrides) {
  command
      .add_option("--set", overrides,
                  "Replace a value of the file: KEY=VALUE with dots between keys; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

void add_json(CLI::App& command, std::string& file, const std::string& what) {
  command.add_option("--json", file, "Write " + what + " as JSON to this file; - is standard output");
}

}  // namespace orrery
