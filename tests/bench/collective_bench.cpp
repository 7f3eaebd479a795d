// Collectives by chunks.

#include <benchmark/benchmark.h>

#include <cstdint>

#include "planner/collective_sweep.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

constexpr std::int32_t kGpus = 1024, kPerNode = 8;
constexpr std::int64_t kBytes = 1 << 30;

// Rail-optimised, with half of the uplinks that full rate would need.
Cluster rail_cluster() {
  Cluster cluster;
  cluster.name = "1024 H100";
  cluster.node = catalogue_node("dgx-h100").value();
  cluster.nodes = kGpus / kPerNode;
  cluster.fabric.kind = FabricKind::kRailOptimised;
  cluster.fabric.oversubscription = 2;
  return cluster;
}

CollectiveSetup ring_setup(const Cluster& cluster) {
  CollectiveSweep sweep;
  sweep.algorithm = CollectiveAlgorithm::kRing;
  sweep.protocol = nccl::Protocol::kSimple;
  sweep.channels = 1;
  return collective_setup(sweep, kBytes, Router(cluster), default_profile(cluster.node.gpu));
}

// One channel's ring all-reduce of 1 GiB, from the spec to its time. In the order of the ranks a node's last
// GPU sends to the first one of the next, so that rails are changed and messages share uplinks.
void ring_of_1024(benchmark::State& state, bool on_rails) {
  const Cluster cluster = rail_cluster();
  CollectiveSetup setup = ring_setup(cluster);
  if (!on_rails) setup.spec.orders.clear();
  EngineCounters counters;
  for (auto _ : state) {
    const CollectiveProgram collective = collective_program(setup.spec);
    const Job job = make_job(collective.program, cluster, setup.profile, {});
    benchmark::DoNotOptimize(run_fast(job, {1, false}, &counters));
    state.counters["classes"] = static_cast<double>(job.classes.size());
  }
  state.SetItemsProcessed(state.iterations() * counters.instructions);
  state.counters["instructions"] = static_cast<double>(counters.instructions);
  state.counters["one_pass"] = counters.one_pass ? 1 : 0;
}

void BM_Ring1024OnRails(benchmark::State& state) { ring_of_1024(state, true); }
BENCHMARK(BM_Ring1024OnRails)->Unit(benchmark::kMillisecond);

void BM_Ring1024AcrossRails(benchmark::State& state) { ring_of_1024(state, false); }
BENCHMARK(BM_Ring1024AcrossRails)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery
