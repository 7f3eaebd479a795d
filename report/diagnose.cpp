#include "report/diagnose.hpp"

#include "report/diagnose_rules.hpp"

namespace orrery {

std::vector<Finding> diagnose(std::span<const TopologyFile> files) {
  using namespace diagnosis;
  Findings found;
  std::vector<Host> hosts;
  for (const TopologyFile& file : files) hosts.insert(hosts.end(), file.hosts.begin(), file.hosts.end());
  for (const TopologyFile& file : files) {
    for (const Host& host : file.hosts) {
      look_at_nvlinks(host, file.notes, found);
      look_at_pcie(host, file.notes, found);
      look_at_nics(host, found);
      look_for_hidden_switches(host, found);
    }
    if (file.matrix) look_at_matrix(file, found);
    if (file.p2p) look_at_p2p(file, found);
    if (!file.graphs.empty()) look_at_graphs(file, hosts, found);
    if (file.log) {
      look_at_log(file, found);
      look_at_connections(file, found);
      look_at_settings(file, hosts, found);
      look_for_missing_ranks(file, found);
      look_at_proxies(file, hosts, found);
      look_at_choices(file, hosts, found);
    }
  }
  for (const TopologyFile& file : files) look_at_notes(file, found);
  // A matrix and a topology file may be of the same machine.
  for (const TopologyFileKind kind : {TopologyFileKind::kSmiMatrix, TopologyFileKind::kNcclTopology,
                                      TopologyFileKind::kNcclLog, TopologyFileKind::kHwloc}) {
    std::vector<Host> alike;
    for (const TopologyFile& file : files)
      if (file.kind == kind) alike.insert(alike.end(), file.hosts.begin(), file.hosts.end());
    compare_hosts(alike, found);
  }
  look_at_ring_orders(files, found);
  compare_versions(files, found);
  order_by_cost(found);
  return found;
}

}  // namespace orrery
