#pragma once
// The rules of diagnose(), by what they look at.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/finding.hpp"
#include "topology/nccl_variables.hpp"
#include "topology/topology_file.hpp"

namespace orrery::diagnosis {

using Findings = std::vector<Finding>;

// Of the rings that NCCL's search lays out over all GPUs of a machine, in GB/s; between machines of its kind
// where `several_nodes`. Empty when the machine can't be searched (no capability known, nothing joined).
std::optional<double> ring_gb_per_s(const Host& host, bool several_nodes,
                                    const nccl::Variables& variables = {});

// Prices a finding: the machine as it is against the mended one.
void price(Finding& finding, const Host& now, const Host& mended, bool several_nodes);

// Notes of the reader that speak of a device become the evidence, with their line.
void look_at_nvlinks(const Host& host, std::span<const ImportNote> notes, Findings& found);
void look_at_pcie(const Host& host, std::span<const ImportNote> notes, Findings& found);
void look_at_nics(const Host& host, Findings& found);
void look_for_hidden_switches(const Host& host, Findings& found);
void compare_hosts(std::span<const Host> hosts, Findings& found);
void look_at_matrix(const TopologyFile& file, Findings& found);
// What the reader found suspicious and no rule has taken up.
void look_at_notes(const TopologyFile& file, Findings& found);
void look_at_p2p(const TopologyFile& file, Findings& found);
void look_at_graphs(const TopologyFile& file, std::span<const Host> hosts, Findings& found);
void look_at_log(const TopologyFile& file, Findings& found);
void look_at_connections(const TopologyFile& file, Findings& found);
void look_at_settings(const TopologyFile& file, std::span<const Host> hosts, Findings& found);
// Rings of logs and graph files over the links of a matrix or topology file.
void look_at_ring_orders(std::span<const TopologyFile> files, Findings& found);

}  // namespace orrery::diagnosis
