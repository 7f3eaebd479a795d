#pragma once
// One rank at work: its streams in order, an instruction once what it waits for has ended, compute and
// communication in one thread. Communication never blocks: a rank that waits for others looks at its other
// streams meanwhile, and sleeps when none can go on.

#include <cstdint>
#include <functional>
#include <span>

#include "executor/kernels/optimizer.hpp"
#include "executor/runtime/bound.hpp"
#include "executor/runtime/remote.hpp"

namespace orrery::host {

// What a run asks for beside the Program.
struct RunCallbacks {
  // Token ids or labels of a micro-batch, by its global index: the whole [batch, sequence].
  std::function<void(std::int64_t step, std::int32_t microbatch, TensorId input, std::span<std::int64_t>)>
      inputs;
  // Of a step; gradient_scale is one over the micro-batches, and clipping is multiplied into it.
  std::function<AdamWSettings(std::int64_t step)> optimizer;
  double clip_norm = 0;  // 0: gradients aren't clipped.
  GemmBackend gemm = GemmBackend::kOwn;
  // Called as a step ends on a rank, by its thread.
  std::function<void(RankId rank, std::int64_t step)> ended;
};

// Runs the steps [first, first + steps). Losses, norms and stamps go to the World. Streams may run ahead into
// the next step as far as dependencies allow, not past the last.
// The thread says where it is on the status page that it has joined, if any.
// THROWS Error(kRuntime) when the run is ended there: another rank has died, hangs or has given up.
// `remote`: for ranks on other hosts; null where there are none.
void run_steps(const Graph& graph, const World& world, BoundRank& rank, const RunCallbacks& callbacks,
               std::int64_t first, std::int64_t steps, Remote* remote = nullptr);

}  // namespace orrery::host
