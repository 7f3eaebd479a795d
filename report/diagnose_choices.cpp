// Algorithms that NCCL chose, or was made to choose, against the twin's own time for the same call.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/collective_sweep.hpp"
#include "report/diagnose_rules.hpp"
#include "topology/import/host_node.hpp"

namespace orrery::diagnosis {
namespace {

constexpr double kWorthwhile = 1.1;
// Chunks of larger communicators take minutes to simulate.
constexpr std::int32_t kMostRanks = 128;
constexpr std::size_t kMostSizes = 3;
constexpr double kAgreement = 0.25;
constexpr std::int64_t kSmallest = 64 << 10, kLargest = std::int64_t{1} << 30;
constexpr double kHopLatency = 300e-9;  // As in scenario files.

constexpr std::array kRivals{
    std::pair{CollectiveAlgorithm::kRing, "Ring"}, std::pair{CollectiveAlgorithm::kTree, "Tree"},
    std::pair{CollectiveAlgorithm::kNvls, "NVLS"}, std::pair{CollectiveAlgorithm::kNvlsTree, "NVLSTree"}};

std::string size(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::optional<CollectiveAlgorithm> algorithm_of(const std::string& word) {
  for (const auto& [algorithm, name] : kRivals)
    if (word == name) return algorithm;
  return std::nullopt;
}

std::optional<nccl::Communicator> communicator(const Host& host, const LogComm& comm, const NcclLog& log,
                                               bool as_set) {
  nccl::SystemOptions options;
  options.other_nodes = comm.node_count > 1;
  options.nccl_minor = minor_version(log);
  try {
    std::vector<std::pair<std::string, std::string>> settings;
    for (const LogSetting& setting : log.environment)
      if (as_set || setting.name != "NCCL_ALGO") settings.emplace_back(setting.name, setting.value);
    options.variables = nccl::read_variables(settings).values;
    const nccl::System system = nccl::make_system(host, options);
    return nccl::make_communicator(system, nccl::search_graphs(system), comm.rank_count, comm.node_count);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// "Tree up to 4.0 MiB, NVLSTree up to 256.0 MiB, then Ring"
std::string take_overs(const nccl::Communicator& comm) {
  std::string text;
  std::optional<nccl::Algorithm> now;
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    const nccl::Algorithm next = nccl::choose(CollectiveKind::kAllReduce, bytes, comm).algorithm;
    if (now && next != *now) text += fmt::format("{} up to {}, ", nccl::to_string(*now), size(bytes / 2));
    now = next;
  }
  return text + (text.empty() ? "" : "then ") + std::string(nccl::to_string(*now));
}

// What NCCL_ALGO costs where it costs most, by NCCL's own prices.
void price_setting(const TopologyFile& file, const LogComm& comm, const Host& host, Findings& found) {
  const auto finding = std::ranges::find_if(found, [&](const Finding& one) {
    return one.id == "setting-NCCL_ALGO" && one.evidence.front().file == file.name;
  });
  if (finding == found.end()) return;
  const auto forced = communicator(host, comm, *file.log, true),
             free = communicator(host, comm, *file.log, false);
  if (!forced || !free) return;
  try {
    finding->cause += "; left alone NCCL takes for all-reduces " + take_overs(*free);
    double worst = 1;
    for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      const auto gb_per_s = [&](const nccl::Communicator& one) {
        const nccl::Price price = nccl::choose(CollectiveKind::kAllReduce, bytes, one).price;
        return static_cast<double>(bytes) / price.microseconds(bytes) * 1e-3;
      };
      const double now = gb_per_s(*forced), mended = gb_per_s(*free);
      if (mended <= worst * now) continue;
      worst = mended / now;
      finding->now_gb_per_s = now;
      finding->mended_gb_per_s = mended;
      finding->rate_of = fmt::format("all-reduce of {}, by NCCL's prices", size(bytes));
    }
  } catch (const Error&) {  // NCCL_ALGO leaves nothing: NCCL ends with an error too.
  }
}

struct Rival {
  const char* name = "";
  CollectiveRow row;
};

std::optional<CollectiveRow> simulate(const Cluster& cluster, CollectiveAlgorithm algorithm,
                                      std::int64_t bytes) {
  CollectiveSweep sweep;
  sweep.algorithm = algorithm;
  sweep.sizes = {bytes};
  try {
    return sweep_collective(sweep, cluster, default_profile(cluster.node.gpu)).front();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Those that NCCL could take here, by its settings too.
bool may_be_taken(const char* name, const nccl::Communicator& comm, std::int64_t bytes) {
  const nccl::Explanation all = nccl::explain(CollectiveKind::kAllReduce, bytes, comm);
  return std::ranges::any_of(all.cells, [&](const nccl::Cell& cell) {
    return cell.microseconds > 0 && nccl::to_string(cell.algorithm) == name;
  });
}

void check_choice(const TopologyFile& file, const Cluster& cluster, const nccl::Communicator& comm,
                  const LogChoice& choice, Findings& found) {
  const auto taken = algorithm_of(choice.algorithm);
  const auto now = taken ? simulate(cluster, *taken, choice.bytes) : std::nullopt;
  // Where the twin and NCCL's prices part over the algorithm that was taken, neither is a judge of the
  // others: the twin's trees of small calls take up to twice their price.
  if (!now || std::abs(now->time.seconds() / now->formula.seconds() - 1) > kAgreement) return;
  Rival best{"", *now};
  std::string times;
  for (const auto& [algorithm, name] : kRivals) {
    const auto row =
        may_be_taken(name, comm, choice.bytes) ? simulate(cluster, algorithm, choice.bytes) : std::nullopt;
    if (!row) continue;
    times += fmt::format("{}{} {:.4g} ms", times.empty() ? "" : ", ", name, row->time.seconds() * 1e3);
    if (row->time < best.row.time) best = {name, *row};
  }
  if (now->time.seconds() < kWorthwhile * best.row.time.seconds()) return;
  Finding finding;
  finding.id = "slower-algorithm";
  finding.title = fmt::format("{} is chosen for all-reduces of {}, {} is faster on this machine",
                              choice.algorithm, size(choice.bytes), best.name);
  finding.evidence.push_back({file.name, choice.line,
                              fmt::format("AllReduce: {} Bytes -> Algo {} proto {}", choice.bytes,
                                          choice.algorithm, choice.protocol)});
  finding.cause = fmt::format("NCCL's prices miss what the links give; simulated on them: {}", times);
  finding.remedy = fmt::format(
      "NCCL_ALGO=allreduce:{} where such calls dominate; measure both with nccl-tests", best.name);
  finding.now_gb_per_s = now->busbw_bytes_per_s * 1e-9;
  finding.mended_gb_per_s = best.row.busbw_bytes_per_s * 1e-9;
  finding.rate_of = fmt::format("all-reduce of {}, busbw", size(choice.bytes));
  found.push_back(std::move(finding));
}

}  // namespace

std::optional<Cluster> cluster_of(const Host& host, std::int32_t nodes) {
  try {
    std::vector<ImportNote> notes;
    Cluster cluster;
    cluster.node = node_of(host, gpu_type_of(host, notes), notes);
    cluster.nodes = nodes;
    cluster.name = host.source;
    cluster.fabric.hop_latency_s = kHopLatency;
    return cluster;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void look_at_choices(const TopologyFile& file, std::span<const Host> hosts, Findings& found) {
  const LogComm* const comm = largest_comm(*file.log);
  if (comm == nullptr || hosts.empty() || comm->node_count < 1) return;
  const Host& host = hosts.front();
  if (static_cast<std::int64_t>(host.gpus.size()) * comm->node_count != comm->rank_count) return;
  price_setting(file, *comm, host, found);
  // Inside a node NCCL's prices are held by measurements, and the twin's trees there by none.
  if (comm->node_count < 2 || comm->rank_count > kMostRanks) return;
  const std::optional<Cluster> cluster = cluster_of(host, comm->node_count);
  const auto prices = communicator(host, *comm, *file.log, false);
  if (!cluster || !prices) return;
  // The largest calls weigh most.
  std::vector<LogChoice> choices = comm->choices;
  std::erase_if(choices,
                [](const LogChoice& one) { return one.function != "AllReduce" || one.bytes < kSmallest; });
  std::ranges::stable_sort(choices, std::ranges::greater{}, &LogChoice::bytes);
  std::set<std::int64_t> seen;
  for (const LogChoice& choice : choices) {
    if (seen.size() == kMostSizes) break;
    if (choice.bytes <= kLargest && seen.insert(choice.bytes).second)
      check_choice(file, *cluster, *prices, choice, found);
  }
}

}  // namespace orrery::diagnosis
