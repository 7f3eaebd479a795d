// Rules over NCCL's own words.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "report/diagnose_rules.hpp"
#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_derive.hpp"

namespace orrery::diagnosis {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string joined(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

double ring_rate(const nccl::Graph& graph) {
  return static_cast<double>(graph.channels.size()) * graph.node_gb_per_s;
}

// NCCL's last resort: one channel in the order of numbers, priced at 0.1 GB/s.
void look_for_simple_order(const TopologyFile& file, Findings& found) {
  Finding finding;
  finding.id = "no-path-found";
  std::set<std::string> hosts;
  for (const LogText& warning : file.log->warnings) {
    if (!has(warning.text, "falling back to simple order")) continue;
    hosts.insert(warning.host);
    if (finding.evidence.size() < 3) finding.evidence.push_back({file.name, warning.line, warning.text});
  }
  if (finding.evidence.empty()) return;
  finding.title = hosts.size() == 1 && hosts.begin()->empty()
                      ? "NCCL found no path for its channels"
                      : fmt::format("NCCL found no path for its channels on {}", joined(hosts));
  finding.cause =
      "some link on the way gives less than the slowest speed NCCL tries: a GPU without NVLinks, a bridge "
      "that "
      "reports x1, a card that no GPU reaches";
  finding.remedy =
      "look for a link of 0 GB/s under \"=== System\" (NCCL_DEBUG_SUBSYS=GRAPH), or give orrery diagnose the "
      "dump "
      "of NCCL_TOPO_DUMP_FILE";
  for (const LogComm& comm : file.log->comms)
    for (const LogGraphs& graphs : comm.graphs)
      for (const nccl::Graph& graph : graphs.graphs)
        if (graph.kind == nccl::GraphKind::kRing && !graph.channels.empty()) {
          const double rate = ring_rate(graph);
          finding.now_gb_per_s = std::min(finding.now_gb_per_s.value_or(rate), rate);
        }
  // What the same machine gives with the links that its other GPUs have.
  for (const Host& host : file.hosts) {
    Findings links;
    look_at_nvlinks(host, file.notes, links);
    for (const Finding& link : links)
      if (link.mended_gb_per_s)
        finding.mended_gb_per_s = std::max(finding.mended_gb_per_s.value_or(0), *link.mended_gb_per_s);
  }
  finding.rate_of = "rings as NCCL laid them out";
  found.push_back(std::move(finding));
}

void look_for_dead_links(const TopologyFile& file, Findings& found) {
  Finding finding;
  finding.id = "network-error";
  std::set<std::string> hosts;
  for (const LogText& warning : file.log->warnings) {
    const bool retries = has(warning.text, "error 12") || has(warning.text, "status=12");
    if (!retries && !has(warning.text, "Got completion from peer")) continue;
    hosts.insert(warning.host);
    if (finding.evidence.size() < 3) finding.evidence.push_back({file.name, warning.line, warning.text});
  }
  if (finding.evidence.empty()) return;
  finding.title = fmt::format("network operations failed on {}", joined(hosts));
  finding.stops_run = true;
  finding.cause =
      "error 12 is a peer that did not answer within the retries (NCCL_IB_TIMEOUT 20: 4.3 s, "
      "NCCL_IB_RETRY_CNT 7): a "
      "link, port or host that went away some 30 s before";
  finding.remedy = "ibstat and the switch's log for that port at that time; ethtool -S for errors and pauses";
  found.push_back(std::move(finding));
}

// Hosts whose lists of network cards differ.
void compare_nic_lists(const TopologyFile& file, Findings& found) {
  const auto names = [](const LogNicList& list) {
    std::set<std::string> all;
    for (const LogNic& nic : list.nics) all.insert(fmt::format("{}:{}", nic.name, nic.port));
    return all;
  };
  const LogNicList* first = nullptr;
  for (const LogNicList& list : file.log->nic_lists) {
    if (list.nics.empty()) continue;
    if (first == nullptr || list.host == first->host) {
      first = first == nullptr ? &list : first;
      continue;
    }
    if (names(list) == names(*first)) continue;
    Finding finding;
    finding.id = "hosts-with-different-nics";
    finding.title = fmt::format("{} and {} use different network cards", first->host, list.host);
    for (const LogNicList* const one : {first, &list})
      finding.evidence.push_back(
          {file.name, one->line, fmt::format("{}: {}", one->host, joined(names(*one)))});
    finding.cause =
        "a card that is down or excluded on one host; channels that enter by it have no counterpart";
    finding.remedy =
        "ibstat on both; make NCCL_IB_HCA the same everywhere; NCCL_IGNORE_NET_MISMATCH=0 turns it into an "
        "error";
    finding.stops_run = first->nics.size() != list.nics.size();
    found.push_back(std::move(finding));
  }
}

void look_for_missing_nvls(const TopologyFile& file, Findings& found) {
  const LogComm* const comm = largest_comm(*file.log);
  if (comm == nullptr || !comm->channel_counts || comm->channel_counts->nvls > 0) return;
  for (const LogText& warning : file.log->warnings)
    if (has(warning.text, "NVLS") && !has(warning.text, "disabled")) {
      Finding finding;
      finding.id = "nvls-failed";
      finding.title = "NVLink multicast is not used";
      finding.evidence.push_back({file.name, warning.line, warning.text});
      finding.cause = "the driver or fabric manager refused multicast memory";
      finding.remedy =
          "systemctl status nvidia-fabricmanager; in containers, give access to /dev/nvidia-caps-imex*";
      found.push_back(std::move(finding));
      return;
    }
}

}  // namespace

const LogComm* largest_comm(const NcclLog& log) {
  const auto found = std::ranges::max_element(log.comms, {}, &LogComm::rank_count);
  return found == log.comms.end() ? nullptr : &*found;
}

const LogSetting* setting_of(const NcclLog& log, std::string_view name) {
  const auto found = std::ranges::find(log.environment, name, &LogSetting::name);
  return found == log.environment.end() ? nullptr : &*found;
}

std::int32_t minor_version(const NcclLog& log) {
  log_text::Cursor cursor(log.version);
  return cursor.skip("2.") ? cursor.integer().value_or(30) : 30;
}

void look_at_log(const TopologyFile& file, Findings& found) {
  look_for_simple_order(file, found);
  look_for_dead_links(file, found);
  compare_nic_lists(file, found);
  look_for_missing_nvls(file, found);
}

// How ranks are joined: shared memory where GPUs could reach each other, sockets, cards without GPUDirect,
// rails that are left.
void look_at_connections(const TopologyFile& file, Findings& found) {
  struct Seen {
    std::size_t count = 0;
    const LogConnection* first = nullptr;
    std::set<std::string> edges;
    void add(const LogConnection& one) {
      if (count++ == 0) first = &one;
      if (edges.size() < 8) edges.insert(fmt::format("{} -> {}", one.from, one.to));
    }
  };
  Seen shm, socket, without_gdr, all_net;
  std::map<std::array<std::int32_t, 3>, std::pair<const LogConnection*, const LogConnection*>> edges;
  for (const LogComm& comm : file.log->comms)
    for (const LogConnection& one : comm.connections) {
      if (one.transport == LogTransport::kShm) shm.add(one);
      if (one.transport != LogTransport::kNet) continue;
      all_net.add(one);
      if (one.network == "Socket")
        socket.add(one);
      else if (!one.gpu_direct_rdma)
        without_gdr.add(one);
      auto& ends = edges[{one.channel, one.from, one.to}];
      if (one.send) (*one.send ? ends.first : ends.second) = &one;
    }
  const auto report = [&](const Seen& seen, const char* id, std::string title, const char* cause,
                          const char* remedy) {
    if (seen.count == 0) return;
    Finding finding;
    finding.id = id;
    finding.title = std::move(title);
    finding.evidence.push_back(
        {file.name, seen.first->line,
         fmt::format("channel {}: {} -> {} via {} (edges: {})", seen.first->channel, seen.first->from,
                     seen.first->to, seen.first->via, joined(seen.edges))});
    finding.cause = cause;
    finding.remedy = remedy;
    found.push_back(std::move(finding));
  };
  report(shm, "through-host-memory", fmt::format("{} connections go through host memory (SHM)", shm.count),
         "P2P is off or not allowed at the distance of these GPUs: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, GPUs of "
         "different "
         "sockets, a driver without P2P for this GPU, an IOMMU, or containers that don't share it",
         "nvidia-smi topo -p2p r shows whether the driver allows it; unset NCCL_P2P_DISABLE; disable ACS and "
         "the IOMMU "
         "on bare metal");
  report(
      socket, "socket-network", fmt::format("{} connections go over TCP sockets", socket.count),
      "no InfiniBand or RoCE device was found or allowed (NCCL_IB_DISABLE, NCCL_NET, no rdma device in the "
      "container)",
      "ibv_devinfo in the container; give it /dev/infiniband; unset NCCL_IB_DISABLE; check NCCL_IB_HCA");
  report(
      without_gdr, "no-gpudirect",
      fmt::format("{} of {} network connections don't use GPUDirect RDMA", without_gdr.count, all_net.count),
      "the card is too far from the GPU (beyond PXB), or nvidia-peermem is not loaded: data is copied "
      "through host "
      "memory",
      "lsmod | grep nvidia_peermem; NCCL_NET_GDR_LEVEL=SYS to try it regardless; a topology file in virtual "
      "machines");

  Seen crossing;
  for (const auto& [edge, ends] : edges)
    if (ends.first != nullptr && ends.second != nullptr && ends.first->net_device != ends.second->net_device)
      crossing.add(*ends.first);
  const bool one_rail_wanted = std::ranges::any_of(file.log->environment, [](const LogSetting& setting) {
    return setting.name == "NCCL_CROSS_NIC" && setting.value == "0";
  });
  report(crossing, one_rail_wanted ? "rails-crossed-against-setting" : "rails-crossed",
         fmt::format("{} of {} network edges leave by one card and arrive at another", crossing.count,
                     edges.size()),
         "rings or trees whose two ends use cards of different numbers; on a rail-only fabric those can't "
         "reach each "
         "other, on a rail-optimised one they cross the spine",
         "NCCL_CROSS_NIC=0 with a NCCL that keeps it on every edge, the same order of cards on all hosts, or "
         "a fabric "
         "that joins its rails");
  if (crossing.count > 0 && one_rail_wanted) found.back().stops_run = true;
}

}  // namespace orrery::diagnosis
