#pragma once
// Measured costs of one kind of machine, as data. Where nobody has measured, a Profile borrows the
// efficiency of the nearest relative and says so in `provenance`.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace orrery {

struct GpuType;

// How matmuls fall short of their fraction of peak; simulator/kernel_model.hpp has the formulas.
struct MatmulCosts {
  std::array<double, kDTypeCount> type_efficiency{1, 1, 1, 1, 1, 1, 1, 1};  // Times matmul_efficiency.
  // Of fp8, times that type's: sums in fewer bits than fp32; scales by squares, and by rows (Fp8Scaling).
  double fp8_fast = 1, fp8_squares = 1, fp8_rows = 1;
  double tile_start_s = 0;  // Filling and draining a tile's pipeline.
  double quantisation = 0;  // How much of a last wave's idle SMs is lost: 0 nothing, 1 all.
  double split_s = 0;       // Fixed cost of adding up the parts of a product split along k.
  double cache_reuse = 1;   // SMs that share what one of them loads from the cache.
  // Times longer where rows start at multiples of 4 or 8 and of 2 bytes instead of 16.
  double misaligned_4 = 1, misaligned_2 = 1;
};

// One implementation's fused attention, in one direction.
struct AttentionCosts {
  double exponential_share = 0;  // Time of a score's exponential over that of its products at head dim 128.
  double tile_start_s = 0;
  double quantisation = 0;
  double passes = 0;  // Over queries' bytes, before and after: sums of rows, gradients gathered in fp32.
};

struct MemoryCosts {
  double cache_bytes_per_clock = 0;  // Per SM, for what the cache holds; 0: as memory.
  // Norms and softmaxes: over plain streams' efficiency; and per element of a row, which one block walks.
  double row_efficiency = 1;
  double row_element_s = 0;
};

// Standard deviations of ln(measured / predicted). Those of a family move together: all kernels of it are
// faster or slower than believed. Those of an entry are its own.
struct CostError {
  double family_sigma = 0;
  double entry_sigma = 0;
};

struct KernelErrors {
  CostError matmul, attention, attention_backward, memory;
  CostError rows;           // Norms and softmaxes as kernels of their own.
  double launch_sigma = 0;  // Of one launch to the next of the same kernel.
};

// How collectives fall short of NCCL's own tuning model; simulator/collective_cost.hpp has the formulas.
struct CollectiveCosts {
  bool nccl = false;  // Priced as NCCL prices them; otherwise an ideal ring or tree.
  bool nvls = true;   // NVLS is used where hardware and version have it (NCCL_NVLS_ENABLE).
  // The x of NCCL 2.x. Prices are those of 2.30 for all; an older one lacks the algorithms that came later.
  std::int32_t nccl_minor = 30;
  double call_s = 0;  // Per call, beside the latency of the algorithm.
  // Payloads of which a channel gets less than `full_channel_bytes` take longer by this part per halving, up
  // to `ramp_halvings` of them.
  double ramp = 0;
  double full_channel_bytes = 1;
  double ramp_halvings = 0;
  // What the first and the last step of a ring cost beside moving a chunk, in steps.
  double all_reduce_ends = 0, gather_ends = 0, scatter_ends = 0;
  double all_to_all_slowdown = 1;
  double slowdown = 1;  // Of everything that grows with the bytes; what a calibration on a machine finds.
  // Of the fixed part of a call's time and of the part that grows with its bytes.
  CostError node_latency, node_bandwidth, network_latency, network_bandwidth;
};
CollectiveCosts default_collectives();

// ---- What a calibration measured, looked up before any model. Kinds are the words of to_string(KernelKind)
// and to_string(CollectiveKind); `sigma` is the standard deviation of ln(measured / said) over `samples`.

// One kernel of one shape, timed.
struct MeasuredKernel {
  std::string label;  // Of the Program's kernel; empty: of none.
  std::string kind;
  DType dtype = DType::kFp32;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  double flops = 0;
  std::int64_t read_bytes = 0, written_bytes = 0;
  double seconds = 0;
  double sigma = 0;
  std::int64_t samples = 1;
  std::string source;
};

// Kernels that weren't timed themselves: base + flops / rate + bytes / bandwidth.
struct KernelFit {
  std::string kind;
  std::string label;  // Of the Program's kernel; empty: all of the kind.
  double base_s = 0;
  double flops_per_s = 0;  // 0: flops cost nothing.
  double bytes_per_s = 0;  // 0: bytes cost nothing.
  double sigma = 0;
  std::int64_t samples = 1;
  std::string source;
};

// A message between two ranks: base + bytes · seconds_per_byte.
struct MessageFit {
  double base_s = 0;
  double seconds_per_byte = 0;
  double sigma = 0;
  std::int64_t samples = 1;
  std::string source;
};

// A collective of one kind among so many ranks, likewise; `bytes` as Collective::bytes counts them.
struct CollectiveFit {
  std::string kind;
  std::int32_t ranks = 2;
  double base_s = 0;
  double seconds_per_byte = 0;
  double sigma = 0;
  std::int64_t samples = 1;
  std::string source;
};

// The defaults are an ideal machine, on which nothing costs more than the datasheet says.
struct Profile {
  std::string name = "ideal";

  // Fractions of the datasheet peak that the best kernels reach in their inner loop, at full clocks.
  double matmul_efficiency = 1.0;
  double attention_efficiency = 1.0;
  double attention_backward_efficiency = 1.0;
  double memory_efficiency = 1.0;

  // What those fractions leave out, and how much longer dense work takes once the GPU has slowed its clocks
  // to its power limit; half of that is reached after `throttle_s` of such work.
  MatmulCosts matmul;
  AttentionCosts attention, attention_backward;
  MemoryCosts memory;
  double sustained_slowdown = 1.0;
  double throttle_s = 0;
  // What a benchmark that times single launches sees beside the kernel; no part of a training step.
  double single_launch_s = 0;
  KernelErrors errors;

  // Host time per plain launch; device time per node of a replayed graph.
  double launch_s = 0;
  double graph_node_s = 0;
  // Shortest kernel, from start to end on the device.
  double kernel_floor_s = 0;

  // By how much compute slows while a transfer is active on its device, and the other way round. 1: not
  // measured.
  double compute_interference = 1.0;
  double transfer_interference = 1.0;

  // Transfers between GPUs. On top of what the model of `collectives` says: latency per step of an algorithm
  // inside a node and between nodes; a message is one step. Fixed cost of a call that NCCL has no price for
  // (messages, all-to-alls) and of any call on an ideal machine.
  CollectiveCosts collectives;
  double step_latency_s = 0;
  double network_step_latency_s = 0;
  double collective_base_s = 0;
  double message_bytes_per_s = 0;  // Most that one message gets of its links; 0: all.

  // A rank whose communication is done by the thread that computes: while a transfer of the device is active
  // its compute stands still, and the transfer uses the device's core. The two interference factors then have
  // no meaning. Waiting for other ranks costs nothing.
  bool communication_on_core = false;
  // What a machine's cores do together when all are busy, in the work of one that is busy alone: less than
  // their number where they share execution units, caches or memory. 0: as many as there are.
  double cores_together = 0;
  // What the runtime adds to each instruction on the thread that performs it.
  double instruction_s = 0;

  // Where these are, they replace what the models above say.
  std::vector<MeasuredKernel> kernels;
  std::vector<KernelFit> kernel_fits;
  std::optional<MessageFit> message_fit;
  std::vector<CollectiveFit> collective_fits;

  std::vector<std::string> provenance;  // One line per figure: value, where it comes from.
};

// The Profile used for a GPU before anyone calibrates: measured for H200, borrowed for its relatives; assumed
// for a host's core.
Profile default_profile(const GpuType& gpu);

}  // namespace orrery
