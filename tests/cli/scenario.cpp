// `orrery scenario`, `orrery model`, `orrery catalogue`, and what the pages tell people to type.

#include <catch2/catch.hpp>

#include <sstream>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// What a page tells people to type: the lines that begin with "$ ", each with its here-document.
std::vector<std::string> commands_of(const fs::path& page) {
  std::istringstream lines(read(page));
  std::vector<std::string> commands;
  bool in_document = false;
  for (std::string line; std::getline(lines, line);) {
    if (in_document) {
      commands.back() += "\n" + line + (line == "END" ? "\n" : "");
      in_document = line != "END";
    } else if (line.starts_with("$ ")) {
      commands.push_back(line.substr(2));
      in_document = line.ends_with("<<END");
    }
  }
  return commands;
}

// Runs the commands one after the other in a folder beside the program, as the page says: here a copy with
// links to what it names. All have to succeed.
std::vector<Outcome> run_page(const std::string& page) {
  const Scratch scratch;
  fs::create_directory(scratch / "build");
  fs::create_symlink(ORRERY_BINARY, scratch / "build/orrery");
  fs::copy(fs::path(ORRERY_SOURCE_DIR) / "scenarios", scratch / "scenarios", fs::copy_options::recursive);
  std::vector<Outcome> outcomes;
  for (const std::string& command : commands_of(fs::path(ORRERY_SOURCE_DIR) / page)) {
    CAPTURE(page, command);
    outcomes.push_back(shell("cd " + scratch.folder().string() + " && " + command));
    INFO(outcomes.back().err);
    CHECK(outcomes.back().code == 0);
  }
  return outcomes;
}

}  // namespace

TEST_CASE("scenario check passes every scenario file and the schema agrees", "[cli]") {
  const Outcome outcome = run_orrery("scenario check scenarios/*.yaml");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("llama3-405b-16384xh100.yaml: OK: 405,853,388,800 parameters"));
  const Outcome schema = shell("python3 tests/cli/check_schema.py scenarios/*.yaml");
  INFO(schema.out << schema.err);
  CHECK(schema.code == 0);
}

TEST_CASE("scenario check names every fault of every file", "[cli]") {
  const Scratch scratch;
  const std::string bad = scratch.write("bad.yaml", "name: x\nsequense: 1\n").string();
  const Outcome outcome = run_orrery("scenario check " + bad + " scenarios/llama3-8b-8xh100.yaml no.yaml");
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.out, Contains("llama3-8b-8xh100.yaml: OK"));
  CHECK_THAT(outcome.err, Contains(bad + ":2:1: unknown key \"sequense\"; did you mean \"sequence\"?"));
  CHECK_THAT(outcome.err, Contains("cluster: missing"));
  CHECK_THAT(outcome.err, Contains("no.yaml: no such file"));
  CHECK_THAT(outcome.err, Contains("2 of 3 scenario files can't be used"));
}

TEST_CASE("scenario show writes the plan out", "[cli]") {
  const Outcome outcome =
      run_orrery("scenario show scenarios/llama3-70b-512xh100.yaml --set plan.pp=8 --set plan.dp=8");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("stage 7: layers 71-80 (10), head"));
}

TEST_CASE("models and catalogue are listed", "[cli]") {
  const Outcome model = run_orrery("model scenarios/models/llama-3-8b.json");
  CHECK(model.code == 0);
  CHECK_THAT(model.out, Contains("8,030,261,248"));
  CHECK(run_orrery("model no.json").code == 3);
  CHECK(run_orrery("model scenarios/scenario.schema.json").code == 3);
  const Outcome catalogue = run_orrery("catalogue");
  CHECK(catalogue.code == 0);
  CHECK_THAT(catalogue.out, Contains("dgx-h100"));
  CHECK_THAT(catalogue.out, Contains("6.88 USD per GPU and hour on demand, 2026-11: AWS"));
}

TEST_CASE("the commands of the newcomer's page work as printed", "[cli]") {
  const std::vector<Outcome> outcomes = run_page("docs/user-guide/first-prediction.md");
  CHECK(outcomes.size() >= 4);
  std::string printed;
  for (const Outcome& outcome : outcomes) printed += outcome.out;
  CHECK_THAT(printed, Contains("exit code 4"));  // The plan that the page says doesn't fit.
}

TEST_CASE("the commands that compare two clusters work as printed", "[cli]") {
  const std::vector<Outcome> outcomes = run_page("docs/user-guide/comparing-clusters.md");
  REQUIRE(outcomes.size() >= 7);
  CHECK_THAT(outcomes[0].out, Contains("per million tokens") && !Contains("no price"));
  CHECK_THAT(outcomes[2].out, Contains("a100: ") && Contains("h100: ") && Contains("million USD"));
}

TEST_CASE("the commands of the other pages work as printed", "[cli]") {
  CHECK_FALSE(run_page("docs/user-guide/trust.md").empty());
}
