#pragma once
// What is there: GPUs, nodes and the fabric between them, as data. One device graph per node type and
// a description of the fabric; nothing is expanded per GPU until somebody asks for a path.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/ids.hpp"
#include "topology/fabric.hpp"

namespace orrery {

// Generations whose kernels behave alike; kHost: a core of a CPU that runs a rank as a thread.
enum class Architecture : std::uint8_t {
  kUnknown,
  kVolta,
  kAmpere,
  kAda,
  kHopper,
  kBlackwell,
  kCdna3,
  kHost
};
std::string_view to_string(Architecture architecture);  // "Hopper"

// One kind of GPU. Rates are dense peaks of the datasheet, not what programs reach.
struct GpuType {
  std::string name;  // "H100-SXM5-80GB"
  Architecture architecture = Architecture::kUnknown;
  std::int32_t sms = 0;          // Streaming multiprocessors (compute units); 0: not known.
  double clock_hz = 0;           // At which the peaks count; 0: not known.
  std::int64_t cache_bytes = 0;  // Last level that all of them share; 0: not known.
  std::array<double, kDTypeCount> peak_flops_per_s{};  // By DType; 0: not supported.
  std::int64_t memory_bytes = 0;                       // Usable by programs.
  double memory_bytes_per_s = 0;
  double power_w = 0;  // Board power limit.
  std::string source;  // Where the numbers come from.

  double peak(DType type) const { return peak_flops_per_s[static_cast<std::size_t>(type)]; }
};

enum class DeviceKind : std::uint8_t { kGpu, kNic, kNvSwitch, kPcieSwitch, kCpu };
enum class LinkKind : std::uint8_t { kNvLink, kC2c, kPcie, kCpuInterconnect, kNetwork };

struct NodeDevice {
  std::string name;  // "gpu0", "nic3", "nvswitch".
  DeviceKind kind = DeviceKind::kGpu;
};

// A cable or bus segment inside a node: full duplex, each direction with its own bandwidth. Parallel cables
// between the same two devices are one link with their summed bandwidth.
struct NodeLink {
  std::string name;
  std::int32_t a = 0, b = 0;  // Into NodeType::devices.
  LinkKind kind = LinkKind::kPcie;
  double bytes_per_s = 0;  // Per direction, as NCCL sees it (protocol overhead taken off).
  double latency_s = 0;
};

struct NodeType {
  std::string name;  // "DGX-H100"
  GpuType gpu;
  std::int32_t gpus = 0;       // Devices 0 … gpus − 1 are the GPUs.
  std::int32_t nics = 0;       // The next `nics` devices are the NICs.
  double nic_bytes_per_s = 0;  // Per NIC and direction.
  double nic_latency_s = 0;    // Per NIC passed: between its PCIe link and the cable.
  // The devices of a node share the compute of so many cores, at most one each; 0: every device has its own.
  std::int32_t cores = 0;
  // How the process of each GPU is bound; empty: to what is nearest. By GPU: its NIC, 0 … nics − 1; the CPU
  // that its host memory belongs to, counted among the CPUs.
  std::vector<std::int32_t> nic_of_gpu, cpu_of_gpu;
  std::vector<NodeDevice> devices;
  std::vector<NodeLink> links;
  std::string source;
};

struct Cluster {
  std::string name;
  NodeType node;
  std::int32_t nodes = 1;
  Fabric fabric;
  // So many nodes in a row share their NVSwitches: the trays of a rack (18 of 4 GPUs in an NVL72). Their GPUs
  // reach each other as those of one node do.
  std::int32_t nodes_per_nvlink_domain = 1;

  std::int32_t gpu_count() const { return node.gpus * nodes; }
  std::int32_t gpus_per_domain() const { return node.gpus * nodes_per_nvlink_domain; }
};

// ---- Paths.

// One direction of one link instance. Equal ids mean the same shared resource.
using LinkInstance = std::int64_t;

struct PathLink {
  LinkInstance link = 0;
  double bytes_per_s = 0;
};

struct Path {
  std::vector<PathLink> links;  // In travel order.
  double latency_s = 0;
  bool crosses_network = false;

  double bytes_per_s() const;  // Of the narrowest link; infinite for an empty path.
};

// What a link instance is, and of what.
struct LinkPlace {
  enum class Kind : std::uint8_t { kInNode, kNicCable, kTrunk };
  Kind kind = Kind::kInNode;
  std::int32_t node = -1;  // −1 for a trunk, which belongs to the fabric.
  std::int32_t index = 0;  // Into NodeType::links; the NIC whose cable it is; the fabric's cable or bundle.
  bool forward = true;     // In a node from `a` to `b`; out of the NIC; up to the spine.
};

// Shortest routes inside one node type, computed once (Boost.Graph) and joined to fabric links on demand.
// Devices are numbered node · gpus + index.
class Router {
 public:
  // THROWS Error(kInput) when a GPU can't reach another one of its node, or, in a cluster of several
  // nodes, a NIC.
  explicit Router(const Cluster& cluster);
  ~Router();
  Router(Router&&) noexcept;
  Router& operator=(Router&&) noexcept;

  // GPU to GPU: NVLink where there is some, else PCIe; between nodes each GPU uses its nearest NIC (the
  // one of the same index where several are equally near, so that peers stay on their rail). Where rails
  // aren't joined, traffic to another one first goes to its node's GPU with the receiver's index. In the
  // fabric it takes one path (FabricRouting::kEcmp: the one that its ends hash to), over bundles of cables
  // where flows are spread over them.
  Path path(std::int32_t from_device, std::int32_t to_device) const;

  // GPU to the memory of its nearest CPU (`to_host`) or back. THROWS Error(kInput) when the node has no CPU.
  Path host_path(std::int32_t device, bool to_host) const;

  // What path() and host_path() give, without the links that can't ever be the narrowest of any traffic:
  // those whose every user also crosses some other link that is no wider (a NIC's cable behind its PCIe
  // link), and the uplinks of leaf switches that carry all their NICs at full rate. Fair shares are the same
  // without them. Appends to `links` and returns the latency.
  double append_binding(std::int32_t from_device, std::int32_t to_device, std::vector<PathLink>& links) const;
  double append_host_binding(std::int32_t device, bool to_host, std::vector<PathLink>& links) const;

  // The parts of path() between different nodes: GPU to its leaf switch, leaf switch to GPU, and what lies
  // between two leaf switches (nothing when they are the same). For traffic patterns that count users per
  // link instead of walking every pair; only right where parts_join().
  std::int32_t leaf(std::int32_t device) const;
  void append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_between_leaves(std::int32_t from, std::int32_t to, std::vector<PathLink>& links) const;
  // Whether each part depends on its own ends only: not with ECMP, nor where rails aren't joined.
  bool parts_join() const;

  // Link instances are numbered 0 … count − 1.
  LinkInstance link_count() const;
  LinkPlace place(LinkInstance link) const;
  // Human name of a link instance: "node12.nic3 → leaf3.0".
  std::string name(LinkInstance link) const;

  const Cluster& cluster() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- Catalogue: machines by name, every number with its source.

std::vector<std::string> catalogue_names();  // Of nodes, e.g. "dgx-h100".
std::optional<NodeType> catalogue_node(std::string_view name);
std::vector<std::string> gpu_names();  // Of GPUs, e.g. "h100-sxm".
std::optional<GpuType> catalogue_gpu(std::string_view name);

// What a cloud asks for one GPU for an hour, on demand, of the nodes that are a cloud's.
struct CataloguePrice {
  double usd_per_gpu_hour = 0;
  std::string date;  // "2025-06": when it was listed.
  std::string source;
};
std::optional<CataloguePrice> catalogue_price(std::string_view node);

// A node of `gpus` GPUs behind one NVSwitch (nvlink_bytes_per_s > 0) or only PCIe, with NICs under the PCIe
// switches: what inline cluster descriptions expand to.
struct NodeShape {
  std::string name = "node";
  std::int32_t gpus = 8;
  double nvlink_bytes_per_s = 0;   // Per GPU and direction, datasheet.
  double pcie_bytes_per_s = 32e9;  // Per GPU and direction, datasheet.
  std::int32_t nics = 8;
  double nic_bytes_per_s = 50e9;
};
NodeType make_node(const NodeShape& shape, const GpuType& gpu);

}  // namespace orrery
