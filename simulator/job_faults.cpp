#include "simulator/job_faults.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/error.hpp"

namespace orrery {

std::string_view to_string(Fault::What what) {
  switch (what) {
    case Fault::What::kGpu: return "gpu";
    case Fault::What::kNic: return "nic";
    case Fault::What::kNvLink: return "nvlink";
    case Fault::What::kNode: return "node";
    case Fault::What::kLeaf: return "leaf";
    case Fault::What::kUplink: return "uplink";
  }
  return "";
}

namespace folding {
namespace {

// Less would make the last picosecond of a compute a matter of rounding.
constexpr double kLeastFactor = 0.001;

void check(const Program& program, const Cluster& cluster, const Fault& fault) {
  if (!fault.rank.valid() || fault.rank.index() >= program.role_of.size())
    fail(ErrorKind::kInput, "fault: there is no rank {}; ranks are 0 to {}", fault.rank.value,
         program.world_size() - 1);
  if (fault.peer.valid()) {
    const auto node = [&](RankId rank) { return program.device_of[rank.index()] / cluster.node.gpus; };
    const bool there = fault.peer.index() < program.role_of.size() && fault.peer != fault.rank;
    if (fault.what != Fault::What::kNvLink || !there || node(fault.peer) != node(fault.rank))
      fail(ErrorKind::kInput,
           "fault of rank {}: peer is {}; expected another rank of the same node, and what: nvlink",
           fault.rank.value, fault.peer.value);
  }
  const bool possible = fault.factor == 0 || (fault.factor >= kLeastFactor && fault.factor <= 1);
  if (!possible)
    fail(ErrorKind::kInput, "fault of rank {}: factor is {}; expected 0, or {} to 1", fault.rank.value,
         fault.factor, kLeastFactor);
  if (fault.from < SimTime{} || (fault.until && *fault.until <= fault.from))
    fail(ErrorKind::kInput,
         "fault of rank {}: it lasts from {} s until {} s; expected an end after a beginning",
         fault.rank.value, fault.from.seconds(), fault.until.value_or(SimTime{}).seconds());
}

void append(const std::vector<NarrowedLink>& more, std::vector<NarrowedLink>& links) {
  links.insert(links.end(), more.begin(), more.end());
}

std::vector<NarrowedLink> node_links_of(const Router& router, std::int32_t device) {
  const std::int32_t gpus = router.cluster().node.gpus, first = device / gpus * gpus;
  std::vector<NarrowedLink> links;
  for (std::int32_t gpu = first; gpu < first + gpus; ++gpu) {
    append(nvlinks_of(router, gpu), links);
    append(nic_links_of(router, gpu), links);
  }
  return links;
}

// Trunks, and the cables of all network cards that hang on the leaf switch.
std::vector<NarrowedLink> leaf_links_of(const Router& router, std::int32_t device) {
  std::vector<NarrowedLink> links = uplinks_of(router, device);
  if (router.cluster().nodes == 1) return links;
  const std::int32_t leaf = router.leaf(device);
  for (std::int32_t other = 0; other < router.cluster().gpu_count(); ++other)
    if (router.leaf(other) == leaf) append(nic_links_of(router, other), links);
  return links;
}

// Whose compute the fault slows.
std::vector<RankId> ranks_of(const Program& program, const Router& router, const Fault& fault) {
  if (fault.what == Fault::What::kGpu) return {fault.rank};
  std::vector<RankId> ranks;
  if (fault.what != Fault::What::kNode) return ranks;
  const std::int32_t gpus = router.cluster().node.gpus;
  const std::int32_t node = program.device_of[fault.rank.index()] / gpus;
  for (std::size_t rank = 0; rank < program.device_of.size(); ++rank)
    if (program.device_of[rank] / gpus == node) ranks.emplace_back(static_cast<std::int64_t>(rank));
  return ranks;
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

std::vector<NarrowedLink> links_of(const Router& router, const Fault& fault, std::int32_t device,
                                   std::int32_t peer) {
  std::vector<NarrowedLink> links;
  switch (fault.what) {
    case Fault::What::kGpu: return links;
    case Fault::What::kNic: links = nic_links_of(router, device); break;
    case Fault::What::kNvLink:
      links = peer < 0 ? nvlinks_of(router, device) : nvlinks_between(router, device, peer);
      break;
    case Fault::What::kNode: links = node_links_of(router, device); break;
    case Fault::What::kLeaf: links = leaf_links_of(router, device); break;
    case Fault::What::kUplink: links = uplinks_of(router, device); break;
  }
  if (links.empty() && fault.what != Fault::What::kNode)
    fail(ErrorKind::kInput, "fault of rank {}: its GPU has no {}{} in cluster {}", fault.rank.value,
         to_string(fault.what), peer < 0 ? "" : fmt::format(" to rank {}'s", fault.peer.value),
         router.cluster().name);
  std::ranges::sort(links, {}, &NarrowedLink::link);
  const auto repeated = std::ranges::unique(links, {}, &NarrowedLink::link);
  links.erase(repeated.begin(), repeated.end());
  return links;
}

FaultPlan plan_faults(const Program& program, const Router& router, const JobOptions& options) {
  std::map<RankId, std::vector<const Fault*>> of_rank;
  std::map<LinkInstance, std::pair<NarrowedLink, std::vector<const Fault*>>> of_link;
  for (const Fault& fault : options.faults) {
    check(program, router.cluster(), fault);
    for (const RankId rank : ranks_of(program, router, fault)) of_rank[rank].push_back(&fault);
    for (const NarrowedLink& link :
         links_of(router, fault, program.device_of[fault.rank.index()],
                  fault.peer.valid() ? program.device_of[fault.peer.index()] : -1)) {
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

}  // namespace folding
}  // namespace orrery
