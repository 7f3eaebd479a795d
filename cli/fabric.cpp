// orrery fabric: what routing makes of the network between nodes, side by side.

#include <CLI/App.hpp>
#include <memory>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "report/fabric_report.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json;
  Overrides overrides;
};

void look_at_fabric(const Options& options) {
  Progress progress;
  progress.stage("reading");
  const Scenario scenario = load_scenario(options.file, options.overrides);
  if (!options.json.empty()) expect_writable(options.json);
  progress.stage("sharing cables");
  const std::vector<FabricRow> rows = study_fabric(scenario.cluster, scenario.traffic);
  std::vector<DepthRow> depths;
  if (scenario.cluster.nodes > scenario.cluster.nodes_per_nvlink_domain)
    depths = study_depth(scenario.cluster, scenario.traffic);
  progress.finish();
  if (!options.json.empty()) {
    write_file(options.json, [&](std::ostream& out) { out << to_json(rows, depths, scenario); });
  }
  if (!is_standard_output(options.json)) print(to_table(rows, depths, scenario));
}

}  // namespace

void add_fabric(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "fabric", "Compare ECMP, adaptive routing and queue feedback on the network between nodes");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  add_json(*command, options->json);
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery fabric scenarios/fabric-ecmp.yaml\n"
      "  orrery fabric scenarios/fabric-ecmp.yaml --set cluster.fabric.oversubscription=2\n"
      "  orrery fabric run.yaml --set 'traffic={jobs: 4, placement: interleaved}' --json -\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 too many flows, 5 failed while "
      "running\n"
      "or writing");
  command->callback([options] { look_at_fabric(*options); });
}

}  // namespace orrery
