// How fast SimGrid's engine is. It works in a child process, so its processor time is the children's; it is
// reported as the iteration's time. Beside it the fast engine on the same job.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <ctime>
#include <filesystem>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "scenarios/scenario.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Of this process and its children that have ended.
double processor_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    total += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return total;
}

void run_scenario(benchmark::State& state, const std::string& name, bool fold, bool simgrid) {
  const Scenario run =
      load_scenario(std::filesystem::path(ORRERY_SOURCE_DIR) / "scenarios" / (name + ".yaml"));
  const Graph graph = build_training_graph(run.model, run.plan.settings.compute_dtype);
  const Program program = lower(graph, expand(run.plan, graph, run.cluster.gpu_count()));
  JobOptions options;
  options.fold = fold;
  options.stragglers = run.stragglers;
  options.faults = run.faults;
  const Job job = make_job(program, run.cluster, run.profile, options);
  EngineCounters counters;
  for (auto _ : state) {
    const double begin = processor_seconds();
    benchmark::DoNotOptimize((simgrid ? run_simgrid : run_fast)(job, {}, &counters));
    state.SetIterationTime(processor_seconds() - begin);
  }
  state.counters["instructions"] = static_cast<double>(counters.instructions);
  state.counters["flow_events"] = static_cast<double>(counters.flow_events);
  state.counters["live_max"] = counters.live_activities_max;
}

void BM_SimGrid64(benchmark::State& state) {
  run_scenario(state, "gpt-6.7b-64xa100", state.range(0) != 0, state.range(1) != 0);
}
void BM_SimGrid64SharedTrunks(benchmark::State& state) {
  run_scenario(state, "gpt-6.7b-both-engines", state.range(0) != 0, state.range(1) != 0);
}
void BM_SimGrid512(benchmark::State& state) {
  run_scenario(state, "llama3-70b-512xh100", state.range(0) != 0, state.range(1) != 0);
}
void BM_SimGrid512Faults(benchmark::State& state) {
  run_scenario(state, "llama3-70b-faults", true, state.range(1) != 0);
}
void BM_SimGrid16384Straggler(benchmark::State& state) {
  run_scenario(state, "llama3-405b-straggler", true, state.range(1) != 0);
}

void both_engines(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"fold", "simgrid"})->Args({1, 0})->Args({1, 1});
  bench->UseManualTime()->Unit(benchmark::kMillisecond);
}
void folded_and_not(benchmark::internal::Benchmark* bench) {
  both_engines(bench);
  bench->Args({0, 0})->Args({0, 1});
}

BENCHMARK(BM_SimGrid64)->Apply(folded_and_not);
BENCHMARK(BM_SimGrid64SharedTrunks)->Apply(folded_and_not);
BENCHMARK(BM_SimGrid512)->Apply(folded_and_not);
BENCHMARK(BM_SimGrid512Faults)->Apply(both_engines);
BENCHMARK(BM_SimGrid16384Straggler)->Apply(both_engines);

}  // namespace
}  // namespace orrery
