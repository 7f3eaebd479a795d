// orrery: arguments in, exit codes out.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"

namespace {

constexpr int kUsage = static_cast<int>(orrery::ErrorKind::kUsage);
constexpr int kRuntime = static_cast<int>(orrery::ErrorKind::kRuntime);

constexpr const char* kFooter =
    "Examples:\n"
    "  orrery simulate scenarios/llama3-8b-8xh100.yaml\n"
    "  orrery simulate scenarios/llama3-70b-512xh100.yaml --set plan.pp=8 --json - --trace trace.json\n"
    "  orrery memory scenarios/llama3-8b-8xh100.yaml\n"
    "  orrery run scenarios/host-dp2.yaml\n"
    "  orrery scenario check scenarios/*.yaml\n"
    "  orrery model config.json\n"
    "  orrery validate training.csv\n"
    "  orrery graph explain model.onnx --dim batch_size=1 --dim seq_len=2048\n"
    "  orrery fabric scenarios/fabric-ecmp.yaml\n"
    "  orrery diagnose matrix.txt job.log\n"
    "  orrery plan import train_gpt3.sh --node dgx-h100 --nodes 128\n"
    "  orrery remap scenarios/faults-node-lost.yaml\n"
    "  orrery compare predicted.json measured.json\n\n"
    "Exit codes:\n"
    "  0 fine   2 wrong usage   3 bad input file   4 the plan can't work (out of memory, indivisible)\n"
    "  5 failed while running   6 disagreement found";

// The command whose arguments were wrong: the innermost one that was named.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

// The first word that nobody expected, and what may have been meant by it.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return "";
  const CLI::App& command = innermost(app);
  std::vector<std::string> known;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(sub->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  return fmt::format("unexpected \"{}\"{}", words.front(), orrery::did_you_mean(words.front(), known));
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::string word = unexpected(app);
  fmt::print(stderr, "orrery: {}\nSee {} --help\n", word.empty() ? error.what() : word,
             full_name(innermost(app)));
  return kUsage;
}

int run(int argc, const char* const* argv) {
  CLI::App app("orrery: predicts how a training plan runs on a GPU cluster", "orrery");
  app.set_version_flag("--version", fmt::format("orrery {}", orrery::kVersion), "Print the version and exit");
  app.set_help_all_flag("--help-all", "Print the help of every command and exit");
  app.footer(kFooter);
  app.require_subcommand(1);
  orrery::add_simulate(app);
  orrery::add_memory(app);
  orrery::add_scenario(app);
  orrery::add_model(app);
  orrery::add_catalogue(app);
  orrery::add_validate(app);
  orrery::add_graph(app);
  orrery::add_partition(app);
  orrery::add_placement(app);
  orrery::add_plan(app);
  orrery::add_topo(app);
  orrery::add_diagnose(app);
  orrery::add_collective(app);
  orrery::add_fabric(app);
  orrery::add_remap(app);
  orrery::add_run(app);
  orrery::add_calibrate(app);
  orrery::add_compare(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_text) {
    std::ostringstream text;
    app.exit(asked_for_text, text, text);
    orrery::print(text.str());
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // A closed pipe is noticed where the text is written.
  try {
    return run(argc, argv);
  } catch (const orrery::BrokenPipe&) {
    return 0;  // The reader has seen enough.
  } catch (const orrery::Error& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "orrery: out of memory on this machine; simulate fewer micro-batches or a smaller cluster\n");
    return kRuntime;
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    return kRuntime;
  }
}
