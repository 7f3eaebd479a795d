// Every published config.json that can be built is also simulated, on sixteen GPUs that divide what they can.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/error.hpp"
#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "report/summary.hpp"
#include "scenarios/scenario.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

fs::path data_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return given;
  return fs::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data";
}

std::optional<TransformerConfig> read(const fs::path& file) {
  try {
    return read_hf_config(file);
  } catch (const Error&) {
    return std::nullopt;  // Why is tests/model/hf_config_files.cpp's business.
  }
}

// 2 if the dimension's role is divided by tensor parallelism and 2 divides it, else 1.
std::int32_t tensor_parallel(const Graph& graph) {
  return std::all_of(graph.dims.begin(), graph.dims.end(),
                     [](const Dim& dim) {
                       const bool divided = dim.role == DimRole::kHeads || dim.role == DimRole::kKvHeads ||
                                            dim.role == DimRole::kFfn;
                       return !divided || dim.size % 2 == 0;
                     })
             ? 2
             : 1;
}

void simulate_config(const TransformerConfig& config, const Cluster& cluster, const Profile& profile) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  const bool experts = config.experts.count > 0;
  PlanShorthand shorthand;
  shorthand.tp = tensor_parallel(graph);
  shorthand.global_batch = 16;
  shorthand.settings.sequence = 512;
  shorthand.settings.sequence_parallel = shorthand.tp > 1;
  shorthand.settings.zero_stage = 1;
  if (experts && config.experts.count % 8 == 0) shorthand.settings.expert_parallel = 8;
  Plan plan;
  try {
    plan = expand(shorthand, graph, cluster.gpu_count());
  } catch (const Error&) {  // Norms over all heads, for one, can't be divided.
    shorthand.tp = 1;
    shorthand.settings.sequence_parallel = false;
    plan = expand(shorthand, graph, cluster.gpu_count());
  }
  const Program program = lower(graph, plan);
  CHECK(verify(program).empty());
  const Timeline timeline = simulate(program, cluster, profile, {});
  const double least_s = model_flops(graph, plan.global_batch(), plan.sequence) / cluster.gpu_count() /
                         cluster.node.gpu.peak(DType::kBf16);
  CHECK(timeline.step_time.seconds() > least_s);
  CHECK(timeline.step_time.seconds() < 100 * least_s + 1);
}

}  // namespace

TEST_CASE("every published config that can be built is simulated", "[properties][data]") {
  const fs::path models = data_folder() / "models";
  if (!fs::exists(models)) {
    std::cout << "skipped: no published configs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  const Scenario scenario = parse_scenario(
      "name: configs\nmodel: {hidden: 64, layers: 1, heads: 1, vocab: 64, ffn: 64}\nsequence: "
      "512\nglobal_batch: 16\n"
      "cluster: {node: dgx-h100, nodes: 2}\nplan: {}\n",
      "configs.yaml");
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(models)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  int simulated = 0;
  for (const fs::path& file : files) {
    INFO(file.filename().string());
    const std::optional<TransformerConfig> config = read(file);
    if (!config) continue;
    simulate_config(*config, scenario.cluster, scenario.profile);
    ++simulated;
  }
  CHECK(simulated >= 40);
}

}  // namespace orrery
