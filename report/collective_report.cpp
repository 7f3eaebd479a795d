#include "report/collective_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

bool with_simgrid(std::span<const CollectiveSeries> all) {
  return std::ranges::any_of(
      all, [](const CollectiveSeries& one) { return one.rows.front().simgrid_time.has_value(); });
}

std::string line(const CollectiveRow& row, bool chosen) {
  std::string text =
      fmt::format("{:>14} {:<16} {:<7} {:>8} {:>12.2f} {:>8.2f} {:>8.2f} {:>12.2f}", row.bytes,
                  fmt::format("{}{}", to_string(row.algorithm), chosen ? " (auto)" : ""),
                  nccl::to_string(row.protocol), row.channels, row.time.seconds() * 1e6,
                  row.algbw_bytes_per_s * 1e-9, row.busbw_bytes_per_s * 1e-9, row.formula.seconds() * 1e6);
  if (row.simgrid_time) text += fmt::format(" {:>12.2f}", row.simgrid_time->seconds() * 1e6);
  return text;
}

Json row_json(const CollectiveRow& row) {
  Json entry{{"bytes", row.bytes},
             {"algorithm", to_string(row.algorithm)},
             {"protocol", nccl::to_string(row.protocol)},
             {"channels", row.channels},
             {"chunk_bytes", row.chunk_bytes},
             {"time_s", row.time.seconds()},
             {"algbw_bytes_per_s", row.algbw_bytes_per_s},
             {"busbw_bytes_per_s", row.busbw_bytes_per_s},
             {"formula_s", row.formula.seconds()}};
  if (row.simgrid_time) entry["simgrid_s"] = row.simgrid_time->seconds();
  return entry;
}

}  // namespace

std::int64_t efficient_bytes(std::span<const CollectiveRow> rows) {
  const double best =
      std::ranges::max_element(rows, {}, &CollectiveRow::busbw_bytes_per_s)->busbw_bytes_per_s;
  std::size_t from = rows.size();
  while (from > 0 && rows[from - 1].busbw_bytes_per_s >= kEfficientShare * best) --from;
  return rows[std::min(from, rows.size() - 1)].bytes;
}

std::vector<std::size_t> fastest(std::span<const CollectiveSeries> all) {
  std::vector<std::size_t> winners;
  for (std::size_t row = 0; row < all.front().rows.size(); ++row) {
    std::size_t winner = 0;
    for (std::size_t one = 1; one < all.size(); ++one)
      if (all[one].rows[row].time < all[winner].rows[row].time) winner = one;
    winners.push_back(winner);
  }
  return winners;
}

std::string to_table(std::span<const CollectiveSeries> all, CollectiveKind kind, const Cluster& cluster) {
  std::string text =
      fmt::format("{} over {} GPUs ({})\n", to_string(kind), cluster.gpu_count(), cluster.name);
  text += fmt::format("{:>14} {:<16} {:<7} {:>8} {:>12} {:>8} {:>8} {:>12}{}\n", "bytes", "algorithm",
                      "proto", "channels", "time us", "algbw", "busbw", "formula us",
                      with_simgrid(all) ? "   simgrid us" : "");
  const std::vector<std::size_t> winners = fastest(all);
  for (std::size_t row = 0; row < winners.size(); ++row)
    for (std::size_t one = 0; one < all.size(); ++one)
      text += line(all[one].rows[row], all.size() > 1 && all[one].algorithm == "auto") +
              (all.size() > 1 && one == winners[row] ? "  fastest\n" : "\n");
  text += "algbw and busbw in GB/s, as nccl-tests has them\n";
  if (winners.size() > 1)
    for (const CollectiveSeries& one : all)
      text += fmt::format("{}: {:.0f} % of its best busbw from {} on\n", one.algorithm, 100 * kEfficientShare,
                          format_bytes(static_cast<double>(efficient_bytes(one.rows))));
  return text;
}

std::string to_json(std::span<const CollectiveSeries> all, CollectiveKind kind, const Cluster& cluster) {
  Json object{{"collective", to_string(kind)}, {"gpus", cluster.gpu_count()}, {"cluster", cluster.name}};
  object["rows"] = Json::array();
  for (const CollectiveSeries& one : all)
    for (const CollectiveRow& row : one.rows) object["rows"].push_back(row_json(row));
  object["efficient"] = Json::array();
  for (const CollectiveSeries& one : all)
    object["efficient"].push_back({{"algorithm", one.algorithm}, {"bytes", efficient_bytes(one.rows)}});
  return object.dump(2) + "\n";
}

}  // namespace orrery
