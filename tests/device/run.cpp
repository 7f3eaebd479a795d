// Whole runs of what lowering makes for devices, on ones that are emulated, against the host backend: one
// rank, and several that meet, talk by calls and bring their records together.
#include <catch2/catch.hpp>

#include <thread>

#include "executor/device/run_device.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/executor/launch_processes.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/training_runs.hpp"

namespace orrery {
namespace {

using test::check_close;

// Sizes whose parts can be packed.
TransformerConfig wide(TransformerConfig config) {
  config.name = "wide";
  config.layers = 2;
  config.hidden = 32;
  config.ffn = 16;
  if (config.heads == config.kv_heads) config.head_dim = 16;
  return config;
}

PlanShorthand plan_of(std::int32_t dp, std::int32_t tp, std::int32_t pp) {
  PlanShorthand plan;
  plan.dp = dp, plan.tp = tp, plan.pp = pp;
  plan.global_batch = 8;
  plan.settings.sequence = 16;
  plan.settings.microbatch_size = 2;
  plan.settings.compute_dtype = DType::kFp32;
  plan.settings.kernel_set = "orrery-cuda-packed";
  return plan;
}

struct Case {
  Case(const TransformerConfig& config, const PlanShorthand& shorthand)
      : graph(build_training_graph(config, shorthand.settings.compute_dtype)),
        ranks(shorthand.dp * shorthand.tp * shorthand.pp * shorthand.settings.context_parallel),
        plan(expand(shorthand, graph, ranks)),
        program(lower(graph, plan)) {
    place_buffers(program);
    options.steps = 3;
    options.recorded = 1;
    options.initial.deviation = 0.3;
    options.callbacks = [this] { return test::callbacks_of(graph, plan); };
  }
  Case(const Case&) = delete;

  host::RunResult on_host() const { return host::run_threads(graph, program, options); }

  // Each rank in a thread, with a device of its own.
  std::vector<host::RunResult> on_devices() const {
    test::Fabric fabric;
    std::vector<host::RunResult> results(static_cast<std::size_t>(ranks));
    const std::uint16_t port = launch::test::free_port("127.0.0.1");
    const auto run = [&](int rank) {
      const std::unique_ptr<device::Device> device = test::emulated_device(&fabric, RankId(rank));
      std::optional<launch::Rendezvous> rendezvous;
      if (ranks > 1) rendezvous.emplace(launch::test::member(rank, ranks, "127.0.0.1", port));
      results[static_cast<std::size_t>(rank)] = device::run_on_device(
          graph, program, options, {}, *device, RankId(rank), rendezvous ? &*rendezvous : nullptr);
    };
    std::vector<std::thread> threads;
    for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
    run(0);
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  const Graph graph;
  const std::int32_t ranks;
  const Plan plan;
  Program program;
  host::RunOptions options;
};

void check_equal(const TransformerConfig& config, const PlanShorthand& shorthand) {
  const Case of(config, shorthand);
  const host::RunResult host = of.on_host();
  const std::vector<host::RunResult> devices = of.on_devices();
  for (const host::RunResult& device : devices) {
    check_close(device.losses, host.losses, 1e-4);
    check_close(device.gradient_norms, host.gradient_norms, 1e-3);
    CHECK(device.parameter_hash == devices.front().parameter_hash);
  }
}

}  // namespace

TEST_CASE("a step as launches does what the host backend does", "[executor][device]") {
  for (const TransformerConfig& config : {wide(test::tiny_llama()), wide(test::tiny_gpt())}) {
    for (const std::string kernel_set : {"reference", "orrery-cuda", "orrery-cuda-packed"}) {
      INFO(config.heads << " heads, " << kernel_set);
      PlanShorthand plan = plan_of(1, 1, 1);
      plan.settings.kernel_set = kernel_set;
      check_equal(config, plan);
    }
  }
}

TEST_CASE("ranks on devices that talk by calls do what ranks on the host do", "[executor][device]") {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    INFO("dp 2, ZeRO " << zero);
    PlanShorthand plan = plan_of(2, 1, 1);
    plan.settings.zero_stage = zero;
    check_equal(wide(test::tiny_llama()), plan);
  }
  for (const bool sequence : {false, true}) {
    INFO("tp 2, sequence " << sequence);
    PlanShorthand plan = plan_of(1, 2, 1);
    plan.settings.sequence_parallel = sequence;
    check_equal(wide(test::tiny_gpt()), plan);
  }
  {
    INFO("cp 2, keys and values gathered");
    PlanShorthand plan = plan_of(1, 1, 1);
    plan.settings.context_parallel = 2;
    check_equal(wide(test::tiny_llama()), plan);
  }
  {
    INFO("pp 2");
    check_equal(wide(test::tiny_llama()), plan_of(1, 1, 2));
  }
  {
    INFO("dp 2, pp 2, ZeRO 1");
    PlanShorthand plan = plan_of(2, 1, 2);
    plan.settings.zero_stage = 1;
    check_equal(wide(test::tiny_llama()), plan);
  }
}

namespace {

// Losses and norms beside the host's in bf16, whose products aren't FP8. Returns the parameters' hash.
std::array<std::uint64_t, 2> check_fp8(const TransformerConfig& config, const PlanShorthand& plan) {
  Case of(config, plan);
  of.options.initial.deviation = 0.1;
  const host::RunResult host = of.on_host();
  const std::vector<host::RunResult> devices = of.on_devices();
  for (const host::RunResult& device : devices) {
    check_close(device.losses, host.losses, 0.03);
    check_close(device.gradient_norms, host.gradient_norms, 0.06);
  }
  CHECK(devices.front().losses != host.losses);
  return devices.front().parameter_hash;
}

}  // namespace

// E4M3 rounds to 1/16 of a number, and sums here have more than 128 terms: of activations more than one
// block.
TEST_CASE("steps with FP8 products by blocks lose about what the host does in bf16", "[executor][device]") {
  TransformerConfig config = test::tiny_llama();
  config.hidden = 144, config.head_dim = 36, config.ffn = 272, config.layers = 2;
  const auto fp8_plan = [] {
    PlanShorthand plan = plan_of(1, 1, 1);
    plan.settings.compute_dtype = DType::kBf16;
    plan.settings.fp8 = Fp8::kBlock;
    return plan;
  };
  const auto check = [&](const PlanShorthand& plan) { return check_fp8(config, plan); };
  std::vector<std::array<std::uint64_t, 2>> hashes;
  // What is kept for later products is what they would make themselves.
  for (const bool keeps : {true, false}) {
    PlanShorthand plan = fp8_plan();
    plan.settings.passes.set(LoweringPass::kSplitCollectives, !keeps);
    hashes.push_back(check(plan));
  }
  CHECK(hashes[0] == hashes[1]);
  INFO("tp 2, packed");
  PlanShorthand plan = fp8_plan();
  plan.tp = 2;
  plan.settings.sequence_parallel = true;
  plan.settings.kernel_set = "orrery-cuda-packed";
  check(plan);
}

// E4M3 rounds to 1/16 and E5M2 to 1/8 of a number, and sums here have 64 terms: a loss is off by about a
// hundredth, a norm by two. The emulated device refuses a kept largest element that is another than the
// matrix's.
TEST_CASE("steps with FP8 products lose about what the host does in bf16", "[executor][device]") {
  TransformerConfig config = test::tiny_llama();
  config.hidden = 64, config.head_dim = 16, config.ffn = 96, config.layers = 2;
  const auto fp8_plan = [](std::int32_t pp) {
    PlanShorthand plan = plan_of(1, 1, pp);
    plan.settings.compute_dtype = DType::kBf16;
    plan.settings.fp8 = Fp8::kTensor;
    plan.settings.fp8_format = Fp8Format::kHybrid;
    return plan;
  };
  const auto check = [&](const PlanShorthand& plan) { return check_fp8(config, plan); };
  std::array<std::uint64_t, 2> hashes[2];
  for (const std::string kernel_set : {"orrery-cuda", "orrery-cuda-packed"}) {
    INFO(kernel_set);
    // What is kept for later products is what they would make themselves.
    int way = 0;
    for (const bool keeps : {true, false}) {
      PlanShorthand plan = fp8_plan(1);
      plan.settings.kernel_set = kernel_set;
      plan.settings.passes.set(LoweringPass::kSplitCollectives, !keeps);
      hashes[way++] = check(plan);
    }
    CHECK(hashes[0] == hashes[1]);
  }
  {
    INFO("recompute");
    PlanShorthand plan = fp8_plan(1);
    plan.settings.recompute = Recompute::kFull;
    CHECK(check(plan) == hashes[0]);
  }
  for (const std::int32_t zero : {1, 2, 3}) {
    INFO("dp 2, ZeRO " << zero);
    PlanShorthand plan = fp8_plan(1);
    plan.dp = 2;
    plan.settings.zero_stage = zero;
    check(plan);
  }
  for (const bool sequence : {false, true}) {
    INFO("tp 2, sequence " << sequence);
    PlanShorthand plan = fp8_plan(1);
    plan.tp = 2;
    plan.settings.sequence_parallel = sequence;
    check(plan);
  }
  {
    INFO("some tensors again");
    PlanShorthand plan = fp8_plan(1);
    plan.settings.recompute = Recompute::kTensors;
    plan.settings.recompute_tensors = {"norms"};
    check(plan);
  }
  {
    INFO("zero bubbles");
    PlanShorthand plan = fp8_plan(2);
    plan.settings.schedule = PipelineSchedule::kZeroBubbleH1;
    check(plan);
  }
}

}  // namespace orrery
