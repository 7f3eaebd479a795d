#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "simulator/cost.hpp"
#include "simulator/fold.hpp"
#include "simulator/job.hpp"
#include "simulator/job_faults.hpp"
#include "simulator/transfer.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {
namespace {

using folding::LabelledGraph;
using folding::Member;
using folding::Place;
using folding::Places;
using folding::Recipe;

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// Slowdown by rank; 1 for most.
std::vector<double> slowdowns(const Program& program, const JobOptions& options) {
  std::vector<double> factors(program.role_of.size(), 1.0);
  for (const auto& [rank, factor] : options.stragglers) {
    if (!rank.valid() || rank.index() >= factors.size())
      fail(ErrorKind::kInput, "straggler: there is no rank {}; ranks are 0 to {}", rank.value,
           program.world_size() - 1);
    if (!(factor >= 1) || !std::isfinite(factor))
      fail(ErrorKind::kInput, "straggler: rank {} has slowdown {}; expected a factor of 1 or more",
           rank.value, factor);
    factors[rank.index()] = factor;
  }
  return factors;
}

void check_devices(const Program& program, const Cluster& cluster) {
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank)
    if (program.role_of[rank].valid() && program.device_of[rank] >= cluster.gpu_count())
      fail(ErrorKind::kInfeasible,
           "program {} puts rank {} on GPU {}, but cluster {} has {} GPUs ({} nodes of {}); add "
           "nodes or use fewer ranks",
           program.name, rank, program.device_of[rank], cluster.name, cluster.gpu_count(), cluster.nodes,
           cluster.node.gpus);
}

void check_rerouting(const Rerouting& rerouting, const Cluster& cluster) {
  const auto devices = index(cluster.gpu_count());
  assert(rerouting.relay.empty() || rerouting.relay.size() == devices);
  assert(rerouting.ring_position.empty() || rerouting.ring_position.size() == devices);
  for (std::size_t device = 0; device < rerouting.relay.size(); ++device)
    assert(rerouting.relay[device] / cluster.node.gpus ==
           static_cast<std::int32_t>(device) / cluster.node.gpus);
}

// Ranks that compute on the same cores, where those are fewer than the ranks.
struct CorePools {
  std::vector<std::int32_t> of_rank;  // −1: none.
  std::vector<std::int32_t> members;  // By pool: ranks.
};

CorePools find_core_pools(const Program& program, const Cluster& cluster) {
  CorePools pools;
  pools.of_rank.assign(program.role_of.size(), -1);
  if (cluster.node.cores == 0) return pools;
  std::vector<std::vector<std::size_t>> on_node(index(cluster.nodes));
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank)
    if (program.role_of[rank].valid())
      on_node[index(program.device_of[rank] / cluster.node.gpus)].push_back(rank);
  for (const std::vector<std::size_t>& ranks : on_node) {
    if (std::ssize(ranks) <= cluster.node.cores) continue;
    for (const std::size_t rank : ranks)
      pools.of_rank[rank] = static_cast<std::int32_t>(pools.members.size());
    pools.members.push_back(static_cast<std::int32_t>(ranks.size()));
  }
  return pools;
}

// Which ranks, places, links and pools are one class, numbered by their first member. −1: an idle rank.
struct Classes {
  std::vector<std::int32_t> of_rank, of_place, of_link, of_pool;
};

// Numbers colours 0, 1, … by first appearance.
std::vector<std::int32_t> renumbered(std::span<const std::int32_t> colours) {
  std::vector<std::int32_t> number(colours.empty() ? 0 : index(*std::ranges::max_element(colours)) + 1, -1);
  std::vector<std::int32_t> classes;
  std::int32_t next = 0;
  for (const std::int32_t colour : colours) {
    if (number[index(colour)] < 0) number[index(colour)] = next++;
    classes.push_back(number[index(colour)]);
  }
  return classes;
}

// Ranks, then places, then links, then pools of cores; a rank is joined to its places (labelled by its list
// of instructions there) and its pool, a place to its links (labelled by the count).
LabelledGraph join(const Program& program, const Places& places, const CorePools& pools) {
  const std::int32_t first_place = program.world_size();
  const std::int32_t first_link = first_place + static_cast<std::int32_t>(places.places.size());
  std::vector<folding::Edge> edges;
  edges.reserve(places.members.size() + places.links.size());
  for (std::size_t p = 0; p < places.places.size(); ++p) {
    const Place& place = places.places[p];
    const std::int32_t vertex = first_place + static_cast<std::int32_t>(p);
    for (std::int32_t m = place.members.begin; m < place.members.end; ++m)
      edges.push_back({places.members[index(m)].rank, vertex, places.members[index(m)].list});
    for (std::int32_t l = place.links.begin; l < place.links.end; ++l)
      edges.push_back({vertex, first_link + places.links[index(l)].link, places.links[index(l)].count});
  }
  const std::int32_t first_pool = first_link + static_cast<std::int32_t>(places.link_capacity.size());
  for (std::int32_t rank = 0; rank < first_place; ++rank)
    if (const std::int32_t pool = pools.of_rank[index(rank)]; pool >= 0)
      edges.push_back({rank, first_pool + pool, 0});
  return LabelledGraph(first_pool + static_cast<std::int32_t>(pools.members.size()), edges);
}

// Per link of the places; empty where there are no faults.
std::vector<folding::Course> courses_of_links(const Places& places, const folding::FaultPlan& faults) {
  std::vector<folding::Course> courses;
  if (!faults.links.empty()) courses.resize(places.link_capacity.size());
  for (std::size_t n = 0; n < faults.links.size(); ++n)
    if (places.narrowed[n] >= 0) courses[index(places.narrowed[n])] = faults.of_link[n];
  return courses;
}

// What makes ranks and links different from others of their kind.
struct Deviations {
  std::vector<double> slowdown;               // By rank,
  std::vector<folding::Course> rank_courses;  // by rank, or empty,
  std::vector<folding::Course> link_courses;  // by link, or empty.
};

const folding::Course& course(const std::vector<folding::Course>& courses, std::size_t i) {
  static const folding::Course kNone;
  return courses.empty() ? kNone : courses[i];
}

// What tells vertices apart before looking at their neighbours: role and slowdown, recipe, capacity; faults.
std::vector<std::int32_t> first_colours(const Program& program, const Places& places, const CorePools& pools,
                                        const Deviations& deviations) {
  std::vector<std::int32_t> colours;
  std::map<std::tuple<std::int32_t, double, folding::Course>, std::int32_t> ranks;
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank)
    colours.push_back(ranks
                          .try_emplace({program.role_of[rank].value, deviations.slowdown[rank],
                                        course(deviations.rank_courses, rank)},
                                       static_cast<std::int32_t>(ranks.size()))
                          .first->second);
  const auto first_recipe = static_cast<std::int32_t>(ranks.size());
  for (const Place& place : places.places) colours.push_back(first_recipe + place.recipe);
  const std::int32_t first_capacity = first_recipe + static_cast<std::int32_t>(places.recipes.size());
  std::map<std::pair<std::int64_t, folding::Course>, std::int32_t> capacities;
  for (std::size_t link = 0; link < places.link_capacity.size(); ++link)
    colours.push_back(first_capacity +
                      capacities
                          .try_emplace({places.link_capacity[link], course(deviations.link_courses, link)},
                                       static_cast<std::int32_t>(capacities.size()))
                          .first->second);
  colours.insert(colours.end(), pools.members.size(),
                 first_capacity + static_cast<std::int32_t>(capacities.size()));
  return colours;
}

Classes classify(const Program& program, const Places& places, const CorePools& pools,
                 const LabelledGraph& graph, const Deviations& deviations, bool fold) {
  std::vector<std::int32_t> colours;
  if (fold) {
    colours = folding::refine(graph, first_colours(program, places, pools, deviations));
  } else {
    for (std::int32_t vertex = 0; vertex < graph.size(); ++vertex) colours.push_back(vertex);
  }
  const std::size_t ranks = program.role_of.size(), count = places.places.size();
  // Idle ranks have a class of their own among the colours, and none in the job.
  std::vector<std::int32_t> busy;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (program.role_of[rank].valid()) busy.push_back(colours[rank]);
  busy = renumbered(busy);
  Classes classes;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    classes.of_rank.push_back(program.role_of[rank].valid() ? busy[next++] : -1);
  const std::span all(colours);
  classes.of_place = renumbered(all.subspan(ranks, count));
  classes.of_link = renumbered(all.subspan(ranks + count, places.link_capacity.size()));
  classes.of_pool = renumbered(all.subspan(ranks + count + places.link_capacity.size()));
  return classes;
}

class Assembler {
 public:
  Assembler(const Program& program, const Cluster& cluster, const Profile& profile, const Places& places,
            const CorePools& pools, const folding::TrafficLists& lists, const Classes& classes)
      : program_(program),
        cluster_(cluster),
        profile_(profile),
        places_(places),
        pools_(pools),
        lists_(lists),
        classes_(classes) {}

  Job assemble(const LabelledGraph& graph, const Deviations& deviations) {
    job_.program = &program_;
    job_.launch = from_seconds(program_.captured ? profile_.graph_node_s : profile_.launch_s);
    job_.communication_on_core = profile_.communication_on_core;
    if (!profile_.communication_on_core) {
      job_.compute_interference = profile_.compute_interference;
      job_.transfer_interference = profile_.transfer_interference;
    }
    add_classes(deviations.slowdown);
    add_core_pools();
    const std::vector<Range> links = add_links(graph);
    add_rendezvous(links);
    add_changes(deviations);
    return std::move(job_);
  }

 private:
  void add_classes(const std::vector<double>& slowdown) {
    for (std::size_t rank = 0; rank < classes_.of_rank.size(); ++rank) {
      const std::int32_t number = classes_.of_rank[rank];
      if (number < 0) continue;
      if (index(number) == job_.classes.size()) {
        JobClass fresh;
        fresh.ranks.role = program_.role_of[rank];
        fresh.work = work_of(program_.roles[fresh.ranks.role.index()], slowdown[rank]);
        fresh.rendezvous.assign(fresh.work.size(), -1);
        job_.classes.push_back(std::move(fresh));
      }
      job_.classes[index(number)].ranks.ranks.push_back(RankId(static_cast<std::int64_t>(rank)));
    }
  }

  // In thousandths of a core.
  std::int32_t core_capacity() const {
    const double cores = cluster_.node.cores, together = profile_.cores_together;
    return static_cast<std::int32_t>(
        std::lround(1000 * (together > 0 ? std::clamp(together, 1.0, cores) : cores)));
  }

  // The first pool of a class stands for it: its ranks are counted by their classes.
  void add_core_pools() {
    for (std::size_t pool = 0; pool < pools_.members.size(); ++pool) {
      const std::int32_t number = classes_.of_pool[pool];
      if (index(number) < job_.core_pools.size()) continue;
      job_.core_pools.push_back(core_capacity());
      for (std::size_t rank = 0; rank < classes_.of_rank.size(); ++rank) {
        if (pools_.of_rank[rank] != static_cast<std::int32_t>(pool)) continue;
        JobClass& rank_class = job_.classes[index(classes_.of_rank[rank])];
        if (std::exchange(rank_class.core_pool, number) != number) rank_class.pool_members = 0;
        ++rank_class.pool_members;
      }
    }
  }

  std::vector<SimTime> work_of(const Role& role, double slowdown) {
    kernel_time_.resize(program_.kernels.size());
    std::vector<SimTime> work;
    for (const Instruction& instruction : role.instructions) {
      SimTime time;
      if (const auto* compute = std::get_if<Compute>(&instruction.work)) {
        std::optional<SimTime>& known = kernel_time_[compute->kernel.index()];
        if (!known) {
          const Kernel& kernel = program_.kernels[compute->kernel.index()];
          const std::string_view label =
              kernel.label.valid() ? program_.labels[kernel.label.index()] : std::string_view();
          known = kernel_time(kernel, label, cluster_.node.gpu, profile_);
        }
        time = slowdown == 1 ? *known
                             : SimTime{std::llround(static_cast<double>(known->picoseconds) * slowdown)};
      }
      work.push_back(time);
    }
    return work;
  }

  // The uses of each place class: on one link of a link class, summed over the places of the class.
  std::vector<Range> add_links(const LabelledGraph& graph) {
    struct Use {
      std::int32_t place_class = 0, link_class = 0, count = 0;
    };
    std::vector<Use> uses;
    const std::int32_t first_place = program_.world_size();
    const std::int32_t first_link = first_place + static_cast<std::int32_t>(places_.places.size());
    for (std::size_t link = 0; link < classes_.of_link.size(); ++link) {
      const std::int32_t link_class = classes_.of_link[link];
      if (index(link_class) < job_.link_capacity.size()) continue;  // The first link stands for its class.
      job_.link_capacity.push_back(places_.link_capacity[link]);
      for (const auto& [vertex, count] : graph.neighbours(first_link + static_cast<std::int32_t>(link)))
        uses.push_back({classes_.of_place[index(vertex - first_place)], link_class, count});
    }
    std::ranges::sort(uses, {}, [](const Use& use) { return std::pair(use.place_class, use.link_class); });
    std::vector<Range> ranges(index(place_class_count()));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const Use& use = uses[i];
      const auto end = static_cast<std::int32_t>(job_.link_uses.size());
      Range& range = ranges[index(use.place_class)];
      if (i == 0 || uses[i - 1].place_class != use.place_class) range = {end, end};
      if (!range.empty() && job_.link_uses.back().link == use.link_class) {
        job_.link_uses.back().count += use.count;
      } else {
        job_.link_uses.push_back({use.link_class, use.count});
        ++range.end;
      }
    }
    return ranges;
  }

  std::int32_t place_class_count() const {
    return classes_.of_place.empty() ? 0 : *std::ranges::max_element(classes_.of_place) + 1;
  }

  void add_rendezvous(const std::vector<Range>& links) {
    std::int32_t next = 0;
    std::vector<Member> last_seen(job_.classes.size());  // By class: place (as rank) and list.
    for (std::size_t p = 0; p < places_.places.size(); ++p) {
      if (classes_.of_place[p] != next) continue;  // The first place stands for its class.
      const Place& place = places_.places[p];
      const Recipe& recipe = places_.recipes[index(place.recipe)];
      const auto first_transfer = static_cast<std::int32_t>(job_.transfers.size());
      for (const folding::TransferNeeds& needs : recipe.transfers)
        job_.transfers.push_back({needs.latency, needs.bytes, needs.rate_cap, links[index(next)]});
      const std::vector<Member> distinct = distinct_members(static_cast<std::int32_t>(p), last_seen);
      for (std::size_t k = 0; k < recipe.order.size(); ++k)
        add_meeting(distinct, k, first_transfer + recipe.order[k]);
      ++next;
    }
  }

  // One member per class and list, with the class in the place of the rank.
  std::vector<Member> distinct_members(std::int32_t place, std::vector<Member>& last_seen) const {
    std::vector<Member> distinct;
    const Range members = places_.places[index(place)].members;
    for (std::int32_t m = members.begin; m < members.end; ++m) {
      const Member& member = places_.members[index(m)];
      const std::int32_t rank_class = classes_.of_rank[index(member.rank)];
      Member& last = last_seen[index(rank_class)];
      if (last.rank == place + 1 && last.list == member.list) continue;
      last = {place + 1, member.list};
      distinct.push_back({rank_class, member.list});
    }
    return distinct;
  }

  void add_meeting(const std::vector<Member>& members, std::size_t k, std::int32_t transfer) {
    const auto number = static_cast<std::int32_t>(job_.rendezvous.size());
    const auto begin = static_cast<std::int32_t>(job_.participants.size());
    for (const auto& [rank_class, list] : members) {
      const std::int32_t instruction = lists_.instructions(list)[k];
      job_.participants.push_back({rank_class, instruction});
      job_.classes[index(rank_class)].rendezvous[index(instruction)] = number;
    }
    job_.rendezvous.push_back({transfer, {begin, static_cast<std::int32_t>(job_.participants.size())}});
  }

  // Those of the first rank or link, which stands for its class.
  void add_changes(const Deviations& deviations) {
    const auto add = [&](const std::vector<folding::Course>& courses,
                         const std::vector<std::int32_t>& classes, Change::What what) {
      std::int32_t next = 0;
      for (std::size_t i = 0; i < courses.size(); ++i) {
        if (classes[i] != next) continue;
        for (const folding::Phase& phase : courses[i])
          job_.changes.push_back({phase.from, what, next, phase.factor});
        ++next;
      }
    };
    add(deviations.rank_courses, classes_.of_rank, Change::What::kCompute);
    add(deviations.link_courses, classes_.of_link, Change::What::kLink);
    std::ranges::stable_sort(job_.changes, {}, &Change::at);
  }

  const Program& program_;
  const Cluster& cluster_;
  const Profile& profile_;
  const Places& places_;
  const CorePools& pools_;
  const folding::TrafficLists& lists_;
  const Classes& classes_;
  Job job_;
  std::vector<std::optional<SimTime>> kernel_time_;
};

}  // namespace

Job make_job(const Program& program, const Cluster& cluster, const Profile& profile,
             const JobOptions& options) {
  Deviations deviations;
  deviations.slowdown = slowdowns(program, options);
  check_devices(program, cluster);
  const Router binding(cluster);
  const folding::FaultPlan faults = folding::plan_faults(program, binding, options);
  deviations.rank_courses = faults.of_rank;
  check_rerouting(options.rerouting, cluster);
  const folding::LinkPaths router(binding, faults.links, options.rerouting);
  folding::TrafficLists lists(program);
  const Places places = folding::find_places(program, router, profile, lists);
  deviations.link_courses = courses_of_links(places, faults);
  const CorePools pools = find_core_pools(program, cluster);
  const LabelledGraph graph = join(program, places, pools);
  const Classes classes = classify(program, places, pools, graph, deviations, options.fold);
  Job job = Assembler(program, cluster, profile, places, pools, lists, classes).assemble(graph, deviations);
  job.faults = options.faults;
  job.watchdog = options.watchdog;
  return job;
}

}  // namespace orrery
