#pragma once
// Best paths in NCCL's view of a node, and what NCCL reads off them: who talks to whom by which transport,
// which ports may write to GPU memory, which port belongs to which GPU. Indices of GPUs and ports count
// within their kind.

#include <cstdint>
#include <utility>
#include <vector>

#include "topology/nccl/nccl_system.hpp"

namespace orrery::nccl {

// Fills `paths_to` for GPUs, ports, CPUs and the NVSwitch, then bends them to what NCCL really does: GPU
// pairs without P2P and ports without GPUDirect go through the CPU, ports of others through a GPU of their
// own (PXN). Sets SystemNode::local_gpu. THROWS Error(kInput) when a link has no way back.
void find_paths(System& system);

enum class Transport : std::uint8_t { kP2p, kShm, kNet };
struct PairTransport {
  Transport transport = Transport::kP2p;
  bool read = false;               // The receiver fetches; else the sender writes.
  std::int32_t intermediate = -1;  // The GPU that forwards (NVB).
};
// Between two GPUs of the node.
PairTransport transport(const System& system, std::int32_t from_gpu, std::int32_t to_gpu);

enum class GpuDirect : std::uint8_t { kOff, kOn, kOverPcie };  // Over PCIe: on machines that also have C2C.
// `send`: the port reads GPU memory.
GpuDirect gpu_direct(const System& system, std::int32_t gpu, std::int32_t port, bool send);
// The GPU whose port carries what `gpu` sends by `port`: itself, or a neighbour (PXN).
std::int32_t sending_gpu(const System& system, std::int32_t gpu, std::int32_t port);

// Those of `kind` with the widest path from `node`, of these the best class. Indices within the kind.
std::vector<std::int32_t> nearest(const System& system, std::int32_t node, NodeKind kind);
// The port of a GPU for a channel. REQUIRES: at least one port.
std::int32_t local_port(const System& system, std::int32_t gpu, std::int32_t channel);

// Best and worst class between GPUs (kGpu) or from GPUs to ports (kNet).
std::pair<PathClass, PathClass> path_range(const System& system, NodeKind kind);

}  // namespace orrery::nccl
