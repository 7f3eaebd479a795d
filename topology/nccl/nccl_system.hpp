#pragma once
// NCCL's view of one node (one host, or all hosts of one NVLink domain): a graph of GPUs, PCIe switches, an
// NVSwitch, CPUs and network ports with GB/s on every direction, and the best path between what matters. It
// is what NCCL prints as "=== System". From it follow transports, GPUDirect and the search of
// topology/nccl/nccl_search.hpp. NCCL 2.18 to 2.30 (src/graph/topo.cc, paths.cc); bandwidths are floats as
// there, because sums and comparisons decide.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/import/host.hpp"
#include "topology/nccl/nccl_graph.hpp"
#include "topology/nccl/nccl_variables.hpp"

namespace orrery::nccl {

enum class NodeKind : std::uint8_t { kGpu, kPci, kNvs, kCpu, kNic, kNet };  // In the order of NCCL's tables.
inline constexpr std::size_t kNodeKinds = 6;
enum class LinkClass : std::uint8_t { kLoc, kNvl, kC2c, kPci, kSys, kNet };

enum class CpuArchitecture : std::int8_t { kUnknown = -1, kX86 = 1, kPower = 2, kArm = 3 };
enum class CpuVendor : std::int8_t { kUnknown = -1, kIntel = 1, kAmd = 2, kZhaoxin = 3 };

// One direction.
struct SystemLink {
  LinkClass kind = LinkClass::kPci;
  std::int32_t from = 0, to = 0;  // Into System::nodes.
  float gb_per_s = 0;
};

struct SystemNode {
  NodeKind kind = NodeKind::kPci;
  std::int32_t host = 0;
  std::int64_t id = 0;              // Bus id as a number, NUMA node, or device number: as logs print it.
  std::vector<std::int32_t> links;  // Out of it, into System::links: the widest first, the PCIe uplink last.

  // GPU.
  std::int32_t device = 0, rank = 0, compute_capability = 0;
  bool gpu_direct = true;  // Of a network port too.
  // CPU.
  CpuArchitecture architecture = CpuArchitecture::kUnknown;
  CpuVendor vendor = CpuVendor::kUnknown;
  std::int32_t cpu_model = -1;   // NCCL's own number of a generation.
  std::uint64_t pci_device = 0;  // Vendor, device, and the subsystem's, 16 bits each.
  // Network port.
  std::string card;  // Ports with the same card and port number share their bandwidth.
  std::int32_t port = 0, rail = -1, plane = -1;
  float gb_per_s = 0, latency_us = 0;
  bool collnet = false;
  std::int32_t local_gpu = -1;  // Into the GPUs: the one that this port is for.
};

struct SystemPath {
  PathClass type = PathClass::kDis;
  float gb_per_s = 0;
  std::vector<std::int32_t> links;
};

struct System {
  std::vector<SystemNode> nodes;
  std::vector<SystemLink> links;
  std::array<std::vector<std::int32_t>, kNodeKinds> of_kind;  // Nodes, in the order they were found in.
  std::vector<std::vector<SystemPath>> paths_to;              // [to][from]; empty: not looked for.
  std::int32_t hosts = 1;
  bool inter = false;  // Ranks of the communicator are elsewhere: the network is used.
  std::int32_t nccl_minor = 30;
  float max_gb_per_s = 0, total_gb_per_s = 0;
  Variables variables;

  const std::vector<std::int32_t>& all(NodeKind kind) const {
    return of_kind[static_cast<std::size_t>(kind)];
  }
  const SystemNode& gpu(std::int32_t index) const {
    return nodes[static_cast<std::size_t>(all(NodeKind::kGpu)[static_cast<std::size_t>(index)])];
  }
  std::int32_t gpu_count() const { return static_cast<std::int32_t>(all(NodeKind::kGpu).size()); }
  const SystemPath& path(std::int32_t from, std::int32_t to) const {
    return paths_to[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
  }
  // Of the first CPU, as NCCL takes it.
  const SystemNode* first_cpu() const {
    return all(NodeKind::kCpu).empty() ? nullptr
                                       : &nodes[static_cast<std::size_t>(all(NodeKind::kCpu).front())];
  }
  std::int32_t least_capability() const;
};

struct SystemOptions {
  // Device numbers of the communicator's GPUs, by host; empty: all of all hosts.
  std::vector<std::vector<std::int32_t>> gpus;
  bool other_nodes = false;  // The communicator has ranks elsewhere.
  std::int32_t nccl_minor = 30;
  std::int32_t compute_capability = 0;  // For GPUs whose source doesn't say it; 0: refuse those.
  Variables variables;
};

// Graph and paths, cut down to the communicator's GPUs. Several hosts share one NVLink domain.
// THROWS Error(kInput) when nothing is left, a GPU's capability isn't known, or NVLinks have no way back.
System make_system(std::span<const Host> hosts, const SystemOptions& options = {});
System make_system(const Host& host, const SystemOptions& options = {});

// What a log of NCCL_DEBUG_SUBSYS=GRAPH shows from "=== System" to the last path.
std::string to_text(const System& system);
// "Pattern 4, crossNic 0, …" and its channels.
std::string to_text(const Graph& graph, const System& system);

}  // namespace orrery::nccl
