// Who isn't there: ranks that did not enter an operation which the others of a communicator wait in, and
// ranks that entered another one.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/remap.hpp"
#include "report/diagnose_rules.hpp"

namespace orrery::diagnosis {
namespace {

constexpr std::size_t kShown = 4;

std::string place(const LogComm& comm, std::int32_t rank) {
  const auto found = std::ranges::find(comm.ranks, rank, &LogRank::rank);
  return found == comm.ranks.end() || found->host.empty() ? fmt::format("rank {}", rank)
                                                          : fmt::format("rank {} on {}", rank, found->host);
}

std::string text_of(const LogOperation& operation) {
  return fmt::format("rank {} entered {} number {} of {} elements last", operation.rank, operation.function,
                     operation.number, operation.elements);
}

// What to do about a communicator that hangs, in the order in which it works, with the pauses that remapping
// reckons with.
std::string order_of_steps(std::int32_t ranks) {
  const RemapCosts costs;
  return fmt::format(
      "1. stop all ranks from starting more; 2. agree on who is lost; 3. ncclCommAbort (or ncclCommShrink "
      "with "
      "ABORT) on every rank that is left, the other GPUs of the same process too, within {:.0f} s, else kill "
      "the "
      "process; 4. make the new communicator, about {:.1f} s for {} ranks (a new process {:.1f} s more to "
      "load "
      "kernels); 5. only then let the others exit. py-spy dump and nvidia-smi on the host show what holds it "
      "up",
      costs.detect_network_s, costs.init_base_s + costs.init_per_rank_s * std::max(1, ranks - 1),
      std::max(1, ranks - 1), costs.load_kernels_s);
}

// The operation that most ranks entered last. Nothing where no number stands out.
const LogOperation* where_most_wait(const LogComm& comm) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const LogOperation& operation : comm.last_operations) ++counts[operation.number];
  const auto& [number, count] = *counts.rbegin();
  if (2 * count <= comm.last_operations.size()) return nullptr;
  return &*std::ranges::find(comm.last_operations, number, &LogOperation::number);
}

void add_missing(const TopologyFile& file, const LogComm& comm, const LogOperation& awaited,
                 Findings& found) {
  std::vector<const LogOperation*> behind;
  for (const LogOperation& operation : comm.last_operations)
    if (operation.number < awaited.number) behind.push_back(&operation);
  if (behind.empty()) return;
  Finding finding;
  finding.id = "rank-behind";
  finding.title = behind.size() == 1 ? fmt::format("{} did not enter {} number {}, in which {} ranks wait",
                                                   place(comm, behind.front()->rank), awaited.function,
                                                   awaited.number, comm.last_operations.size() - 1)
                                     : fmt::format("{} ranks did not enter {} number {}, in which {} wait",
                                                   behind.size(), awaited.function, awaited.number,
                                                   comm.last_operations.size() - behind.size());
  for (std::size_t i = 0; i < std::min(kShown, behind.size()); ++i)
    finding.evidence.push_back({file.name, behind[i]->line, text_of(*behind[i])});
  finding.evidence.push_back({file.name, awaited.line, text_of(awaited)});
  finding.cause =
      "that rank's host thread is stuck or died before the call, or it left the loop (an exception, another "
      "number of batches); the log ends like this";
  finding.remedy = order_of_steps(comm.rank_count);
  finding.stops_run = true;
  found.push_back(std::move(finding));
}

void add_different(const TopologyFile& file, const LogComm& comm, const LogOperation& awaited,
                   Findings& found) {
  const auto other = std::ranges::find_if(comm.last_operations, [&](const LogOperation& operation) {
    return operation.number == awaited.number &&
           (operation.function != awaited.function || operation.elements != awaited.elements);
  });
  // Sizes may differ where ranks exchange as much as they have.
  if (other == comm.last_operations.end() || awaited.function == "Send" || awaited.function == "Recv") return;
  Finding finding;
  finding.id = "operations-differ";
  finding.title =
      fmt::format("operation number {} is {} of {} elements on one rank and {} of {} on another",
                  awaited.number, awaited.function, awaited.elements, other->function, other->elements);
  for (const LogOperation* one : {&awaited, &*other})
    finding.evidence.push_back({file.name, one->line, text_of(*one)});
  finding.cause =
      "ranks went different ways in the program; NCCL doesn't compare calls, so it hangs or gives "
      "wrong results";
  finding.remedy = "TORCH_DISTRIBUTED_DEBUG=DETAIL compares calls before they start";
  finding.stops_run = true;
  found.push_back(std::move(finding));
}

}  // namespace

void look_for_missing_ranks(const TopologyFile& file, Findings& found) {
  for (const LogComm& comm : file.log->comms) {
    // A communicator that was closed came to its end; of one with ranks that say nothing the log is only a
    // part.
    const bool all =
        comm.rank_count > 1 && static_cast<std::int32_t>(comm.last_operations.size()) == comm.rank_count;
    if (!all || comm.ended == comm.rank_count) continue;
    const LogOperation* const awaited = where_most_wait(comm);
    if (awaited == nullptr) continue;
    add_missing(file, comm, *awaited, found);
    add_different(file, comm, *awaited, found);
  }
}

}  // namespace orrery::diagnosis
