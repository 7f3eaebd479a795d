// How fast the fast engine is. Items are what the name says: instructions, or starts and ends of flows.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>

#include "base/random.hpp"
#include "simulator/engine.hpp"
#include "tests/simulator/job_builder.hpp"

namespace orrery {
namespace {

using testing::JobBuilder;

constexpr std::int64_t kNvLink = 450'000'000'000;  // Bytes per second and direction.
constexpr std::int64_t kNic = 50'000'000'000;
constexpr SimTime kNvLinkLatency{1'000'000};
constexpr SimTime kNetworkLatency{3'000'000};
constexpr std::int32_t kGpusPerNode = 8;

void report_items(benchmark::State& state, std::int64_t items, const EngineCounters& counters) {
  state.SetItemsProcessed(items);
  state.counters["one_pass"] = counters.one_pass ? 1 : 0;
  state.counters["rate_changes"] = static_cast<double>(counters.rate_changes);
}

// Compute in turn with a private transfer to the next class: a pipeline of `classes` stages.
JobBuilder uncontended_pipeline(std::int32_t classes, std::int32_t microbatches) {
  JobBuilder job;
  std::vector<std::int32_t> hops;
  for (std::int32_t c = 0; c < classes; ++c) {
    job.add_class({0, 0, 0});
    const std::int32_t link = job.add_link(kNic);
    hops.push_back(job.add_transfer(kNetworkLatency, 8'000'000 + c, kNic, {{link, 1}}));
  }
  for (std::int32_t m = 0; m < microbatches; ++m) {
    std::int32_t received = -1;
    for (std::int32_t c = 0; c < classes; ++c) {
      std::vector<Edge> after;
      if (received >= 0) after.push_back({received, false});
      std::int32_t work = 0;
      for (int kernel = 0; kernel < 8; ++kernel) {
        work = job.add_compute(c, {40'000'000 + 1'000 * kernel}, after);
        after.clear();
      }
      if (c + 1 == classes) break;
      job.add_rendezvous(hops[static_cast<std::size_t>(c)], {{c, 1, {{work, false}}}, {c + 1, 2}});
      received = static_cast<std::int32_t>(job.job.classes[static_cast<std::size_t>(c) + 1].work.size()) - 1;
    }
  }
  return job;
}

void BM_OnePass(benchmark::State& state) {
  const JobBuilder job = uncontended_pipeline(16, static_cast<std::int32_t>(state.range(0)));
  EngineCounters counters;
  std::int64_t items = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_fast(job.job, {16, false}, &counters));
    items += counters.instructions;
  }
  report_items(state, items, counters);
}
BENCHMARK(BM_OnePass)->Arg(64)->Arg(4096)->Unit(benchmark::kMillisecond);

// The same job by events.
void BM_UncontendedByEvents(benchmark::State& state) {
  const JobBuilder job = uncontended_pipeline(16, 1024);
  EngineCounters counters;
  std::int64_t items = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_fast(job.job, {3, true}, &counters));
    items += counters.instructions;
  }
  report_items(state, items, counters);
}
BENCHMARK(BM_UncontendedByEvents)->Unit(benchmark::kMillisecond);

// A ring all-reduce of `gpus` ranks, chunk by chunk: 2(n − 1) sends and receives per channel and rank, each
// send after the receive before it. Inside a node over NVLink; between nodes over the sender's NIC and an
// uplink and a downlink of its leaf, chosen by a hash of the hop, so that some collide.
JobBuilder colliding_ring(std::int32_t gpus, std::int32_t channels, std::int32_t uplinks) {
  JobBuilder job;
  std::vector<std::int32_t> priorities(static_cast<std::size_t>(2 * channels), 0);
  std::vector<std::int32_t> nvlink_up, nvlink_down, nic_up, nic_down, up, down;
  for (std::int32_t g = 0; g < gpus; ++g) {
    job.add_class(priorities);
    nvlink_up.push_back(job.add_link(kNvLink));
    nvlink_down.push_back(job.add_link(kNvLink));
    nic_up.push_back(job.add_link(kNic));
    nic_down.push_back(job.add_link(kNic));
  }
  for (std::int32_t u = 0; u < uplinks; ++u) {
    up.push_back(job.add_link(4 * kNic));
    down.push_back(job.add_link(4 * kNic));
  }
  const std::int32_t steps = 2 * (gpus - 1);
  const std::int64_t chunk = 256'000'000 / channels / gpus;
  std::vector<std::int32_t> next(static_cast<std::size_t>(gpus), 0);  // Instructions of each rank so far.
  for (std::int32_t channel = 0; channel < channels; ++channel) {
    std::vector<std::int32_t> hops;
    for (std::int32_t g = 0; g < gpus; ++g) {
      const auto from = static_cast<std::size_t>(g), to = static_cast<std::size_t>((g + 1) % gpus);
      if (g % kGpusPerNode != kGpusPerNode - 1) {
        hops.push_back(job.add_transfer(kNvLinkLatency, chunk, kNvLink / channels,
                                        {{nvlink_up[from], 1}, {nvlink_down[to], 1}}));
        continue;
      }
      // Each channel has a NIC of its own node.
      const std::size_t rail = static_cast<std::size_t>(channel % kGpusPerNode);
      const std::size_t out = from / kGpusPerNode * kGpusPerNode + rail,
                        in = to / kGpusPerNode * kGpusPerNode + rail;
      const auto hash = static_cast<std::size_t>(mix64(static_cast<std::uint64_t>(g * channels + channel)) %
                                                 static_cast<std::uint64_t>(uplinks));
      hops.push_back(job.add_transfer(kNetworkLatency, chunk, kNic,
                                      {{nic_up[out], 1}, {up[hash], 1}, {down[hash], 1}, {nic_down[in], 1}}));
    }
    std::vector<std::int32_t> received(static_cast<std::size_t>(gpus), -1);
    for (std::int32_t s = 0; s < steps; ++s) {
      std::vector<std::int32_t> receiving(static_cast<std::size_t>(gpus));
      for (std::int32_t g = 0; g < gpus; ++g) {
        const auto from = static_cast<std::size_t>(g), to = static_cast<std::size_t>((g + 1) % gpus);
        std::vector<Edge> after;
        if (received[from] >= 0) after.push_back({received[from], false});
        job.add_rendezvous(hops[from],
                           {{g, 2 * channel, after}, {static_cast<std::int32_t>(to), 2 * channel + 1}});
        ++next[from];
        receiving[to] = next[to]++;
      }
      received = receiving;
    }
  }
  return job;
}

void BM_RingCollidingUplinks(benchmark::State& state) {
  const JobBuilder job =
      colliding_ring(static_cast<std::int32_t>(state.range(0)), 8, static_cast<std::int32_t>(state.range(1)));
  EngineCounters counters;
  std::int64_t items = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_fast(job.job, {1, false}, &counters));
    items += counters.flow_events;
  }
  report_items(state, items, counters);
}
// 64 uplinks of four NICs each for 256 flows between nodes: a few collide. 32: most do.
BENCHMARK(BM_RingCollidingUplinks)->Args({256, 64})->Args({256, 32})->Unit(benchmark::kMillisecond);

struct FatTree {
  std::vector<std::int32_t> nic_up, nic_down, leaf_up, leaf_down;
  std::int32_t spines = 8;
  std::int32_t hosts_per_leaf = 8;
};

// Flows of a random size between random hosts; each end lets the same source start another.
JobBuilder random_flows(std::int32_t live, std::int32_t flows_each) {
  JobBuilder job;
  FatTree tree;
  const std::int32_t leaves = live / tree.hosts_per_leaf;
  for (std::int32_t h = 0; h < live; ++h) {
    tree.nic_up.push_back(job.add_link(kNic));
    tree.nic_down.push_back(job.add_link(kNic));
  }
  for (std::int32_t l = 0; l < leaves * tree.spines; ++l) {
    tree.leaf_up.push_back(job.add_link(kNic));
    tree.leaf_down.push_back(job.add_link(kNic));
  }
  Random random(1);
  for (std::int32_t h = 0; h < live; ++h) {
    const std::int32_t source = job.add_class({0});
    for (std::int32_t f = 0; f < flows_each; ++f) {
      const auto to = static_cast<std::int32_t>(random.between(0, live - 1));
      const auto spine = static_cast<std::int32_t>(random.between(0, tree.spines - 1));
      const std::int32_t leaf = h / tree.hosts_per_leaf, leaf_of_to = to / tree.hosts_per_leaf;
      std::vector<LinkUse> uses = {{tree.nic_up[static_cast<std::size_t>(h)], 1},
                                   {tree.nic_down[static_cast<std::size_t>(to)], 1}};
      if (leaf != leaf_of_to) {
        uses.push_back({tree.leaf_up[static_cast<std::size_t>(leaf * tree.spines + spine)], 1});
        uses.push_back({tree.leaf_down[static_cast<std::size_t>(leaf_of_to * tree.spines + spine)], 1});
      }
      job.add_rendezvous(job.add_transfer(kNetworkLatency, random.between(1'000'000, 20'000'000), kNic, uses),
                         {{source, 0}});
    }
  }
  return job;
}

void BM_RandomFlows(benchmark::State& state) {
  const JobBuilder job = random_flows(static_cast<std::int32_t>(state.range(0)), 40);
  EngineCounters counters;
  std::int64_t items = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(run_fast(job.job, {1, true}, &counters));
    items += counters.flow_events;
  }
  report_items(state, items, counters);
}
BENCHMARK(BM_RandomFlows)->Name("BM_RandomFlows256")->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RandomFlows)->Name("BM_RandomFlows1024")->Arg(1024)->Unit(benchmark::kMillisecond);

// Processor seconds of one run.
double seconds_of(const Job& job, EngineCounters& counters) {
  const std::clock_t begin = std::clock();
  benchmark::DoNotOptimize(run_fast(job, {1, true}, &counters));
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// What more events cost beside idle ranks: classes that compute once, from before the first event until after
// the last. Timed as the difference of a long and a short run, which have the same idle ranks.
void BM_IdleRanks(benchmark::State& state) {
  JobBuilder jobs[] = {random_flows(16, 1'000), random_flows(16, 31'000)};
  for (JobBuilder& job : jobs)
    for (std::int64_t i = 0; i < state.range(0); ++i)
      job.add_compute(job.add_class({0}), {1'000'000'000'000'000});
  std::int64_t items = 0;
  EngineCounters small, large;
  for (auto _ : state) {
    const double before = seconds_of(jobs[0].job, small);
    state.SetIterationTime(std::max(1e-9, seconds_of(jobs[1].job, large) - before));
    items += large.flow_events - small.flow_events;
  }
  report_items(state, items, large);
}
BENCHMARK(BM_IdleRanks)->Arg(0)->Arg(100'000)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery
