#pragma once
// The rules of diagnose(), by what they look at.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/finding.hpp"
#include "topology/cluster.hpp"
#include "topology/import/topology_file.hpp"
#include "topology/nccl/nccl_variables.hpp"

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
// What ranks were doing when a log ends: who did not enter an operation that others wait in.
void look_for_missing_ranks(const TopologyFile& file, Findings& found);
// Two logs, or two graph files, of one kind of machine: by channels and rates that differ, with the versions.
void compare_versions(std::span<const TopologyFile> files, Findings& found);
// Messages through another GPU's network card: their connections and what posting them costs, and whether
// an all-to-all without them is faster on the machine of `hosts`.
void look_at_proxies(const TopologyFile& file, std::span<const Host> hosts, Findings& found);
// What NCCL chose, or was made to choose, against the twin's own time on the machine of `hosts`.
void look_at_choices(const TopologyFile& file, std::span<const Host> hosts, Findings& found);
// So many machines like `host` on a rail-optimised network. Empty: it has no way between its GPUs, or GPUs of
// several kinds.
std::optional<Cluster> cluster_of(const Host& host, std::int32_t nodes);
// Of the communicator with the most ranks; null: the log has none.
const LogComm* largest_comm(const NcclLog& log);
// The log's setting of that name; null: it isn't set.
const LogSetting* setting_of(const NcclLog& log, std::string_view name);
// 27 for "2.27.3"; 30 where the log doesn't say it.
std::int32_t minor_version(const NcclLog& log);

// Rings of logs and graph files over the links of a matrix or topology file.
void look_at_ring_orders(std::span<const TopologyFile> files, Findings& found);

}  // namespace orrery::diagnosis
