// The scenario files and model configs of this folder.

#include <catch2/catch.hpp>

#include <algorithm>

#include "scenarios/show.hpp"
#include "tests/scenarios/texts.hpp"

using namespace orrery;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;

namespace {

const fs::path kFolder = fs::path(ORRERY_SOURCE_DIR) / "scenarios";

std::vector<fs::path> scenario_files() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::int64_t parameters(const std::string& model) {
  return parameter_count(build_forward(read_hf_config(kFolder / "models" / model), DType::kBf16));
}

}  // namespace

TEST_CASE("every scenario file loads and its plan can work", "[scenarios]") {
  const std::vector<fs::path> files = scenario_files();
  CHECK(files.size() >= 10);
  for (const fs::path& file : files) {
    CAPTURE(file);
    const Scenario scenario = load_scenario(file);
    CHECK(scenario.name == file.stem());
    const Graph graph = build_forward(scenario.model, scenario.plan.settings.compute_dtype);
    const Plan plan = expand(scenario.plan, graph, scenario.cluster.gpu_count());
    CHECK(check(plan, graph).empty());
    CHECK(plan.world_size() <= scenario.cluster.gpu_count());
  }
}

TEST_CASE("the model configs have their published sizes", "[scenarios]") {
  // The model cards' "8B", "70B" and "405B", to the parameter: table, layers, norms and head.
  CHECK(parameters("llama-3-8b.json") == 8'030'261'248);
  CHECK(parameters("llama-3-70b.json") == 70'553'706'496);
  CHECK(parameters("llama-3.1-405b.json") == 405'853'388'800);
  // 96 · 12 · 12288² + 96 · 13 · 12288 (biases and norms) + (50257 + 2048) · 12288 + 2 · 12288.
  CHECK(parameters("gpt3-175b.json") == 174'604'259'328);
}

TEST_CASE("a scenario is shown as what it comes to", "[scenarios]") {
  const Scenario scenario = load_scenario(kFolder / "llama3-405b-straggler.yaml");
  const Graph graph = build_forward(scenario.model, DType::kBf16);
  const Plan plan = expand(scenario.plan, graph, scenario.cluster.gpu_count());
  CHECK(digest(scenario, graph, plan) ==
        "405,853,388,800 parameters, 16,384 of 16,384 GPUs, TP 8 x PP 16 x DP 128, 2,048 x 8,192 tokens");
  const std::string text = normal_form(scenario, graph, plan);
  CHECK_THAT(text, Contains("128 x replica of 16 micro-batches"));
  CHECK_THAT(text, Contains("stage 0: embedding, layers 1-7 (7); ranks 0-7"));
  CHECK_THAT(text, Contains("stage 15: layers 120-126 (7), head"));
  CHECK_THAT(text, Contains("straggler: rank 15377"));
}

TEST_CASE("a plan file takes the place of its scenario's plan", "[scenarios]") {
  const Scenario scenario = load_scenario(kFolder / "plans/host-pp2.yaml");
  CHECK(scenario.name == "host-dp2");
  CHECK(scenario.plan.pp == 2);
  CHECK(scenario.plan.dp == 1);
  CHECK(scenario.plan.settings.gradient_sum == GradientSum::kOrdered);
  CHECK(scenario.plan.settings.sequence == 128);
  CHECK(load_scenario(kFolder / "plans/host-pp2.yaml", {"plan.pp=4"}).plan.pp == 4);
}
