// Turning the Program of 16,384 ranks (TP 8, PP 16, DP 128 on 2,048 nodes) into a Job.

#include <benchmark/benchmark.h>

#include "simulator/job.hpp"
#include "tests/simulator/machines.hpp"

namespace {

using namespace orrery;

void fold_16384(benchmark::State& state) {
  const Program program = testing::grid_program({8, 16, 128, 32, 5});
  const Cluster cluster = testing::cluster_of("dgx-h100", 2048, static_cast<double>(state.range(1)));
  JobOptions options;
  if (state.range(0) != 0) options.stragglers = {{RankId(5000), 1.2}};
  std::size_t classes = 0;
  for (auto _ : state) {
    const Job job = make_job(program, cluster, Profile(), options);
    classes = job.classes.size();
    benchmark::DoNotOptimize(job.transfers.data());
  }
  state.counters["classes"] = static_cast<double>(classes);
}
BENCHMARK(fold_16384)
    ->ArgNames({"straggler", "oversubscription"})
    ->Args({0, 1})
    ->Args({1, 1})
    ->Args({0, 2})
    ->Args({1, 2})
    ->Unit(benchmark::kMillisecond);

}  // namespace
