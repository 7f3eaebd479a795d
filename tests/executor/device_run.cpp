// Whole runs of what lowering makes for devices, on one that is emulated, against the host backend.
#include <catch2/catch.hpp>

#include <cmath>

#include "executor/device/run_device.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "tests/executor/emulated_device.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

// Sizes whose parts can be packed.
TransformerConfig wide(TransformerConfig config) {
  config.name = "wide";
  config.layers = 2;
  config.hidden = 32;
  config.ffn = 16;
  if (config.heads == config.kv_heads) config.head_dim = 16;
  return config;
}

struct Results {
  host::RunResult emulated, host;
};

Results run_both(const TransformerConfig& config, const std::string& kernel_set) {
  PlanShorthand shorthand;
  shorthand.dp = 1;
  shorthand.global_batch = 4;
  shorthand.settings.sequence = 16;
  shorthand.settings.microbatch_size = 2;
  shorthand.settings.compute_dtype = DType::kFp32;
  shorthand.settings.kernel_set = kernel_set;
  const Graph graph = build_training_graph(config, DType::kFp32);
  const Plan plan = expand(shorthand, graph, 1);
  Program program = lower(graph, plan);
  place_buffers(program);
  host::RunOptions options;
  options.steps = 3;
  options.recorded = 1;
  options.initial.deviation = 0.3;
  options.callbacks = [&] {
    host::RunCallbacks callbacks;
    callbacks.inputs = [&](std::int64_t step, std::int32_t microbatch, TensorId input,
                           std::span<std::int64_t> to) {
      Random random(static_cast<std::uint64_t>(1000 * step + 10 * microbatch + input.value));
      for (std::int64_t& token : to) token = random.between(0, test::vocabulary(graph) - 1);
    };
    callbacks.clip_norm = 1;
    callbacks.optimizer = [&](std::int64_t step) {
      host::AdamWSettings settings;
      settings.learning_rate = 1e-2;
      settings.epsilon = 1e-3;  // Gradients that are but rounding must not become whole steps.
      settings.step = step + 1;
      settings.gradient_scale =
          static_cast<double>(plan.microbatch_size) / static_cast<double>(plan.global_batch());
      return settings;
    };
    return callbacks;
  };
  const std::unique_ptr<device::Device> device = test::emulated_device();
  return {device::run_on_device(graph, program, options, {}, *device, RankId(0), nullptr),
          host::run_threads(graph, program, options)};
}

void check_close(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i << ": " << found[i] << " instead of " << wanted[i]);
    CHECK(std::abs(found[i] - wanted[i]) <= tolerance * std::abs(wanted[i]));
  }
}

}  // namespace

TEST_CASE("a step as launches does what the host backend does", "[executor][device]") {
  for (const TransformerConfig& config : {wide(test::tiny_llama()), wide(test::tiny_gpt())}) {
    for (const std::string kernel_set : {"reference", "orrery-cuda", "orrery-cuda-packed"}) {
      INFO(config.heads << " heads, " << kernel_set);
      const Results results = run_both(config, kernel_set);
      check_close(results.emulated.losses, results.host.losses, 1e-4);
      check_close(results.emulated.gradient_norms, results.host.gradient_norms, 1e-3);
    }
  }
}

}  // namespace orrery
