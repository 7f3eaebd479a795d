// From a scenario to its Timeline, in the parts a user waits for.

#include <benchmark/benchmark.h>

#include <filesystem>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "scenarios/scenario.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

Scenario scenario(const std::string& name) {
  return load_scenario(std::filesystem::path(ORRERY_SOURCE_DIR) / "scenarios" / (name + ".yaml"));
}

Program lowered(const Scenario& scenario) {
  const Graph graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  return lower(graph, expand(scenario.plan, graph, scenario.cluster.gpu_count()));
}

void BM_BuildGraph405B(benchmark::State& state) {
  const Scenario run = scenario("llama3-405b-16384xh100");
  for (auto _ : state) benchmark::DoNotOptimize(build_training_graph(run.model, DType::kBf16));
}
BENCHMARK(BM_BuildGraph405B)->Unit(benchmark::kMillisecond);

void BM_Lower405B(benchmark::State& state) {
  const Scenario run = scenario("llama3-405b-16384xh100");
  const Graph graph = build_training_graph(run.model, DType::kBf16);
  const Plan plan = expand(run.plan, graph, run.cluster.gpu_count());
  for (auto _ : state) benchmark::DoNotOptimize(lower(graph, plan));
}
BENCHMARK(BM_Lower405B)->Unit(benchmark::kMillisecond);

void BM_Verify405B(benchmark::State& state) {
  const Program program = lowered(scenario("llama3-405b-16384xh100"));
  for (auto _ : state) benchmark::DoNotOptimize(verify(program));
}
BENCHMARK(BM_Verify405B)->Unit(benchmark::kMillisecond);

// Everything after the scenario is read.
void simulate_scenario(benchmark::State& state, const std::string& name, bool fold) {
  const Scenario run = scenario(name);
  JobOptions options;
  options.fold = fold;
  options.stragglers = run.stragglers;
  EngineCounters counters;
  for (auto _ : state) {
    const Program program = lowered(run);
    const Job job = make_job(program, run.cluster, run.profile, options);
    benchmark::DoNotOptimize(run_fast(job, {}, &counters));
  }
  state.counters["instructions"] = static_cast<double>(counters.instructions);
  state.counters["one_pass"] = counters.one_pass ? 1 : 0;
}

void BM_Step405B(benchmark::State& state) { simulate_scenario(state, "llama3-405b-16384xh100", true); }
BENCHMARK(BM_Step405B)->Unit(benchmark::kMillisecond);

void BM_Step405BStraggler(benchmark::State& state) {
  simulate_scenario(state, "llama3-405b-straggler", true);
}
BENCHMARK(BM_Step405BStraggler)->Unit(benchmark::kMillisecond);

// 256 experts over 64 ranks, DualPipe on 16 stages.
void BM_StepDeepSeekV3(benchmark::State& state) { simulate_scenario(state, "deepseek-v3-2048xh200", true); }
BENCHMARK(BM_StepDeepSeekV3)->Unit(benchmark::kMillisecond);

// 64 GPUs, 32 layers, every rank simulated on its own.
void BM_Step64Unfolded(benchmark::State& state) { simulate_scenario(state, "gpt-6.7b-64xa100", false); }
BENCHMARK(BM_Step64Unfolded)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery
