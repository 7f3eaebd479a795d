#pragma once
// One machine as its own tools describe it: sockets, PCIe trees, GPUs, network ports and NVLinks, with the
// facts that decide routes and rates. Readers fill it from pastes, files or the running system. NCCL's view
// of it and the device graph of a Cluster are made from it; it holds nothing that they could derive.

#include <cstdint>
#include <string>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

// A NUMA node with its processor.
struct HostCpu {
  std::int32_t numa = -1;    // −1: not known.
  std::string affinity;      // As the source writes it: a mask in hex, or a list "0-31,64-95".
  std::string architecture;  // "x86_64", "arm64", "ppc64"; empty: not known.
  std::string vendor;        // "GenuineIntel", "AuthenticAMD"; empty: not known.
  std::int32_t family = 0;   // As NCCL writes it: family + 16 · extended family; 0: not known.
  std::int32_t model = 0;
  bool operator==(const HostCpu&) const = default;
};

// A bridge, a switch, or the function that a GPU or a network card is.
struct PciDevice {
  std::string bus_id;              // "0000:07:00.0", lower case; the source's own form where it has another.
  std::int32_t cpu = 0;            // Into Host::cpus: under whose root complex.
  std::int32_t parent = -1;        // Into Host::pci, lower than this device's index; −1: the root complex.
  std::uint32_t device_class = 0;  // 0x030200; 0: not known.
  std::uint32_t vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;  // 0: not known.
  double gigatransfers_per_s = 0;  // Per lane of its link towards the CPU; 0: not known.
  std::int32_t lanes = 0;          // 0: not known.
  std::string peer;  // Bus id of the switch that this one is joined to without the CPU; empty: none.
  bool operator==(const PciDevice&) const = default;
};

// PCI classes of what NVLinks lead to.
inline constexpr std::uint32_t kNvSwitchClass = 0x068000, kCpuBridgeClass = 0x068001;

// NVLinks from one GPU to one peer.
struct HostNvLink {
  std::string target;      // Bus id of a GPU, a switch or a CPU bridge, or NCCL's sentinel for hidden ones.
  std::int32_t count = 0;  // 0 occurs: links that are down.
  std::uint32_t target_class = 0;  // 0x068000: switch; 0x0302…: GPU; 0x068001: CPU.
  bool operator==(const HostNvLink&) const = default;
};

struct HostGpu {
  std::int32_t pci = -1;                // Into Host::pci.
  std::int32_t index = 0;               // CUDA's and NVML's number on this host.
  std::int32_t rank = -1;               // In the communicator of the dump; −1: not known.
  std::int32_t compute_capability = 0;  // 90 for 9.0; 0: not known.
  bool gpu_direct_rdma = true;
  std::string model;  // "H100-SXM5-80GB"; empty: not known.
  std::vector<HostNvLink> nvlinks;
  double c2c_bytes_per_s = 0;  // To its own CPU, all links together; 0: none.
  std::int32_t part = -1;      // Which part of a GPU that is split in two ("mlopart"); −1: a whole one.
  bool operator==(const HostGpu&) const = default;
};

// A port of a network card, as the network plugin sees it.
struct HostNic {
  std::int32_t pci = -1;   // Into Host::pci; −1: virtual, straight under a CPU.
  std::int32_t cpu = 0;    // Into Host::cpus.
  std::string name;        // "mlx5_0"
  std::int32_t index = 0;  // The plugin's number.
  std::int32_t port = 1;
  double bytes_per_s = 0;  // 0: not known.
  double latency_s = 0;
  std::string guid;  // Ports of one card have the same, or neighbouring ones. Empty: not known.
  bool gpu_direct_rdma = true;
  bool in_network_reduction = false;  // SHARP and its like ("coll").
  std::int32_t max_connections = 0;   // 0: not known.
  std::int32_t rail = -1, plane = -1;
  // What the plugin offers on it: collectives' proxies, GPU-initiated transfers, one-sided ones.
  bool host_network = true, gpu_initiated = false, one_sided = false;
  bool keep = false;  // NCCL keeps it where it would prune it.
  bool operator==(const HostNic&) const = default;
};

struct Host {
  std::string name;  // Host name or hash; empty: not known.
  std::vector<HostCpu> cpus;
  std::vector<PciDevice> pci;  // Parents before children.
  std::vector<HostGpu> gpus;   // By index.
  std::vector<HostNic> nics;   // By index.
  std::string source;          // The file, or "this machine".
  bool operator==(const Host&) const = default;
};

struct HostImport {
  std::vector<Host> hosts;  // One but for dumps of machines that share an NVLink domain.
  std::vector<ImportNote> notes;
};

}  // namespace orrery
