#pragma once
// A bound rank's step as launches of its device.

#include <cstdint>
#include <vector>

#include "executor/device/device.hpp"
#include "executor/device/join_launches.hpp"
#include "executor/device/lower_op.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::device {

// What the host writes before each step: the optimiser's scalars, then the rank's ids and labels.
struct StagedInput {
  TensorId tensor;
  std::int32_t microbatch = 0;  // By its global index.
  std::vector<host::Run> runs;  // From the whole [batch, sequence].
  std::int64_t offset = 0;      // Of the first in the staged bytes; int64 each.
};
struct Staging {
  std::vector<StagedInput> inputs;
  std::int64_t bytes = 0;
};
Staging stage_inputs(const host::BoundRank& rank);

// What comes back after each: the squared norm (fp64), then the loss of each micro-batch of the rank (fp32).
constexpr std::int64_t kFirstLossOffset = 8;
std::int64_t result_bytes(const host::World& world, RankId rank);

// The bound rank's.
struct ScratchRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool has(const Array& array) const { return array.data >= begin && array.data < end; }
};
struct StepMemory {
  std::byte* staging = nullptr;
  std::byte* results = nullptr;
  ScratchRange scratch;
  std::vector<std::byte*> exchange;  // By stream: what exchange_bytes() asks for.
};

// What packing may use, by stream: its exchanges run one after the other.
std::vector<std::int64_t> exchange_bytes(host::Tables& tables, RankId rank);

// THROWS Error(kRuntime) for an instruction that no device can do.
DeviceStep lower_step(host::Tables& tables, const host::BoundRank& rank, const Staging& staging,
                      const StepMemory& memory, const OpLoweringOptions& options);

// The model's first weights, and the hash of its last.
std::vector<Launch> lower_initial_state(host::Tables& tables, const host::BoundRank& rank, std::uint64_t seed,
                                        double deviation);
std::vector<Launch> lower_hash(host::Tables& tables, RankId rank, std::uint64_t* hash);

}  // namespace orrery::device
