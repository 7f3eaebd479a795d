// orrery diagnose: what is wrong with a machine or a job, from the files that people have.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/topology_load.hpp"
#include "report/diagnose.hpp"
#include "report/topology_report.hpp"

namespace orrery {

void add_diagnose(CLI::App& app) {
  struct Options {
    TopologyRequest request;
    std::string json;
    bool quiet = false;
  };
  CLI::App* command =
      app.add_subcommand("diagnose", "Find what holds a machine or a job back, dearest first");
  const auto options = std::make_shared<Options>();
  add_topology_options(*command, options->request);
  add_json(*command, options->json, "the findings");
  command->add_flag("--quiet", options->quiet, "Leave out the readers' notes");
  command->footer(
      "Examples:\n"
      "  orrery diagnose matrix.txt job.log\n"
      "  orrery diagnose host*/topology.xml --json -\n"
      "  nvidia-smi topo -m | orrery diagnose -\n\n"
      "Exit codes: 0 looked through (also with findings), 2 wrong usage, 3 a file that can't be read");
  command->callback([options] {
    const std::vector<TopologyFile> files = load_topologies(options->request);
    if (!options->quiet)
      for (const TopologyFile& file : files) fmt::print(stderr, "{}", to_table(file.notes, file.name));
    const std::vector<Finding> findings = diagnose(files);
    if (!options->json.empty())
      write_file(options->json, [&](std::ostream& out) { out << to_json(findings); });
    if (!is_standard_output(options->json)) print(to_table(findings));
  });
}

}  // namespace orrery
