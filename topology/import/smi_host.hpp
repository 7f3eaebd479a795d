#pragma once
// A Host from a matrix: the tree of CPUs, switches, GPUs and network cards that the matrix describes, and its
// NVLinks. Bus ids are made up (the matrix has none): domain = host bridge, so two devices of one CPU are PHB
// in one domain and NODE in two. Rates come from the assumptions or from evidence; a note says so each time.

#include <cstdint>
#include <optional>
#include <string>

#include "topology/import/host.hpp"
#include "topology/import/smi_matrix.hpp"

namespace orrery {

// What the matrix can't say and the user may know. Zero or empty: taken from evidence, or left unknown.
struct SmiAssumptions {
  std::string gpu_model;                // "H100-SXM5-80GB"
  std::int32_t compute_capability = 0;  // 90; decides the rate of an NVLink.
  double gigatransfers_per_s = 0;       // PCIe, per lane: 16 for generation 4.
  double nic_bytes_per_s = 0;           // Per port.
  std::optional<bool> nvswitch;         // Whether NVLinks go to switches rather than to peers.
  std::string cpu_architecture, cpu_vendor;
};

HostImport host_from_smi(const SmiMatrix& matrix, const SmiAssumptions& assumptions = {});

// The bus id that NVLinks to a switch have as their target.
inline constexpr const char* kSmiSwitchBusId = "ffff:ff:1f.0";

}  // namespace orrery
