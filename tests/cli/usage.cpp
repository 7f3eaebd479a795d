// Wrong usage, help, version, completions.

#include <catch2/catch.hpp>

#include <regex>
#include <set>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// Long options of a help text.
std::set<std::string> options_of(const std::string& help) {
  static const std::regex kOption(R"((?:^|\n) +(?:-\w,)?(--[a-z-]+))");
  std::set<std::string> options;
  for (std::sregex_iterator match(help.begin(), help.end(), kOption), end; match != end; ++match) {
    options.insert((*match)[1]);
  }
  return options;
}

const std::vector<std::string> kCommands = {
    "simulate",    "scenario check", "scenario show", "model",      "catalogue",
    "validate",    "graph check",    "graph explain", "graph dot",  "partition",
    "plan import", "memory",         "topo show",     "topo check", "topo convert",
    "topo diff",   "topo rings",     "diagnose",      "fabric",     "placement",
    "collective",  "remap",          "compare",       "calibrate",  "run"};

}  // namespace

TEST_CASE("wrong usage ends with 2 and points at the help", "[cli]") {
  for (const char* arguments :
       {"", "nonsense", "simulate", "simulate --nonsense x", "simulate a b", "scenario",
        "simulate x --threads 0", "simulate x --threads many", "simulate x --engine warp"}) {
    CAPTURE(arguments);
    const Outcome outcome = run_orrery(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains("--help"));
  }
  CHECK_THAT(run_orrery("simulat x").err, Contains("unexpected \"simulat\"; did you mean \"simulate\"?"));
  CHECK_THAT(run_orrery("simulate x --jsn y").err, Contains("did you mean \"--json\"?"));
}

TEST_CASE("help and version go to standard output", "[cli]") {
  const Outcome help = run_orrery("--help");
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  CHECK_THAT(help.out, Contains("Exit codes:"));
  for (const std::string& command : kCommands) {
    CAPTURE(command);
    const Outcome outcome = run_orrery(command + " --help");
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.out, Contains("Example"));
  }
  const std::string project = read(fs::path(ORRERY_SOURCE_DIR) / "CMakeLists.txt");
  std::smatch version;
  REQUIRE(std::regex_search(project, version, std::regex(R"(project\(orrery VERSION ([0-9.]+))")));
  CHECK(run_orrery("--version").out == "orrery " + version[1].str() + "\n");
}

TEST_CASE("every command and option is in every shell's completion", "[cli]") {
  for (const char* shell_name : {"bash", "zsh", "fish"}) {
    const std::string completion =
        read(fs::path(ORRERY_SOURCE_DIR) / "tools/completions" / (std::string("orrery.") + shell_name));
    REQUIRE_FALSE(completion.empty());
    for (const std::string& command : kCommands) {
      for (const std::string& option : options_of(run_orrery(command + " --help").out)) {
        // fish writes long options without their dashes.
        const std::string written = std::string(shell_name) == "fish" ? "-l " + option.substr(2) : option;
        CAPTURE(shell_name, command, option);
        CHECK_THAT(completion, Contains(written));
      }
      CHECK_THAT(completion, Contains(command.substr(command.find(' ') + 1)));
    }
  }
}

TEST_CASE("the bash completion completes", "[cli]") {
  const auto completions = [](const std::string& words, int index) {
    return shell("bash -c 'source tools/completions/orrery.bash; COMP_WORDS=(" + words + "); COMP_CWORD=" +
                 std::to_string(index) + "; _orrery; printf \"%s\\n\" \"${COMPREPLY[@]}\"'")
        .out;
  };
  CHECK(completions("orrery sim", 1) == "simulate\n");
  CHECK(completions("orrery simulate --js", 2) == "--json\n");
  CHECK(completions("orrery scenario ch", 2) == "check\n");
}
