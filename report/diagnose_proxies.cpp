// Messages between nodes: those that go through another GPU's network card (PXN), how many connections that
// makes for one proxy, and what posting messages costs its host thread.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/collective_sweep.hpp"
#include "report/diagnose_rules.hpp"
#include "simulator/queue_pairs.hpp"

namespace orrery::diagnosis {
namespace {

constexpr double kWorthwhile = 1.1;
// NCCL's defaults: bytes of a message between nodes (NCCL_P2P_NET_CHUNKSIZE), slots of a connection, and what
// posting one takes on Intel hosts and on others (NCCL_NET_OVERHEAD).
constexpr std::int64_t kNetChunkBytes = 128 << 10;
constexpr std::int32_t kSlots = 8;
constexpr double kPostIntel_s = 1e-6, kPostOther_s = 2e-6;
// All-to-alls over PXN are reported to hang from about so many nodes on (NVIDIA/nccl#1116).
constexpr std::int32_t kManyNodes = 14;
// Simulated at most; on more nodes the two ways compare alike.
constexpr std::int32_t kMostNodes = 4;
constexpr std::int64_t kAllToAllBytes = std::int64_t{64} << 20;

const LogConnection* through_another_gpu(const LogComm& comm) {
  const auto found = std::ranges::find_if(comm.connections, [](const LogConnection& one) {
    const std::int32_t own = one.send == false ? one.to : one.from;
    return one.transport == LogTransport::kNet && one.proxy_rank >= 0 && one.proxy_rank != own;
  });
  return found == comm.connections.end() ? nullptr : &*found;
}

Evidence evidence_of(const TopologyFile& file, const LogConnection& one) {
  return {file.name, one.line,
          fmt::format("channel {}: {} -> {} via {}", one.channel, one.from, one.to, one.via)};
}

void count_connections(const TopologyFile& file, const LogComm& comm, const LogConnection& first,
                       Findings& found) {
  if (comm.node_count < kManyNodes) return;
  const std::int32_t local = comm.rank_count / comm.node_count;
  const std::int32_t channels = comm.channel_counts ? std::max(1, comm.channel_counts->p2p_per_peer) : 1;
  const std::int64_t each_way = std::int64_t{local} * (comm.node_count - 1) * channels;
  Finding finding;
  finding.id = "many-proxy-connections";
  finding.title = fmt::format("an all-to-all over {} nodes makes {} connections each way for every proxy",
                              comm.node_count, each_way);
  finding.evidence.push_back(evidence_of(file, first));
  finding.cause = fmt::format(
      "with PXN a GPU's proxy sends for the {} GPUs of its node to its rail's GPU on {} others, {} channels "
      "each; "
      "with {} slots of {} a connection that is up to {} of buffers, and it grows with the nodes. Hangs are "
      "reported from {} nodes on",
      local, comm.node_count - 1, channels, kSlots, format_bytes(static_cast<double>(kNetChunkBytes)),
      format_bytes(static_cast<double>(each_way * kSlots * kNetChunkBytes)), kManyNodes);
  finding.remedy =
      "NCCL_P2P_PXN_LEVEL=0 or fewer NCCL_MAX_P2P_NCHANNELS; all-to-alls in groups of fewer nodes";
  found.push_back(std::move(finding));
}

void compare_with_direct(const TopologyFile& file, const LogComm& comm, const LogConnection& first,
                         const Host& host, Findings& found) {
  const std::optional<Cluster> cluster = cluster_of(host, std::min(comm.node_count, kMostNodes));
  if (!cluster) return;
  CollectiveSweep sweep;
  sweep.kind = CollectiveKind::kAllToAll;
  sweep.sizes = {kAllToAllBytes};
  const auto run = [&](CollectiveAlgorithm algorithm) {
    sweep.algorithm = algorithm;
    return sweep_collective(sweep, *cluster, default_profile(cluster->node.gpu)).front();
  };
  try {
    const CollectiveRow through = run(CollectiveAlgorithm::kPxn),
                        direct = run(CollectiveAlgorithm::kPairwise);
    if (through.time.seconds() < kWorthwhile * direct.time.seconds()) return;
    Finding finding;
    finding.id = "pxn-slower";
    finding.title = "messages through other GPUs' network cards are slower than direct ones on this machine";
    finding.evidence.push_back(evidence_of(file, first));
    finding.cause = fmt::format(
        "an all-to-all of {} a rank over {} nodes takes {:.4g} ms through the GPU of the right rail and "
        "{:.4g} ms "
        "directly, simulated; the way to that GPU is the bottleneck",
        format_bytes(static_cast<double>(kAllToAllBytes)), cluster->nodes, through.time.seconds() * 1e3,
        direct.time.seconds() * 1e3);
    finding.remedy = "NCCL_P2P_PXN_LEVEL=0, or NCCL_PXN_DISABLE=1 for collectives too";
    finding.now_gb_per_s = through.busbw_bytes_per_s * 1e-9;
    finding.mended_gb_per_s = direct.busbw_bytes_per_s * 1e-9;
    finding.rate_of = "all-to-all, busbw";
    found.push_back(std::move(finding));
  } catch (const Error&) {  // No such schedule on this machine.
  }
}

std::optional<double> value_of(const LogSetting* setting) {
  if (setting == nullptr) return std::nullopt;
  const char* const begin = setting->value.c_str();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  return end != begin && *end == '\0' && value > 0 && value < 1e12 ? std::optional(value) : std::nullopt;
}

// Who is late: the host thread that posts, or the wire.
void look_at_posting(const TopologyFile& file, const LogComm& comm, const Host& host, Findings& found) {
  const auto net = std::ranges::find(comm.connections, LogTransport::kNet, &LogConnection::transport);
  const auto card = std::ranges::max_element(host.nics, {}, &HostNic::bytes_per_s);
  if (net == comm.connections.end() || net->network == "Socket" || card == host.nics.end()) return;
  const LogSetting* const chunk = setting_of(*file.log, "NCCL_P2P_NET_CHUNKSIZE");
  const LogSetting* const overhead = setting_of(*file.log, "NCCL_NET_OVERHEAD");
  const bool intel = !host.cpus.empty() && host.cpus.front().vendor == "GenuineIntel";
  QueuePairs shape;
  shape.depth = kSlots;
  shape.message_bytes =
      static_cast<std::int64_t>(value_of(chunk).value_or(static_cast<double>(kNetChunkBytes)));
  shape.bytes_per_s = card->bytes_per_s;
  shape.post_s = value_of(overhead).value_or((intel ? kPostIntel_s : kPostOther_s) * 1e9) * 1e-9;
  if (!(shape.bytes_per_s > 0) || shape.message_bytes < 1) return;
  const ConnectionRate rate = connection_rate(shape);
  if (rate.limit != ConnectionLimit::kPosting || rate.bytes_per_s * kWorthwhile > shape.bytes_per_s) return;
  Finding finding;
  finding.id = "posting-late";
  finding.title = fmt::format("posting messages of {} takes the host longer than {} takes to send them",
                              format_bytes(static_cast<double>(shape.message_bytes)), card->name);
  for (const LogSetting* setting : {chunk, overhead})
    if (setting != nullptr)
      finding.evidence.push_back({file.name, setting->line,
                                  fmt::format("{} set by environment to {}", setting->name, setting->value)});
  finding.evidence.push_back(evidence_of(file, *net));
  finding.cause = fmt::format(
      "a message takes {:.3g} us to post and {:.3g} us on the wire, so the proxy's thread is late, and "
      "whatever "
      "delays it shows as jitter",
      shape.post_s * 1e6, static_cast<double>(shape.message_bytes) / shape.bytes_per_s * 1e6);
  finding.remedy = "larger messages (NCCL_P2P_NET_CHUNKSIZE), a core of its own for the proxy thread";
  finding.now_gb_per_s = rate.bytes_per_s * 1e-9;
  finding.mended_gb_per_s = shape.bytes_per_s * 1e-9;
  finding.rate_of = "one connection";
  found.push_back(std::move(finding));
}

}  // namespace

void look_at_proxies(const TopologyFile& file, std::span<const Host> hosts, Findings& found) {
  const LogComm* const comm = largest_comm(*file.log);
  if (comm == nullptr || comm->node_count < 2 || comm->rank_count < comm->node_count) return;
  if (const LogConnection* const first = through_another_gpu(*comm)) {
    count_connections(file, *comm, *first, found);
    if (!hosts.empty()) compare_with_direct(file, *comm, *first, hosts.front(), found);
  }
  if (!hosts.empty()) look_at_posting(file, *comm, hosts.front(), found);
}

}  // namespace orrery::diagnosis
