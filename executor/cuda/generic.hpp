#pragma once
// Kernels that few models need, or few shapes: attention of any head width and any mask, ring attention's
// sums, heads side by side, tables of positions, gates, dropout, the loss of a divided vocabulary, experts.
//
// Every launch is asynchronous and may be captured into a graph; none allocates or waits. Results repeat bit
// by bit. `workspace` is device memory of at least workspace_bytes (aligned to 16), free again once the
// launch is through. `table` is unused. THROWS Error(kRuntime) where CUDA refuses a launch.

#include <cstddef>
#include <cstdint>

#include "executor/cuda/kernels_host.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// Attention on CUDA cores, in fp32: any T, d and e up to 256, all of AttentionShape. The gradient is always
// deterministic. A query that sees no key and has no sink gets o = 0 and lse = −∞.
std::int64_t generic_workspace_bytes(const device::AttentionGrad& x);
void launch_generic(const device::Attention& x, std::byte* workspace, Stream stream);
void launch_generic(const device::AttentionGrad& x, std::byte* workspace, Stream stream);

void launch(const device::AttentionMerge& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::HeadConcat& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::AddPositions& x, const std::byte* table, std::byte* workspace, Stream stream);
// REQUIRES: no position stands twice in `positions`.
void launch(const device::AddPositionsGrad& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::RowGate& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::RowGateGrad& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Dropout& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::DropoutGrad& x, const std::byte* table, std::byte* workspace, Stream stream);

// `vocab` and `real` count local entries.
void launch(const device::CrossEntropyPart& x, const std::byte* table, std::byte* workspace, Stream stream);

// Scores have the host's bits, so that picks and their order are the host's too. At most 1,024 experts.
void launch(const device::Route& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::RouteGrad& x, const std::byte* table, std::byte* workspace, Stream stream);
std::int64_t workspace_bytes(const device::Dispatch& x);
void launch(const device::Dispatch& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::DispatchGrad& x, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Combine& x, const std::byte* table, std::byte* workspace, Stream stream);
std::int64_t workspace_bytes(const device::CombineGrad& x);
void launch(const device::CombineGrad& x, const std::byte* table, std::byte* workspace, Stream stream);

}  // namespace orrery::cuda
