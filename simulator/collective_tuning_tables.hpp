#pragma once
// The numbers of NCCL's tuning model, by version (2.10 to 2.30, src/graph/tuning.cc of each). Microseconds
// and GB/s.

#include <array>
#include <cstdint>

namespace orrery::nccl {

using PerProtocol = std::array<double, 3>;  // LL, LL128, Simple.
using PerNodes = std::array<double, 3>;     // One node, two, more.

struct Latencies {
  PerProtocol base{}, nvlink{}, pcie{}, network{};
};

struct TuningTables {
  Latencies tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat;
  // By generation, and by nodes. Of the LL ceiling, one node: of the GPU; several: of the CPU.
  std::array<PerNodes, 4> ll_ceiling{};
  std::array<PerNodes, 4> ring_ll128{}, tree_ll128{}, tree_most{}, nvls_tree_most{};  // Per channel.
  std::array<double, 4> nvls_efficiency{};
  bool nvls_by_heads = true;           // The formula since 2.28.
  double ring_ll_share = 0.5;          // Of an all-reduce on a ring's bandwidth.
  double ring_ll_share_others = 0.5;   // Of the others on one node.
  double ll128_share_one_gpu = 0.92;   // With one GPU per node; else 0.92.
  double pat_share = 0.75;             // 0: no PAT.
  std::int32_t tree_corrections = 23;  // How many entries count for trees.
  bool corrects_nvls_tree = true;      // For Blackwell on x86.
  bool has_nvls = true, has_nvls_tree = true;
};

// Older than 2.10 counts as that, newer than 2.30 as 2.30.
const TuningTables& tuning_tables(std::int32_t nccl_minor);

// Share of a tree's bandwidth by floor(log2(bytes / 64)).
extern const std::array<std::array<double, 24>, 3> kTreeCorrection;

}  // namespace orrery::nccl
