#include "report/bucket_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "planner/lower.hpp"
#include "report/metrics.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

// Reductions of gradients that no bucket holds are named otherwise (RoleGradients): small ones of tensors
// that tensor-parallel ranks share, and the norm's.
bool is_bucket(const std::string& label) {
  const bool kind = label.ends_with("gradients.reduce") || label.ends_with("gradients.scatter");
  return kind && !label.starts_with("replicated_");
}

void count_buckets(const Program& program, BucketRow& row) {
  for (const Role& role : program.roles) {
    BucketRow of_role;
    for (const Instruction& instruction : role.instructions) {
      const auto* reduction = std::get_if<Collective>(&instruction.work);
      if (reduction == nullptr || instruction.purpose != Purpose::kGradientReduce) continue;
      if (!is_bucket(program.labels[static_cast<std::size_t>(instruction.label.value)])) continue;
      of_role.least_bytes =
          of_role.buckets == 0 ? reduction->bytes : std::min(of_role.least_bytes, reduction->bytes);
      of_role.most_bytes = std::max(of_role.most_bytes, reduction->bytes);
      of_role.aligned += reduction->bytes % kBucketGrain == 0;
      ++of_role.buckets;
    }
    if (of_role.buckets <= row.buckets) continue;
    row.buckets = of_role.buckets;
    row.least_bytes = of_role.least_bytes;
    row.most_bytes = of_role.most_bytes;
    row.aligned = of_role.aligned;
  }
}

std::string size(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

std::vector<BucketRow> study_buckets(const Graph& graph, const Plan& plan, const Cluster& cluster,
                                     const Profile& profile, std::span<const std::int64_t> sizes,
                                     const JobOptions& options) {
  std::vector<BucketRow> rows;
  for (const std::int64_t bytes : sizes) {
    Plan with = plan;
    with.bucket_bytes = bytes;
    const Program program = lower(graph, with);
    const Job job = make_job(program, cluster, profile, options);
    const StepShares shares = step_shares(program, run_fast(job));
    BucketRow row;
    row.asked_bytes = bytes;
    count_buckets(program, row);
    row.step_s = shares.step_s;
    row.idle = 1 - shares.fraction(shares.compute_s);
    row.exposed = shares.fraction(shares.exposed_s(Purpose::kGradientReduce));
    rows.push_back(row);
  }
  return rows;
}

std::string to_table(std::span<const BucketRow> rows) {
  std::string text = fmt::format(
      "Gradient buckets; a bucket holds whole layers\n{:>12} {:>8} {:>12} {:>12} {:>12} {:>10} {:>7} {:>8}\n",
      "bucket", "buckets", "smallest", "largest", "x 256 KiB", "step", "idle", "exposed");
  for (const BucketRow& row : rows)
    text += fmt::format("{:>12} {:>8} {:>12} {:>12} {:>12} {:>10} {:>5.1f} % {:>6.1f} %\n",
                        size(row.asked_bytes), row.buckets, size(row.least_bytes), size(row.most_bytes),
                        fmt::format("{} of {}", row.aligned, row.buckets),
                        format_time(from_seconds(row.step_s)), 100 * row.idle, 100 * row.exposed);
  return text +
         "idle: part of a step in which a GPU computes nothing; exposed: of it, in which it waits for "
         "gradients\n";
}

std::string to_json(std::span<const BucketRow> rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BucketRow& row : rows)
    list.push_back({{"bucket_bytes", row.asked_bytes},
                    {"buckets", row.buckets},
                    {"least_bytes", row.least_bytes},
                    {"most_bytes", row.most_bytes},
                    {"aligned", row.aligned},
                    {"step_s", row.step_s},
                    {"idle", row.idle},
                    {"exposed", row.exposed}});
  return list.dump(2) + "\n";
}

}  // namespace orrery
