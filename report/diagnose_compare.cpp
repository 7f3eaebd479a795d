// Machines of one job beside each other.

#include <fmt/format.h>

#include <set>

#include "report/diagnose_rules.hpp"
#include "topology/import/merge_hosts.hpp"

namespace orrery::diagnosis {
namespace {

std::string name(const Host& host) { return host.name.empty() ? host.source : host.name; }

void look_for_mixed_cpus(std::span<const Host> hosts, Findings& found) {
  std::set<std::string> vendors;
  Finding finding;
  for (const Host& host : hosts)
    for (const HostCpu& cpu : host.cpus)
      if (!cpu.vendor.empty() && vendors.insert(cpu.vendor).second)
        finding.evidence.push_back(
            {host.source, 0, fmt::format("{} has CPUs of {}", name(host), cpu.vendor)});
  if (vendors.size() < 2) return;
  finding.id = "mixed-cpu-vendors";
  finding.title = fmt::format("hosts with CPUs of {}", fmt::join(vendors, " and "));
  finding.cause =
      "NCCL takes 1 us to post a message on Intel hosts and 2 us on AMD's, so ranks price algorithms "
      "differently and "
      "may choose different ones for the same call";
  finding.remedy = "set NCCL_NET_OVERHEAD=1000 on all hosts";
  finding.stops_run = true;
  found.push_back(std::move(finding));
}

}  // namespace

void compare_hosts(std::span<const Host> hosts, Findings& found) {
  if (hosts.size() < 2) return;
  look_for_mixed_cpus(hosts, found);
  std::vector<HostImport> imports;
  for (const Host& host : hosts) imports.push_back({{host}, {}});
  const MergedHosts merged = merge_hosts(std::move(imports));
  if (merged.groups.size() < 2) return;
  Finding finding;
  finding.id = "hosts-differ";
  finding.title = fmt::format("{} of {} hosts differ from the others",
                              merged.hosts.size() - merged.groups.front().size(), merged.hosts.size());
  for (const ImportNote& note : merged.notes)
    if (finding.evidence.size() < 6) finding.evidence.push_back({"hosts together", note.line, note.text});
  finding.cause =
      "NCCL takes the least of all hosts for everyone, and doesn't compare cards: a channel whose card has "
      "no "
      "counterpart waits for ever";
  finding.remedy = "orrery topo diff shows all that is different; repair the host or leave it out";
  found.push_back(std::move(finding));
}

}  // namespace orrery::diagnosis
