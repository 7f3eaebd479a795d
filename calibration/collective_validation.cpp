#include "calibration/collective_validation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>

#include "calibration/collective_rows.hpp"
#include "simulator/collective_time.hpp"

namespace orrery {
namespace {

constexpr double kNormal90 = 1.645;  // 90 % of a normal distribution lies within so many deviations.
constexpr double kLarge = 1 << 20;

ValidationRow predict(const PublishedCollective& published, const Profile& profile, std::string family) {
  ValidationRow row;
  row.id = published.id;
  row.source = published.source;
  row.gpu = published.gpu;
  row.family = std::move(family);
  const CollectiveMeasurement& measured = published.measured;
  const TransferCost cost =
      collective_alone(measured.kind, measured.bytes, measured.devices, published.machine->router, profile);
  const CostError error = collective_error(cost, published.one_node, profile);
  const double spread = std::exp(kNormal90 * std::hypot(error.family_sigma, error.entry_sigma));
  row.measured_s = measured.time_s;
  row.predicted_s = cost.seconds();
  row.lower_s = row.predicted_s / spread;
  row.upper_s = row.predicted_s * spread;
  return row;
}

// Who measured: the repository or thread, without the file in it.
std::string publisher(const std::string& source) { return source.substr(0, source.find(' ')); }

// The sweeps of one group of GPUs, by collective.
struct MeasuredGroup {
  std::map<std::string, std::vector<const PublishedCollective*>> sweeps;
};

// A sweep calibrates if it has so many sizes, or says too little about three figures.
constexpr std::size_t kLeastSweep = 8;

void predict_others(const MeasuredGroup& group, const std::string& publisher, ValidationReport& report) {
  for (const auto& [fitted, sweep] : group.sweeps) {
    if (sweep.size() < kLeastSweep || group.sweeps.size() < 2) continue;
    std::vector<CollectiveMeasurement> measurements;
    for (const PublishedCollective* row : sweep) measurements.push_back(row->measured);
    const MeasuredMachine& machine = *sweep.front()->machine;
    const Profile profile = calibrate_collectives(measurements, machine.router, machine.profile).profile;
    for (const auto& [collective, rows] : group.sweeps)
      for (const PublishedCollective* row : rows) {
        if (collective == fitted || row->size_bytes < kLarge) continue;
        report.rows.push_back(
            predict(*row, profile,
                    fmt::format("{} of {} from {}", collective, row->measured.devices.size(), fitted)));
        report.rows.back().source = publisher;
      }
  }
}

}  // namespace

ValidationReport validate_collectives(const std::filesystem::path& file) {
  ValidationReport report;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::int64_t> refused;
  for (const PublishedCollective& row : read_published_collectives(file)) {
    std::string family =
        fmt::format("{}, {}, {}", row.collective, row.one_node ? "in a node" : "across nodes",
                    row.size_bytes >= kLarge ? "from 1 MiB" : "below 1 MiB");
    if (row.refusal.empty())
      report.rows.push_back(predict(row, row.machine->profile, std::move(family)));
    else
      ++refused[{row.source, row.gpu, std::move(family), row.refusal}];
  }
  for (const auto& [key, rows] : refused) {
    const auto& [source, gpu, family, reason] = key;
    report.refused.push_back({source, gpu, family, reason, rows});
  }
  group_rows(report);
  return report;
}

ValidationReport validate_calibrated_collectives(const std::filesystem::path& file) {
  const std::vector<PublishedCollective> published = read_published_collectives(file);
  using Key = std::tuple<std::string, std::string, std::string, std::vector<std::int32_t>>;
  std::map<Key, MeasuredGroup> groups;
  for (const PublishedCollective& row : published)
    if (row.refusal.empty())
      groups[{publisher(row.source), row.gpu, row.interconnect, row.measured.devices}]
          .sweeps[row.collective]
          .push_back(&row);
  ValidationReport report;
  for (const auto& [key, group] : groups) predict_others(group, std::get<0>(key), report);
  group_rows(report);
  return report;
}

}  // namespace orrery
