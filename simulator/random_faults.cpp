#include "simulator/random_faults.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "simulator/link_paths.hpp"

namespace orrery {
namespace {

constexpr double kHour = 3600;
// Dates beyond are never: SimTime ends at 9e6 s.
constexpr double kLastDate = 8e6;

double exponential(Random& random, double mean) { return -mean * std::log1p(-random.uniform()); }

SimTime whole_microseconds(double seconds) {
  return {std::llround(seconds * 1e6) * SimTime{1'000'000}.picoseconds};
}

}  // namespace

std::vector<RankId> parts_of(Fault::What what, const Router& router) {
  const Cluster& cluster = router.cluster();
  std::vector<RankId> parts;
  std::set<std::int64_t> seen;
  for (std::int32_t device = 0; device < cluster.gpu_count(); ++device) {
    std::int64_t part = -1;
    switch (what) {
      case Fault::What::kGpu: part = device; break;
      case Fault::What::kNode: part = device / cluster.node.gpus; break;
      case Fault::What::kNvLink:
        if (!folding::nvlinks_of(router, device).empty()) part = device;
        break;
      case Fault::What::kNic:
        if (const auto links = folding::nic_links_of(router, device); !links.empty())
          part = links.front().link;
        break;
      case Fault::What::kLeaf:
        if (cluster.nodes > 1) part = router.leaf(device);
        break;
      case Fault::What::kUplink:
        if (const auto links = folding::uplinks_of(router, device); !links.empty()) part = links.front().link;
        break;
    }
    if (part >= 0 && seen.insert(part).second) parts.emplace_back(device);
  }
  return parts;
}

std::vector<Fault> draw_faults(const RandomFaults& random, const Router& router, SimTime horizon) {
  std::vector<Fault> faults;
  for (const FaultRate& rate : random.rates) {
    if (rate.per_hour <= 0) continue;
    const std::vector<RankId> parts = parts_of(rate.what, router);
    if (parts.empty())
      fail(ErrorKind::kInput, "random_faults: cluster {} has no {} that could fail; leave it out",
           router.cluster().name, to_string(rate.what));
    // One stream of numbers a kind, whatever else there is.
    Random draws(mix64(random.seed) ^ mix64(static_cast<std::uint64_t>(&rate - random.rates.data()) + 1));
    const double mean_gap_s = kHour / (rate.per_hour * static_cast<double>(parts.size()));
    std::vector<double> repaired_at(parts.size(), 0);
    for (double now_s = exponential(draws, mean_gap_s); now_s < horizon.seconds();
         now_s += exponential(draws, mean_gap_s)) {
      const auto part =
          static_cast<std::size_t>(draws.between(0, static_cast<std::int64_t>(parts.size()) - 1));
      const double repair_s = exponential(draws, rate.repair_s);
      if (now_s < repaired_at[part]) continue;
      repaired_at[part] = rate.repair_s > 0 ? now_s + repair_s : std::numeric_limits<double>::infinity();
      Fault fault{parts[part], rate.what, rate.factor, whole_microseconds(now_s), {}};
      if (repaired_at[part] < kLastDate)
        fault.until = std::max(whole_microseconds(repaired_at[part]), fault.from + SimTime{1'000'000});
      faults.push_back(fault);
    }
  }
  return faults;
}

}  // namespace orrery
