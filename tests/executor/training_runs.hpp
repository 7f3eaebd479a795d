#pragma once
// How tests train tiny models: on random tokens, with weights that move a lot in a step.

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "base/random.hpp"
#include "executor/runtime/run.hpp"
#include "planner/plan.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery::test {

// Tokens by step and micro-batch; labels are other ones.
inline void tokens(const Graph& graph, std::int64_t step, std::int32_t microbatch, TensorId input,
                   std::span<std::int64_t> to) {
  Random random(static_cast<std::uint64_t>(1000 * step + 10 * microbatch + input.value));
  for (std::int64_t& token : to) token = random.between(0, vocabulary(graph) - 1);
}

// REQUIRES: graph and plan outlive what comes back.
inline host::RunCallbacks callbacks_of(const Graph& graph, const Plan& plan) {
  host::RunCallbacks callbacks;
  callbacks.inputs = [&](std::int64_t step, std::int32_t microbatch, TensorId input,
                         std::span<std::int64_t> to) { tokens(graph, step, microbatch, input, to); };
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
}

inline void check_close(const std::vector<double>& found, const std::vector<double>& wanted,
                        double tolerance) {
  CHECK(found.size() == wanted.size());
  if (found.size() != wanted.size()) return;
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i << ": " << found[i] << " instead of " << wanted[i]);
    CHECK(std::abs(found[i] - wanted[i]) <= tolerance * std::abs(wanted[i]));
  }
}

}  // namespace orrery::test
