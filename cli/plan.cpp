// orrery plan import: settings of training frameworks as scenarios.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "scenarios/framework_import.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, output = "-", model, node;
  std::vector<std::string> variables;
  std::int64_t nodes = 1;
  FrameworkImportOptions import;
};

std::string read_settings(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail(ErrorKind::kInput, "{}: is a folder; expected a settings file", file);
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail(ErrorKind::kInput, "{}: no such file, or it can't be opened", file);
  // One byte more than is read tells a large file from one that just fits; endless ones end here too.
  std::string text((std::size_t{1} << 20) + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

void read_variables(Options& options) {
  for (const std::string& text : options.variables) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      fail(ErrorKind::kUsage, "--var \"{}\": expected NAME=VALUE, such as TP=8", text);
    }
    options.import.variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
}

void read_cluster(Options& options) {
  if (options.node.empty()) return;
  const auto node = catalogue_node(options.node);
  if (!node) {
    fail(ErrorKind::kUsage, "--node {}: not in the catalogue; orrery catalogue lists it", options.node);
  }
  options.import.cluster = fmt::format("{{node: {}, nodes: {}}}", options.node, options.nodes);
  if (options.import.gpus == 0) options.import.gpus = options.nodes * node->gpus;
}

// Paths in a scenario are relative to it.
void read_model(Options& options) {
  if (options.model.empty()) return;
  std::error_code failed;
  const std::filesystem::path from = is_standard_output(options.output)
                                         ? std::filesystem::path(".")
                                         : std::filesystem::absolute(options.output).parent_path();
  const std::filesystem::path relative = std::filesystem::proximate(options.model, from, failed);
  options.import.model = failed ? options.model : relative.string();
}

void import_file(Options& options) {
  expect_writable(options.output);
  read_variables(options);
  read_cluster(options);
  read_model(options);
  const ImportedPlan plan = import_plan(read_settings(options.file), options.file, options.import);
  write_file(options.output, [&](std::ostream& out) { out << scenario_text(plan, options.file); });
  for (const std::string& text : plan.missing)
    fmt::print(stderr, "{}: needed besides: {}\n", options.file, text);
  for (const std::string& text : plan.unknown) fmt::print(stderr, "{}: not known: {}\n", options.file, text);
}

void add_import(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("import", "Turn the settings of a training framework into a scenario");
  const auto options = std::make_shared<Options>();
  std::vector<std::string> formats = import_formats();
  formats.insert(formats.begin(), "auto");
  command->add_option("FILE", options->file, "Launch script or settings file")->required();
  command
      ->add_option("--format", options->import.format, "Whose settings they are, where the file doesn't tell")
      ->check(CLI::IsMember(formats));
  command->add_option("--var", options->variables, "A variable that the file takes from its environment")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  command->add_option("--run", options->import.run, "Which run of a script that starts several, from 1")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--gpus", options->import.gpus, "GPUs in all; dp follows from it")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--node", options->node, "Node of the catalogue, for the scenario's cluster");
  command->add_option("--nodes", options->nodes, "Nodes of the cluster (1)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--model", options->model, "A config.json in place of the file's model");
  command->add_option("--output", options->output, "Write to this file instead of standard output");
  command->footer(
      "FILE is a launch script or YAML of Megatron-LM, YAML of NeMo, Megatron-Bridge or Primus, TOML of "
      "torchtitan,\n"
      "or JSON of DeepSpeed. Every key that is written says which setting it comes from; what was assumed, "
      "what\n"
      "orrery has no counterpart for and what it doesn't know stand below as comments.\n\n"
      "Examples:\n"
      "  orrery plan import train_gpt3_175b.sh --node dgx-a100 --nodes 128 --output gpt3.yaml\n"
      "  orrery plan import llama3_70b.toml --gpus 64\n"
      "  orrery plan import model_config.yaml --var TP=2 --var PP=8\n"
      "  orrery plan import ds_config.json --model config.json --node dgx-h100\n\n"
      "Exit codes: 0 written, 2 wrong usage, 3 a file that can't be read or isn't known, 4 degrees that "
      "don't\n"
      "divide the GPUs");
  command->callback([options] { import_file(*options); });
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Take over plans from the settings of training frameworks");
  command->require_subcommand(1);
  add_import(*command);
}

}  // namespace orrery
