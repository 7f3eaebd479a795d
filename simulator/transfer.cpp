#include "simulator/transfer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <tuple>

#include "simulator/collective_cost.hpp"
#include "simulator/transfer_links.hpp"

namespace orrery::folding {
namespace {

class Finder {
 public:
  Finder(const Program& program, const LinkPaths& router, const Profile& profile, TrafficLists& lists)
      : program_(program),
        router_(router),
        profile_(profile),
        lists_(lists),
        counter_(router),
        machine_(collective_machine(router.cluster().node)) {
    machine_.nics *= router.cluster().nodes_per_nvlink_domain;
  }

  Places find() {
    for (std::size_t a = 0; a < program_.axes.size(); ++a) {
      const AxisId axis(static_cast<std::int64_t>(a));
      for (const std::vector<RankId>& group : program_.axes[a].groups) {
        const auto& traffic = lists_.on_axis(axis, static_cast<std::int32_t>(group.size()));
        add_collectives(group, traffic, &RoleTraffic::rings);
        add_collectives(group, traffic, &RoleTraffic::all_to_alls);
        add_pairs(group, traffic);
      }
    }
    add_copies();
    for (const NarrowedLink& narrowed : router_.narrowed())
      found_.narrowed.push_back(counter_.number(narrowed.link));
    found_.link_capacity = std::move(counter_.capacity());
    drop_links_that_never_fill();
    return std::move(found_);
  }

 private:
  std::int32_t device(RankId rank) const { return program_.device_of[rank.index()]; }
  RoleId role(RankId rank) const { return program_.role_of[rank.index()]; }

  // REQUIRES: verify(program) is empty, so members agree on how many collectives there are.
  void add_collectives(const std::vector<RankId>& group, const std::vector<RoleTraffic>& traffic,
                       ListId RoleTraffic::* kind) {
    if (group.empty() || !role(group.front()).valid()) return;
    const ListId first = traffic[role(group.front()).index()].*kind;
    if (first < 0) return;
    const auto members_begin = static_cast<std::int32_t>(found_.members.size());
    std::vector<std::int32_t> devices;
    for (const RankId rank : group) {
      found_.members.push_back({rank.value, traffic[role(rank).index()].*kind});
      devices.push_back(device(rank));
    }
    Layout layout = lay_out(std::move(devices), router_.cluster().gpus_per_domain());
    reroute(layout, router_);
    const bool ring = kind == &RoleTraffic::rings;
    (ring ? add_ring : add_all_to_all)(layout, router_, counter_);
    GroupShape shape = layout.shape(router_.cluster().node);
    if (!ring) shape.channels = 1;
    add_place(members_begin,
              [&](std::int64_t rate_cap) { return collective_recipe(first, shape, rate_cap); });
  }

  void add_pairs(const std::vector<RankId>& group, const std::vector<RoleTraffic>& traffic) {
    const auto size = static_cast<std::int32_t>(group.size());
    std::vector<PathLink> path;
    for (std::int32_t from = 0; from < size; ++from) {
      const RankId sender = group[static_cast<std::size_t>(from)];
      if (!role(sender).valid()) continue;
      for (const auto& [offset, sends] : traffic[role(sender).index()].sends) {
        const RankId receiver = group[static_cast<std::size_t>((from + offset) % size)];
        const ListId recvs = traffic[role(receiver).index()].recv_from((size - offset) % size);
        assert(recvs >= 0 && lists_.instructions(recvs).size() == lists_.instructions(sends).size());
        const auto members_begin = static_cast<std::int32_t>(found_.members.size());
        found_.members.push_back({sender.value, sends});
        found_.members.push_back({receiver.value, recvs});
        path.clear();
        const double latency_s = router_.append_binding(device(sender), device(receiver), path);
        counter_.add(path, 1);
        // A message is one call of the communication library and one step.
        const std::int32_t gpus = router_.cluster().node.gpus;
        const bool one_node = device(sender) / gpus == device(receiver) / gpus;
        add_message_place(members_begin, sends,
                          latency_s + profile_.collective_base_s +
                              (one_node ? profile_.step_latency_s : profile_.network_step_latency_s));
      }
    }
  }

  void add_copies() {
    std::vector<PathLink> path;
    for (std::int32_t rank = 0; rank < program_.world_size(); ++rank) {
      const RoleId of = role(RankId(rank));
      if (!of.valid()) continue;
      for (const bool to_host : {true, false}) {
        const ListId list = lists_.copies(of, to_host);
        if (list < 0) continue;
        const auto members_begin = static_cast<std::int32_t>(found_.members.size());
        found_.members.push_back({rank, list});
        path.clear();
        const double latency_s = router_.append_host_binding(device(RankId(rank)), to_host, path);
        counter_.add(path, 1);
        // Starting a copy costs as much as the shortest kernel. With the way that is 1.7 us on H200, where
        // copies of 4 KiB one after another took 1.7 to 2.4 us to the host and 2.8 from it
        // (docs/results/launches-h200.json).
        add_message_place(members_begin, list, latency_s + profile_.kernel_floor_s);
      }
    }
  }

  void add_message_place(std::int32_t members_begin, ListId list, double latency_s) {
    add_place(members_begin,
              [&](std::int64_t rate_cap) { return message_recipe(list, latency_s, rate_cap); });
  }

  template <class RecipeOf>
  void add_place(std::int32_t members_begin, RecipeOf&& recipe_of) {
    const auto links_begin = static_cast<std::int32_t>(found_.links.size());
    const std::int64_t rate_cap = counter_.take(found_.links);
    found_.places.push_back({recipe_of(rate_cap),
                             {members_begin, static_cast<std::int32_t>(found_.members.size())},
                             {links_begin, static_cast<std::int32_t>(found_.links.size())}});
  }

  // ---- Recipes.

  std::int32_t collective_recipe(ListId list, const GroupShape& shape, std::int64_t rate_cap) {
    const auto key = std::tuple(list, shape, rate_cap);
    const auto [at, fresh] = collective_recipes_.try_emplace(key, -1);
    if (fresh) {
      std::map<std::pair<CollectiveKind, std::int64_t>, TransferNeeds> known;
      at->second = intern(list, [&](const Work& work) {
        const auto& collective = std::get<Collective>(work);
        const auto [cost, first] = known.try_emplace({collective.kind, collective.bytes});
        if (first) cost->second = collective_needs(collective, shape, rate_cap);
        return cost->second;
      });
    }
    return at->second;
  }

  TransferNeeds collective_needs(const Collective& collective, const GroupShape& shape,
                                 std::int64_t rate_cap) const {
    const TransferCost cost = collective_cost(collective.kind, collective.bytes, shape, machine_,
                                              static_cast<double>(rate_cap), profile_);
    std::int64_t bytes = cost.bytes;
    const std::int64_t peers = std::max(1, shape.ranks - 1);
    const bool messages = collective.kind == CollectiveKind::kAllToAll;  // Links count them: add_all_to_all.
    if (messages) bytes = (bytes + peers - 1) / peers;
    const double latency_s = cost.latency_s + profile_.instruction_s;
    if (cost.measured) {
      const double move_s = cost.seconds() - cost.latency_s;
      return measured_needs(latency_s, static_cast<double>(bytes), move_s, rate_cap);
    }
    const std::int64_t rate =
        std::clamp(std::llround(cost.bytes_per_s), 1LL, std::max(1LL, static_cast<long long>(rate_cap)));
    return {from_seconds(latency_s), bytes, bytes == 0 ? 0 : rate};
  }

  // What takes `move_s` alone, whatever its links are said to carry: where they carry less, it counts as so
  // many bytes fewer.
  static TransferNeeds measured_needs(double latency_s, double bytes, double move_s, std::int64_t rate_cap) {
    const SimTime latency = from_seconds(latency_s);
    if (move_s <= 0 || bytes <= 0) return {latency, 0, 0};
    const double rate = std::clamp(bytes / move_s, 1.0, std::max(1.0, static_cast<double>(rate_cap)));
    return {latency, std::max(1LL, std::llround(rate * move_s)), std::llround(rate)};
  }

  std::int32_t message_recipe(ListId list, double latency_s, std::int64_t rate_cap) {
    const SimTime latency = from_seconds(latency_s + profile_.instruction_s);
    const auto [at, fresh] = message_recipes_.try_emplace({list, latency, rate_cap}, -1);
    if (fresh) {
      at->second = intern(list, [&](const Work& work) {
        const auto* copy = std::get_if<Copy>(&work);
        const std::int64_t bytes = copy != nullptr ? copy->bytes : std::get<Send>(work).bytes;
        std::int64_t rate = rate_cap;
        if (copy == nullptr && has_message_fit()) {
          const auto payload = static_cast<double>(bytes);
          const MessageFit& fit = *profile_.message_fit;
          return measured_needs(fit.base_s + profile_.instruction_s, payload, payload * fit.seconds_per_byte,
                                rate_cap);
        }
        if (copy == nullptr && profile_.message_bytes_per_s > 0)
          rate = std::min<std::int64_t>(rate, std::max(1LL, std::llround(profile_.message_bytes_per_s)));
        return TransferNeeds{latency, bytes, bytes == 0 ? 0 : rate};
      });
    }
    return at->second;
  }

  // It is of one machine.
  bool has_message_fit() const { return profile_.message_fit && router_.cluster().nodes == 1; }

  template <class NeedsOf>
  std::int32_t intern(ListId list, NeedsOf&& needs_of) {
    Recipe recipe;
    std::map<TransferNeeds, std::int32_t> numbers;
    for (std::size_t k = 0; k < lists_.instructions(list).size(); ++k) {
      const TransferNeeds needs = needs_of(lists_.work(list, k));
      const auto [number, fresh] =
          numbers.try_emplace(needs, static_cast<std::int32_t>(recipe.transfers.size()));
      if (fresh) recipe.transfers.push_back(needs);
      recipe.rate_cap = std::max(recipe.rate_cap, needs.rate_cap);
      recipe.order.push_back(number->second);
    }
    const auto [at, fresh] = recipes_.try_emplace(recipe, static_cast<std::int32_t>(found_.recipes.size()));
    if (fresh) found_.recipes.push_back(std::move(recipe));
    return at->second;
  }

  // A link on which everything that could run at once fits at full rate holds nobody back; without it more
  // ranks look alike. One place runs at most as many transfers at once as its member with the fewest
  // streams for them.
  void drop_links_that_never_fill() {
    std::vector<double> demand(found_.link_capacity.size());
    for (const Place& place : found_.places) {
      std::int32_t lanes = std::numeric_limits<std::int32_t>::max();
      for (std::int32_t m = place.members.begin; m < place.members.end; ++m)
        lanes = std::min(lanes, lists_.lanes(found_.members[static_cast<std::size_t>(m)].list));
      const auto rate =
          static_cast<double>(found_.recipes[static_cast<std::size_t>(place.recipe)].rate_cap) * lanes;
      for (std::int32_t l = place.links.begin; l < place.links.end; ++l) {
        const LinkUse& use = found_.links[static_cast<std::size_t>(l)];
        demand[static_cast<std::size_t>(use.link)] += rate * use.count;
      }
    }
    std::vector<std::int32_t> number(demand.size(), -1);
    std::vector<std::int64_t> kept;
    for (const std::int32_t link : found_.narrowed)
      if (link >= 0) demand[static_cast<std::size_t>(link)] = std::numeric_limits<double>::infinity();
    for (std::size_t link = 0; link < demand.size(); ++link) {
      if (demand[link] <= static_cast<double>(found_.link_capacity[link])) continue;
      number[link] = static_cast<std::int32_t>(kept.size());
      kept.push_back(found_.link_capacity[link]);
    }
    found_.link_capacity = std::move(kept);
    for (std::int32_t& link : found_.narrowed)
      if (link >= 0) link = number[static_cast<std::size_t>(link)];
    renumber_links(number);
  }

  void renumber_links(const std::vector<std::int32_t>& number) {
    std::vector<LinkUse> uses;
    for (Place& place : found_.places) {
      const auto begin = static_cast<std::int32_t>(uses.size());
      for (std::int32_t l = place.links.begin; l < place.links.end; ++l) {
        const LinkUse& use = found_.links[static_cast<std::size_t>(l)];
        const std::int32_t link = number[static_cast<std::size_t>(use.link)];
        if (link >= 0) uses.push_back({link, use.count});
      }
      place.links = {begin, static_cast<std::int32_t>(uses.size())};
    }
    found_.links = std::move(uses);
  }

  const Program& program_;
  const LinkPaths& router_;
  const Profile& profile_;
  TrafficLists& lists_;
  LinkCounter counter_;
  CollectiveMachine machine_;
  Places found_;
  std::map<std::tuple<ListId, GroupShape, std::int64_t>, std::int32_t> collective_recipes_;
  std::map<std::tuple<ListId, SimTime, std::int64_t>, std::int32_t> message_recipes_;
  std::map<Recipe, std::int32_t> recipes_;  // By content.
};

}  // namespace

Places find_places(const Program& program, const LinkPaths& router, const Profile& profile,
                   TrafficLists& lists) {
  return Finder(program, router, profile, lists).find();
}

}  // namespace orrery::folding
