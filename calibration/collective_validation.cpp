#include "calibration/collective_validation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/csv.hpp"
#include "calibration/collective_machines.hpp"
#include "simulator/collective_time.hpp"

namespace orrery {
namespace {

constexpr double kNormal90 = 1.645;  // 90 % of a normal distribution lies within so many deviations.
constexpr double kLarge = 1 << 20;

std::optional<CollectiveKind> kind_of(std::string_view name) {
  if (name == "all_reduce") return CollectiveKind::kAllReduce;
  if (name == "all_gather") return CollectiveKind::kAllGather;
  if (name == "reduce_scatter") return CollectiveKind::kReduceScatter;
  if (name == "alltoall") return CollectiveKind::kAllToAll;
  if (name == "broadcast") return CollectiveKind::kBroadcast;
  return std::nullopt;
}

struct Machine {
  Router router;
  Profile profile;
};

struct Judge {
  ValidationReport report;
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::unique_ptr<Machine>> machines;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::int64_t> refused;

  const Machine& machine(const CsvRecord& row, const PublishedMachine& published, std::int64_t nodes) {
    std::unique_ptr<Machine>& known = machines[{row["gpu"], row["interconnect"], nodes}];
    if (known == nullptr) {
      Cluster cluster;
      cluster.name = row["gpu"];
      cluster.node = published.node;
      cluster.nodes = static_cast<std::int32_t>(nodes);
      known = std::make_unique<Machine>(Machine{Router(cluster), default_profile(cluster.node.gpu)});
    }
    return *known;
  }

  // Why a row can't be predicted; fills `predicted` otherwise.
  std::string predict(const CsvRecord& row, ValidationRow& predicted);
  void add(const CsvRecord& row);
};

// What the table's notes disqualify.
std::string noted(const std::string& notes) {
  if (notes.find("not a pure collective") != std::string::npos ||
      notes.find("copies included") != std::string::npos)
    return "copies are part of the measurement";
  if (notes.find("FLAG") != std::string::npos) return "flagged as inconsistent by the table";
  return {};
}

std::string Judge::predict(const CsvRecord& row, ValidationRow& predicted) {
  const std::optional<CollectiveKind> kind = kind_of(row["collective"]);
  if (!kind) return "not a collective of a Program";
  if (std::string reason = noted(row["notes"]); !reason.empty()) return reason;
  const MachineAnswer answer = published_machine(row["gpu"], row["interconnect"]);
  if (!answer.machine) return answer.refusal.reason;
  const std::optional<double> size = row.number_if_given("size_bytes"), time = row.number_if_given("time_us");
  if (!size || !time || *time <= 0 || *size < 1) return "no size or no time published";

  const std::int64_t gpus = row.integer("gpus");
  const std::int64_t nodes = answer.machine->one_domain ? 1 : row.integer("nodes");
  const std::int64_t per_node = answer.machine->node.gpus;
  if (gpus % nodes != 0 || gpus / nodes > per_node || gpus < 2) return "more GPUs than the machine has";
  if (nodes > 1 && answer.machine->node.nics == 0) return "NICs not stated";
  const Machine& on = machine(row, *answer.machine, nodes);
  std::vector<std::int32_t> devices;
  for (std::int64_t i = 0; i < gpus; ++i)
    devices.push_back(static_cast<std::int32_t>(i / (gpus / nodes) * per_node + i % (gpus / nodes)));

  const auto bytes = static_cast<std::int64_t>(std::llround(*size));
  predicted.measured_s = *time * 1e-6;
  const TransferCost cost = collective_alone(*kind, bytes, devices, on.router, on.profile);
  predicted.predicted_s = cost.seconds();
  const CostError error = collective_error(cost, nodes == 1, on.profile);
  const double spread = std::exp(kNormal90 * std::hypot(error.family_sigma, error.entry_sigma));
  predicted.lower_s = predicted.predicted_s / spread;
  predicted.upper_s = predicted.predicted_s * spread;
  return {};
}

void Judge::add(const CsvRecord& row) {
  const std::optional<double> size = row.number_if_given("size_bytes");
  const bool one_domain = row["interconnect"].find("NVL72") != std::string::npos || row["nodes"] == "1";
  ValidationRow predicted;
  predicted.id = row["id"];
  predicted.source = row["source"];
  predicted.gpu = row["gpu"];
  predicted.family = fmt::format("{}, {}, {}", row["collective"], one_domain ? "in a node" : "across nodes",
                                 size.value_or(0) >= kLarge ? "from 1 MiB" : "below 1 MiB");
  const std::string reason = predict(row, predicted);
  if (reason.empty())
    report.rows.push_back(std::move(predicted));
  else
    ++refused[{predicted.source, predicted.gpu, predicted.family, reason}];
}

}  // namespace

ValidationReport validate_collectives(const std::filesystem::path& file) {
  Judge judge;
  for (const CsvRecord& row : read_csv(file.string()).records) judge.add(row);
  for (const auto& [key, rows] : judge.refused) {
    const auto& [source, gpu, family, reason] = key;
    judge.report.refused.push_back({source, gpu, family, reason, rows});
  }
  group_rows(judge.report);
  return std::move(judge.report);
}

}  // namespace orrery
