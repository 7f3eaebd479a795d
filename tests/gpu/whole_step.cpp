// Whole steps on a GPU against the host backend: losses, norms and weights of tiny models with every kind of
// op.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "executor/cuda/cuda_device.hpp"
#include "executor/device/run_device.hpp"
#include "executor/runtime/run.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/training_runs.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

using test::check_close;

struct Case {
  Graph graph;
  Plan plan;
  Program program;
  host::RunOptions options;
};

// tiny_llama with sizes whose parts can be packed, and tiny_gpt with biases.
TransformerConfig wide_llama() {
  TransformerConfig config = test::tiny_llama();
  config.name = "wide-llama";
  config.hidden = 32;
  config.ffn = 16;
  return config;
}
TransformerConfig wide_gpt() {
  TransformerConfig config = test::tiny_gpt();
  config.name = "wide-gpt";
  config.hidden = 32;
  config.head_dim = 16;
  return config;
}

Case make_case(const TransformerConfig& config, DType dtype, std::int64_t steps) {
  PlanShorthand shorthand;
  shorthand.dp = 1;
  shorthand.global_batch = 4;
  shorthand.settings.sequence = 16;
  shorthand.settings.microbatch_size = 2;
  shorthand.settings.compute_dtype = dtype;
  shorthand.settings.expert_capacity_factor = 2;
  if (config.name.starts_with("wide")) shorthand.settings.kernel_set = "orrery-cuda-packed";
  Case made;
  made.graph = build_training_graph(config, dtype);
  made.plan = expand(shorthand, made.graph, 1);
  made.program = lower(made.graph, made.plan);
  place_buffers(made.program);
  made.options.steps = steps;
  made.options.recorded = 2;
  made.options.initial.deviation = 0.3;
  return made;
}

host::RunCallbacks callbacks_of(const Case& of) { return test::callbacks_of(of.graph, of.plan); }

host::RunResult on_gpu(Case& of, const device::DeviceRunOptions& device_options) {
  of.options.callbacks = [&of] { return callbacks_of(of); };
  cuda::CudaDevice gpu(0);
  return device::run_on_device(of.graph, of.program, of.options, device_options, gpu, RankId(0), nullptr);
}

host::RunResult on_host(Case& of) {
  of.options.callbacks = [&of] { return callbacks_of(of); };
  return host::run_threads(of.graph, of.program, of.options);
}

const std::vector<TransformerConfig>& models() {
  static const std::vector<TransformerConfig> all = {
      test::tiny_llama(),    test::tiny_gpt(), test::tiny_moe(), test::tiny_latent(),
      test::tiny_parallel(), wide_llama(),     wide_gpt()};
  return all;
}

}  // namespace

TEST_CASE("steps in fp32 are the host backend's up to the order of sums", "[.gpu]") {
  for (const TransformerConfig& config : models()) {
    INFO(config.name);
    Case of = make_case(config, DType::kFp32, 4);
    const host::RunResult gpu = on_gpu(of, {});
    const host::RunResult host = on_host(of);
    CHECK(gpu.device.capture_failure == "");
    CHECK(gpu.device.graph_steps == 4);
    // fp32 sums of some hundred terms in another order, over four steps of training.
    check_close(gpu.losses, host.losses, 2e-4);
    check_close(gpu.gradient_norms, host.gradient_norms, 2e-3);
  }
}

TEST_CASE("steps in bf16 are near the host backend's", "[.gpu]") {
  for (const TransformerConfig& config : models()) {
    INFO(config.name);
    Case of = make_case(config, DType::kBf16, 4);
    const host::RunResult gpu = on_gpu(of, {});
    const host::RunResult host = on_host(of);
    // bf16 has 8 bits; a rounding that falls the other way moves a loss of about 3 by some thousandths.
    check_close(gpu.losses, host.losses, 2e-2);
    // Of the first step alone: from the second on they are those of weights that differ.
    check_close({gpu.gradient_norms.front()}, {host.gradient_norms.front()}, 5e-2);
  }
}

TEST_CASE("a run repeats bit by bit, replayed or launched kernel by kernel", "[.gpu]") {
  for (const TransformerConfig& config : models()) {
    INFO(config.name);
    Case of = make_case(config, DType::kBf16, 5);
    device::DeviceRunOptions options;
    options.deterministic = true;
    const host::RunResult first = on_gpu(of, options), second = on_gpu(of, options);
    CHECK(first.losses == second.losses);
    CHECK(first.parameter_hash == second.parameter_hash);
    options.capture = false;
    const host::RunResult plain = on_gpu(of, options);
    CHECK(plain.device.plain_steps == 5);
    CHECK(first.losses == plain.losses);
    CHECK(first.parameter_hash == plain.parameter_hash);
  }
}

TEST_CASE("kernels of the last step are traced, each with its instruction", "[.gpu]") {
  Case of = make_case(test::tiny_llama(), DType::kBf16, 4);
  device::DeviceRunOptions options;
  options.trace_kernels = true;
  const host::RunResult traced = on_gpu(of, options);
  CHECK(traced.device.graph_steps == 4);
  CHECK(traced.losses == on_gpu(of, {}).losses);
  const std::vector<Instruction>& instructions = of.program.roles.front().instructions;
  std::set<std::int32_t> seen;
  int of_none = 0;
  for (const host::TracedKernel& kernel : traced.device.traced) {
    INFO(kernel.kernel << " of " << kernel.instruction);
    CHECK(kernel.end_ns >= kernel.start_ns);
    CHECK(kernel.instruction < std::ssize(instructions));
    if (kernel.instruction < 0) ++of_none;
    if (kernel.instruction >= 0) seen.insert(kernel.instruction);
  }
  CHECK(of_none <= 2);  // A step's tokens and its results.
  CHECK(2 * seen.size() > instructions.size());
  options.capture = false;
  const host::RunResult plain = on_gpu(of, options);
  CHECK(plain.device.traced.size() == traced.device.traced.size());
  CHECK(plain.device.traced.front().instruction == -1);
}

TEST_CASE("initial weights are the host backend's bit by bit", "[.gpu]") {
  const bool packed = GENERATE(false, true);
  Case of = make_case(packed ? wide_llama() : test::tiny_llama(), DType::kBf16, 1);
  const auto frozen = [&of] {
    host::RunCallbacks callbacks = callbacks_of(of);
    callbacks.optimizer = [](std::int64_t) {
      host::AdamWSettings settings;
      settings.learning_rate = 0;
      settings.weight_decay = 0;
      return settings;
    };
    return callbacks;
  };
  of.options.callbacks = frozen;
  cuda::CudaDevice device(0);
  const host::RunResult gpu =
      device::run_on_device(of.graph, of.program, of.options, {}, device, RankId(0), nullptr);
  const host::RunResult host = host::run_threads(of.graph, of.program, of.options);
  CHECK(host::to_text(gpu.parameter_hash) == host::to_text(host.parameter_hash));
}

}  // namespace orrery
