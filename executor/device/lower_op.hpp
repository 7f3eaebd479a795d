#pragma once
// An op of the Graph on a rank's memory as launches of a device.

#include <functional>
#include <vector>

#include "executor/device/launch.hpp"
#include "executor/device/packs.hpp"
#include "executor/runtime/bound.hpp"

namespace orrery::device {

// Where on the device such positions in the sequence stand; the same address for equal ones. Null: 0, 1, …
using PositionSource = std::function<const std::int64_t*(const std::vector<std::int64_t>&)>;

struct OpLoweringOptions {
  PositionSource positions;
  bool deterministic = false;            // Attention's gradient too.
  const PackedPlaces* packed = nullptr;  // Of what the op's instruction touches; null: nothing is.
};

Array array(const host::TensorView& view);

// What the kind of op means is said by host::run_op. REQUIRES: a forward or backward op of a transformer.
std::vector<Launch> lower_op(const Graph& graph, const host::RunOp& run, const OpLoweringOptions& options);
// The loss over a divided vocabulary, and what ring attention adds up.
std::vector<Launch> lower_loss_part(const host::RunLossPart& run);
std::vector<Launch> lower_ring_step(const Graph& graph, const Op& op, const host::RunRingStep& run);

}  // namespace orrery::device
