// orrery model and orrery catalogue: what models and machines are made of.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "model/transformer.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

std::string model_text(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::path path(file);
  if (!std::filesystem::exists(path, ignored)) fail(ErrorKind::kInput, "{}: no such file", file);
  const TransformerConfig config =
      read_hf_config(std::filesystem::is_directory(path, ignored) ? path / "config.json" : path);
  const Graph graph = build_forward(config, DType::kBf16);
  const auto row = [](std::string_view key, std::int64_t value) {
    return fmt::format("  {:<14} {}\n", key, format_count(value));
  };
  std::string text = fmt::format("{}\n", config.name.empty() ? file : config.name);
  text += row("parameters", parameter_count(graph));
  text += row("layers", config.layers) + row("hidden", config.hidden) + row("heads", config.heads);
  text += row("kv_heads", config.kv_heads) + row("head_dim", config.head_dim) + row("ffn", config.ffn);
  text += row("vocab", config.vocab) + row("max_positions", config.max_positions);
  for (const std::string& note : config.notes) text += fmt::format("  assumed: {}\n", note);
  return text;
}

std::string gpu_line(const GpuType& gpu) {
  return fmt::format("{}, {} at {:.2f} TB/s, bf16 {:.0f} TFLOP/s", gpu.name,
                     format_bytes(static_cast<double>(gpu.memory_bytes)), gpu.memory_bytes_per_s / 1e12,
                     gpu.peak(DType::kBf16) / 1e12);
}

std::string catalogue_text() {
  std::string text = "nodes (cluster.node)\n";
  for (const std::string& name : catalogue_names()) {
    const NodeType node = catalogue_node(name).value();
    text += fmt::format("  {:<14} {} x {}, {} NICs of {:.0f} Gb/s\n  {:<14} {}\n", name, node.gpus,
                        node.gpu.name, node.nics, node.nic_bytes_per_s * 8e-9, "", node.source);
    if (const auto price = catalogue_price(name))
      text += fmt::format("  {:<14} {:.2f} USD per GPU and hour on demand, {}: {}\n", "",
                          price->usd_per_gpu_hour, price->date, price->source);
  }
  text += "\nGPUs (cluster.gpu)\n";
  for (const std::string& name : gpu_names()) {
    const GpuType gpu = catalogue_gpu(name).value();
    text += fmt::format("  {:<14} {}\n  {:<14} {}\n", name, gpu_line(gpu), "", gpu.source);
  }
  return text;
}

}  // namespace

void add_model(CLI::App& app) {
  CLI::App* command = app.add_subcommand("model", "Show what a Hugging Face config.json describes");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *files, "config.json files, or folders that hold one")->required();
  command->footer("Example:\n  orrery model scenarios/models/llama-3-8b.json");
  command->callback([files] {
    for (const std::string& file : *files) print(model_text(file));
  });
}

void add_catalogue(CLI::App& app) {
  CLI::App* command = app.add_subcommand("catalogue", "List the nodes and GPUs that scenario files can name");
  command->footer("Example:\n  orrery catalogue");
  command->callback([] { print(catalogue_text()); });
}

}  // namespace orrery
