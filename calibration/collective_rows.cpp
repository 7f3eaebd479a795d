#include "calibration/collective_rows.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/csv.hpp"
#include "calibration/collective_machines.hpp"

namespace orrery {
namespace {

std::optional<CollectiveKind> kind_of(std::string_view name) {
  if (name == "all_reduce") return CollectiveKind::kAllReduce;
  if (name == "all_gather") return CollectiveKind::kAllGather;
  if (name == "reduce_scatter") return CollectiveKind::kReduceScatter;
  if (name == "alltoall") return CollectiveKind::kAllToAll;
  if (name == "broadcast") return CollectiveKind::kBroadcast;
  return std::nullopt;
}

// What the table's notes disqualify.
std::string noted(const std::string& notes) {
  if (notes.find("not a pure collective") != std::string::npos ||
      notes.find("copies included") != std::string::npos)
    return "copies are part of the measurement";
  if (notes.find("FLAG") != std::string::npos) return "flagged as inconsistent by the table";
  return {};
}

class Reader {
 public:
  PublishedCollective read(const CsvRecord& row) {
    PublishedCollective published;
    published.id = row["id"];
    published.source = row["source"];
    published.gpu = row["gpu"];
    published.interconnect = row["interconnect"];
    published.collective = row["collective"];
    published.size_bytes = row.number_if_given("size_bytes").value_or(0);
    published.one_node = published.interconnect.find("NVL72") != std::string::npos || row["nodes"] == "1";
    published.refusal = measure(row, published);
    return published;
  }

 private:
  // Why the row can't be predicted.
  std::string measure(const CsvRecord& row, PublishedCollective& published) {
    const std::optional<CollectiveKind> kind = kind_of(published.collective);
    if (!kind) return "not a collective of a Program";
    if (std::string reason = noted(row["notes"]); !reason.empty()) return reason;
    const MachineAnswer answer = published_machine(published.gpu, published.interconnect);
    if (!answer.machine) return answer.refusal.reason;
    const double size = published.size_bytes;
    const std::optional<double> time = row.number_if_given("time_us");
    if (!time || *time <= 0 || size < 1) return "no size or no time published";

    const std::int64_t gpus = row.integer("gpus");
    const std::int64_t nodes = answer.machine->one_domain ? 1 : row.integer("nodes");
    const std::int64_t per_node = answer.machine->node.gpus;
    if (gpus % nodes != 0 || gpus / nodes > per_node || gpus < 2) return "more GPUs than the machine has";
    if (nodes > 1 && answer.machine->node.nics == 0) return "NICs not stated";
    published.one_node = nodes == 1;
    published.machine = machine(published, *answer.machine, nodes);
    published.measured.kind = *kind;
    published.measured.bytes = static_cast<std::int64_t>(std::llround(size));
    published.measured.time_s = *time * 1e-6;
    for (std::int64_t i = 0; i < gpus; ++i)
      published.measured.devices.push_back(
          static_cast<std::int32_t>(i / (gpus / nodes) * per_node + i % (gpus / nodes)));
    return {};
  }

  std::shared_ptr<const MeasuredMachine> machine(const PublishedCollective& row,
                                                 const PublishedMachine& published, std::int64_t nodes) {
    auto& known = machines_[{row.gpu, row.interconnect, nodes}];
    if (known == nullptr) {
      Cluster cluster;
      cluster.name = row.gpu;
      cluster.node = published.node;
      cluster.nodes = static_cast<std::int32_t>(nodes);
      known = std::make_shared<const MeasuredMachine>(
          MeasuredMachine{Router(cluster), default_profile(cluster.node.gpu)});
    }
    return known;
  }

  std::map<std::tuple<std::string, std::string, std::int64_t>, std::shared_ptr<const MeasuredMachine>>
      machines_;
};

}  // namespace

std::vector<PublishedCollective> read_published_collectives(const std::filesystem::path& file) {
  Reader reader;
  std::vector<PublishedCollective> rows;
  for (const CsvRecord& row : read_csv(file.string()).records) rows.push_back(reader.read(row));
  return rows;
}

}  // namespace orrery
