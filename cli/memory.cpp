// orrery memory: where the memory of a scenario's ranks goes.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "report/memory_report.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, role;
  Overrides overrides;
  int threads = 0;
  bool all_roles = false, offsets = false;
};

RoleId named_role(const Program& program, const std::string& name) {
  std::vector<std::string> known;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    known.push_back(program.roles[r].name);
    if (known.back() == name) return RoleId(static_cast<std::int64_t>(r));
  }
  fail(ErrorKind::kUsage, "--role {}: the plan has no such role; it has {} to {}{}", name, known.front(),
       known.back(), did_you_mean(name, known));
}

std::vector<RoleId> chosen_roles(const Options& options, const Program& program) {
  if (!options.role.empty()) return {named_role(program, options.role)};
  if (!options.all_roles) return {fullest_role(program)};
  std::vector<RoleId> all;
  for (std::size_t r = 0; r < program.roles.size(); ++r) all.emplace_back(static_cast<std::int64_t>(r));
  return all;
}

void show_memory(const Options& options) {
  if (!options.json.empty()) expect_writable(options.json);
  const Prepared prepared = prepare(options.file, options.overrides);
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const Program program = lower(prepared.graph, prepared.plan, threads);
  std::vector<RoleMemory> roles;
  for (const RoleId role : chosen_roles(options, program)) roles.push_back(role_memory(program, role));
  const Scenario& scenario = prepared.scenario;
  if (!options.json.empty()) {
    write_file(options.json,
               [&](std::ostream& out) { out << to_json(roles, scenario, program, options.offsets); });
  }
  const std::string fault = memory_fault(program, prepared.plan, scenario.cluster.node.gpu);
  if (!fault.empty()) fmt::print(stderr, "warning: {}: {}\n", scenario.file.string(), fault);
  if (is_standard_output(options.json)) return;
  std::string text;
  for (const RoleMemory& role : roles) text += (text.empty() ? "" : "\n") + to_table(role, scenario, program);
  if (roles.size() < program.roles.size() && options.role.empty()) {
    text += fmt::format("\nThe fullest of {} roles; --all-roles or --role {} shows others.\n",
                        program.roles.size(), program.roles.back().name);
  }
  print(text);
}

}  // namespace

void add_memory(CLI::App& app) {
  CLI::App* command = app.add_subcommand("memory", "Show where the memory of a scenario's ranks goes");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  add_json(*command, options->json);
  command->add_flag("--offsets", options->offsets, "With --json: every buffer's place in the memory plan")
      ->needs("--json");
  add_overrides(*command, options->overrides);
  CLI::Option* role = command->add_option("--role", options->role, "Show this role, e.g. stage3");
  command->add_flag("--all-roles", options->all_roles, "Show every role, not the fullest alone")
      ->excludes(role);
  command->add_option("--threads", options->threads, "Threads to lower with; the result doesn't depend on it")
      ->check(CLI::Range(1, 1024));
  command->footer(
      "Prints the peak by category, its course over a step, the memory plan (an offset for each buffer, so "
      "that\n"
      "nothing is allocated while running) against its bound, and what allocators would hold and be asked.\n"
      "Nothing is simulated, and a plan that doesn't fit is shown with a warning.\n\n"
      "Examples:\n"
      "  orrery memory scenarios/llama3-8b-8xh100.yaml\n"
      "  orrery memory run.yaml --set plan.recompute=selective --all-roles\n"
      "  orrery memory run.yaml --json - --offsets | jq '.roles[0].plan'\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 the plan can't work");
  command->callback([options] { show_memory(*options); });
}

}  // namespace orrery
