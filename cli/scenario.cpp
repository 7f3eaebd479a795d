// orrery scenario check | show: reads scenario files without simulating them.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "scenarios/show.hpp"

namespace orrery {
namespace {

// Every file is looked at; the first fault's kind becomes the exit code.
void check_files(const std::vector<std::string>& files) {
  std::optional<ErrorKind> worst;
  std::size_t wrong = 0;
  for (const std::string& file : files) {
    try {
      const Prepared prepared = prepare(file, {});
      print(fmt::format("{}: OK: {}\n", file, digest(prepared.scenario, prepared.graph, prepared.plan)));
      for (const std::string& warning : prepared.warnings) {
        fmt::print(stderr, "{}: warning: {}\n", file, warning);
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kRuntime) throw;  // Standard output itself failed.
      fmt::print(stderr, "{}\n", error.what());
      if (!worst) worst = error.kind();
      ++wrong;
    }
  }
  if (worst) fail(*worst, "{} of {} scenario files can't be used", wrong, files.size());
}

void show_file(const std::string& file, const Overrides& overrides) {
  const Prepared prepared = prepare(file, overrides);
  print(normal_form(prepared.scenario, prepared.graph, prepared.plan));
}

void add_check(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("check", "Read scenario files and their plans, and name every fault");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *files, "Scenario files (YAML)")->required();
  command->footer(
      "Example:\n  orrery scenario check scenarios/*.yaml\n\nExit codes: 0 all are fine, 3 bad input file, "
      "4 a plan can't work");
  command->callback([files] { check_files(*files); });
}

void add_show(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("show", "Write out what a scenario comes to: model, cluster, stages, ranks");
  auto file = std::make_shared<std::string>();
  auto overrides = std::make_shared<Overrides>();
  command->add_option("FILE", *file, "Scenario file (YAML)")->required();
  add_overrides(*command, *overrides);
  command->footer("Example:\n  orrery scenario show scenarios/llama3-70b-512xh100.yaml --set plan.pp=8");
  command->callback([file, overrides] { show_file(*file, *overrides); });
}

}  // namespace

void add_scenario(CLI::App& app) {
  CLI::App* command = app.add_subcommand("scenario", "Check scenario files, or show what they come to");
  command->require_subcommand(1);
  add_check(*command);
  add_show(*command);
}

}  // namespace orrery
