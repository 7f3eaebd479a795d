// "It became slow after an upgrade": two logs or two graph files of one kind of machine beside each other.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/diagnose_rules.hpp"
#include "report/ring_report.hpp"

namespace orrery::diagnosis {
namespace {

constexpr double kWorthwhile = 1.05;

// What one file says of a job's rings.
struct Job {
  const TopologyFile* file = nullptr;
  std::string version;  // Empty: a graph file.
  std::int32_t ranks = 0, line = 0;
  std::size_t channels = 0;
  double gb_per_s = 0;  // Of all channels; 0: not said.
  std::string order;    // Of the first ring.
};

const nccl::Graph* ring_of(const std::vector<nccl::Graph>& graphs) {
  const auto found = std::ranges::find(graphs, nccl::GraphKind::kRing, &nccl::Graph::kind);
  return found == graphs.end() || found->channels.empty() ? nullptr : &*found;
}

void add_rate(const nccl::Graph& ring, bool several_nodes, Job& job) {
  job.gb_per_s = static_cast<double>(ring.channels.size()) *
                 (several_nodes ? ring.network_gb_per_s : ring.node_gb_per_s);
}

std::optional<Job> job_of(const TopologyFile& file) {
  Job job;
  job.file = &file;
  if (const nccl::Graph* ring = ring_of(file.graphs)) {
    job.ranks = static_cast<std::int32_t>(ring->channels.front().gpus.size());
    job.channels = ring->channels.size();
    job.order = fmt::format("{}", fmt::join(ring->channels.front().gpus, " "));
    add_rate(*ring, false, job);
    return job;
  }
  const LogComm* const comm = file.log ? largest_comm(*file.log) : nullptr;
  if (comm == nullptr || comm->rings.empty()) return std::nullopt;
  job.version = file.log->version;
  job.ranks = comm->rank_count;
  job.line = comm->rings.front().line;
  job.channels =
      static_cast<std::size_t>(std::max(comm->ring_count, static_cast<std::int32_t>(comm->rings.size())));
  job.order = fmt::format("{}", fmt::join(comm->rings.front().ranks, " "));
  for (const LogGraphs& graphs : comm->graphs)
    if (const nccl::Graph* ring = ring_of(graphs.graphs)) {
      add_rate(*ring, comm->node_count > 1, job);
      break;
    }
  return job;
}

std::string settings_that_differ(const Job& a, const Job& b) {
  if (!a.file->log || !b.file->log) return "";
  std::set<std::string> names;
  const auto compare = [&](const NcclLog& one, const NcclLog& other) {
    for (const LogSetting& setting : one.environment) {
      const LogSetting* const same = setting_of(other, setting.name);
      if (same == nullptr || same->value != setting.value) names.insert(setting.name);
    }
  };
  compare(*a.file->log, *b.file->log);
  compare(*b.file->log, *a.file->log);
  return fmt::format("{}", fmt::join(names, ", "));
}

Evidence evidence_of(const Job& job) {
  return {
      job.file->name, job.line,
      fmt::format("{}{} channels{}, the first ring is {}",
                  job.version.empty() ? "" : fmt::format("NCCL {}: ", job.version), job.channels,
                  job.gb_per_s > 0 ? fmt::format(" of {:.4g} GB/s together", job.gb_per_s) : "", job.order)};
}

void compare(const Job& a, const Job& b, Findings& found) {
  if (a.ranks != b.ranks || a.version.empty() != b.version.empty()) return;
  const bool rated = a.gb_per_s > 0 && b.gb_per_s > 0;
  const double one = rated ? a.gb_per_s : static_cast<double>(a.channels);
  const double two = rated ? b.gb_per_s : static_cast<double>(b.channels);
  if (std::max(one, two) < kWorthwhile * std::min(one, two)) return;
  const Job& slow = one < two ? a : b;
  const Job& fast = one < two ? b : a;
  const bool versions = slow.version != fast.version;
  Finding finding;
  finding.id = versions ? "versions-differ" : "graphs-differ";
  finding.title = fmt::format("{} gives {} channels where {} gives {}",
                              versions ? "NCCL " + slow.version : slow.file->name, slow.channels,
                              versions ? "NCCL " + fast.version : fast.file->name, fast.channels);
  finding.evidence = {evidence_of(slow), evidence_of(fast)};
  const std::string settings = settings_that_differ(slow, fast);
  finding.cause = versions ? "the search of the two versions ends differently on this machine"
                           : "the same machine was searched with other GPUs, cards or settings";
  finding.cause += slow.order == fast.order ? "; the first ring is the same" : "; ring orders differ too";
  if (!settings.empty()) finding.cause += "; settings that differ: " + settings;
  finding.remedy =
      "dump the faster one's graphs (NCCL_GRAPH_DUMP_FILE) and give them to the slower one "
      "(NCCL_GRAPH_FILE); "
      "orrery diagnose with the machine's topology file names the link that holds the search back";
  if (rated) {
    finding.now_gb_per_s = slow.gb_per_s;
    finding.mended_gb_per_s = fast.gb_per_s;
    finding.rate_of = "rings as NCCL laid them out";
  }
  found.push_back(std::move(finding));
}

}  // namespace

void compare_versions(std::span<const TopologyFile> files, Findings& found) {
  std::vector<Job> jobs;
  for (const TopologyFile& file : files)
    if (std::optional<Job> job = job_of(file)) jobs.push_back(std::move(*job));
  for (std::size_t b = 1; b < jobs.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) compare(jobs[a], jobs[b], found);
}

}  // namespace orrery::diagnosis
