// orrery graph check | explain | dot: graphs and traces of other tools, and of our own models.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/graph_load.hpp"
#include "cli/graph_report.hpp"
#include "cli/output.hpp"
#include "model/graph_dot.hpp"

namespace orrery {
namespace {

struct Options {
  GraphRequest request;
  std::vector<std::string> dims;
  std::string json, output = "-";
  bool blocks = false;
};

constexpr const char* kFormats =
    "FILE is a scenario, a Hugging Face config.json, a graph of tools/export-fx, the text of a "
    "torch.fx graph, ONNX, or a Chakra trace.";

// "seq_len=128"; the last = counts, symbols may have one in them.
void read_dims(Options& options) {
  for (const std::string& text : options.dims) {
    const std::size_t equals = text.rfind('=');
    std::int64_t size = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = equals == std::string::npos
                            ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                            : std::from_chars(text.data() + equals + 1, end, size);
    if (equals == 0 || parsed.ec != std::errc() || parsed.ptr != end || size < 1) {
      fail(ErrorKind::kUsage,
           "--dim \"{}\": expected NAME=SIZE with a size of at least 1, such as seq_len=128", text);
    }
    options.request.import.dims[text.substr(0, equals)] = size;
  }
}

LoadedGraph load(Options& options) {
  read_dims(options);
  LoadedGraph loaded = load_graph(options.request);
  // Those of a trace say themselves which rank's file they are about.
  const std::string place = loaded.is_trace() ? "" : options.request.files[0] + ": ";
  for (const std::string& note : loaded.notes) fmt::print(stderr, "{}note: {}\n", place, note);
  return loaded;
}

void check(Options& options) {
  if (!options.json.empty()) expect_writable(options.json);
  const LoadedGraph loaded = load(options);
  const std::string& file = options.request.files[0];
  const std::vector<std::string> faults = faults_of(loaded);
  if (!options.json.empty()) {
    const nlohmann::ordered_json root = {{"file", file},
                                         {"format", to_string(loaded.format)},
                                         {"ok", faults.empty()},
                                         {"faults", faults},
                                         {"notes", loaded.notes}};
    write_file(options.json, [&](std::ostream& out) {
      out << root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    });
  }
  for (const std::string& fault : faults) fmt::print(stderr, "{}: {}\n", file, fault);
  if (!faults.empty())
    fail(ErrorKind::kInput, "{}: {} {}", file, faults.size(), faults.size() == 1 ? "fault" : "faults");
  if (is_standard_output(options.json)) return;
  print(loaded.is_trace()
            ? fmt::format("{}: OK: {}, {} ranks\n", file, to_string(loaded.format),
                          loaded.trace.program.world_size())
            : fmt::format("{}: OK: {}, {} ops\n", file, to_string(loaded.format), loaded.graph.ops.size()));
}

void explain(Options& options) {
  if (!options.json.empty()) expect_writable(options.json);
  const LoadedGraph loaded = load(options);
  const std::string& file = options.request.files[0];
  for (const std::string& fault : faults_of(loaded)) fmt::print(stderr, "{}: warning: {}\n", file, fault);
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) { out << explain_json(loaded, file); });
  if (!is_standard_output(options.json)) print(explain_text(loaded, file));
}

void dot(Options& options) {
  expect_writable(options.output);
  const LoadedGraph loaded = load(options);
  if (loaded.is_trace()) {
    fail(ErrorKind::kInput, "{}: a trace says what ranks did, not what is computed; dot draws graphs",
         options.request.files[0]);
  }
  write_file(options.output, [&](std::ostream& out) { out << to_dot(loaded.graph, {options.blocks}); });
}

CLI::App* add_action(CLI::App& parent, const char* name, const char* what,
                     const std::shared_ptr<Options>& options, void (*run)(Options&)) {
  CLI::App* command = parent.add_subcommand(name, what);
  GraphRequest& request = options->request;
  command->add_option("FILE", request.files, "The file; of Chakra, one of each rank")->required();
  command->add_option("--format", request.format, "What FILE is, where its content doesn't tell")
      ->check(CLI::IsMember({"auto", "scenario", "hf", "fx", "fx-text", "onnx", "chakra"}));
  command->add_option("--dim", options->dims, "Size of a symbolic dimension (fx, onnx)")
      ->type_name("NAME=SIZE")
      ->expected(1)
      ->take_all();
  command->add_option("--batch", request.batch, "Sequences a step (scenario, hf)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--sequence", request.sequence, "Tokens a sequence (scenario, hf)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--ranks", request.ranks, "Ranks that do what the one trace says (chakra)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--groups", request.groups, "JSON with the ranks of the process groups (chakra)");
  command->callback([options, run] { run(*options); });
  return command;
}

}  // namespace

void add_graph(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("graph", "Check, explain or draw the graph of a model, also of other tools");
  command->require_subcommand(1);
  const auto options = [] { return std::make_shared<Options>(); };

  const auto checked = options();
  CLI::App* action =
      add_action(*command, "check", "Name everything that is wrong with a graph or trace", checked, check);
  add_json(*action, checked->json, "the faults");
  action->footer(std::string(kFormats) +
                 "\n\nExamples:\n  orrery graph check model.onnx --dim batch_size=1 --dim seq_len=2048\n"
                 "  orrery graph check trace.0.et trace.1.et --groups groups.json\n\n"
                 "Exit codes: 0 sound, 2 wrong usage, 3 faults or a file that can't be read");

  const auto told = options();
  action = add_action(*command, "explain", "Show what a graph or trace comes to, by kind of op and by block",
                      told, explain);
  add_json(*action, told->json, "it");
  action->footer(std::string(kFormats) +
                 "\n\nExamples:\n  orrery graph explain tiny-gpt.json\n"
                 "  orrery graph explain scenarios/models/llama-3-8b.json --batch 1 --sequence 8192");

  const auto drawn = options();
  action = add_action(*command, "dot", "Draw a graph for Graphviz", drawn, dot);
  action->add_flag("--blocks", drawn->blocks, "One node per block and phase");
  action->add_option("--output", drawn->output, "Write to this file instead of standard output");
  action->footer(std::string(kFormats) +
                 "\n\nExample:\n  orrery graph dot model.onnx --blocks | dot -Tsvg > model.svg");
}

}  // namespace orrery
