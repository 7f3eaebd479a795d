#include "simulator/job_faults.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/error.hpp"

namespace orrery::folding {
namespace {

// Less would make the last picosecond of a compute a matter of rounding.
constexpr double kLeastFactor = 0.001;

std::string_view name(Fault::What what) {
  if (what == Fault::What::kGpu) return "gpu";
  return what == Fault::What::kNic ? "nic" : "nvlink";
}

void check(const Program& program, const Fault& fault) {
  if (!fault.rank.valid() || fault.rank.index() >= program.role_of.size())
    fail(ErrorKind::kInput, "fault: there is no rank {}; ranks are 0 to {}", fault.rank.value,
         program.world_size() - 1);
  const bool possible = fault.factor == 0 || (fault.factor >= kLeastFactor && fault.factor <= 1);
  if (!possible)
    fail(ErrorKind::kInput, "fault of rank {}: factor is {}; expected 0, or {} to 1", fault.rank.value,
         fault.factor, kLeastFactor);
  if (fault.from < SimTime{} || (fault.until && *fault.until <= fault.from))
    fail(ErrorKind::kInput,
         "fault of rank {}: it lasts from {} s until {} s; expected an end after a beginning",
         fault.rank.value, fault.from.seconds(), fault.until.value_or(SimTime{}).seconds());
}

std::vector<NarrowedLink> links_of(const Router& router, const Fault& fault, std::int32_t device) {
  const std::vector<NarrowedLink> links =
      fault.what == Fault::What::kNic ? nic_links_of(router, device) : nvlinks_of(router, device);
  if (links.empty())
    fail(ErrorKind::kInput, "fault of rank {}: its GPU has no {} in cluster {}", fault.rank.value,
         name(fault.what), router.cluster().name);
  return links;
}

Course course_of(const std::vector<const Fault*>& faults) {
  std::set<SimTime> dates;
  for (const Fault* fault : faults) {
    dates.insert(fault->from);
    if (fault->until) dates.insert(*fault->until);
  }
  Course course;
  double before = 1;
  for (const SimTime date : dates) {
    double factor = 1;
    for (const Fault* fault : faults)
      if (fault->from <= date && (!fault->until || date < *fault->until)) factor *= fault->factor;
    if (factor != before) course.push_back({date, factor});
    before = factor;
  }
  return course;
}

}  // namespace

FaultPlan plan_faults(const Program& program, const Router& router, const JobOptions& options) {
  std::map<RankId, std::vector<const Fault*>> of_rank;
  std::map<LinkInstance, std::pair<NarrowedLink, std::vector<const Fault*>>> of_link;
  for (const Fault& fault : options.faults) {
    check(program, fault);
    if (fault.what == Fault::What::kGpu) {
      of_rank[fault.rank].push_back(&fault);
      continue;
    }
    for (const NarrowedLink& link : links_of(router, fault, program.device_of[fault.rank.index()])) {
      auto& [kept, faults] = of_link[link.link];
      kept = link;
      faults.push_back(&fault);
    }
  }
  FaultPlan plan;
  if (!of_rank.empty()) plan.of_rank.resize(program.role_of.size());
  for (const auto& [rank, faults] : of_rank) plan.of_rank[rank.index()] = course_of(faults);
  for (const auto& [instance, link] : of_link) {
    plan.links.push_back(link.first);
    plan.of_link.push_back(course_of(link.second));
  }
  return plan;
}

}  // namespace orrery::folding
