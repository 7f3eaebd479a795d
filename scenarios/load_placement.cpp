#include <fmt/format.h>

#include "base/error.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxHops = 64;

std::vector<std::int32_t> read_list(const Section& section, std::string_view key, std::string_view what) {
  std::vector<std::int32_t> list;
  for (const YamlNode* item : section.items(key)) {
    const auto number = item->kind == YamlNode::Kind::kScalar ? parse_integer(item->text) : std::nullopt;
    if (number && *number >= 0 && *number < kMaxGpus) {
      list.push_back(static_cast<std::int32_t>(*number));
    } else {
      section.faults().add(*item, section.path(key),
                           fmt::format("is {}; expected {}", describe(*item), what));
    }
  }
  return list;
}

// A rule's name, or a list: one entry for each GPU of a node.
void read_binding(const Section& section, std::string_view key, std::string_view what, HostBinding& kind,
                  std::vector<std::int32_t>& list) {
  const YamlNode* node = section.node(key);
  if (node == nullptr) return;
  if (node->kind == YamlNode::Kind::kScalar) {
    section.choice<HostBinding>(key, kind,
                                {{"nearest", HostBinding::kNearest},
                                 {"round-robin", HostBinding::kRoundRobin},
                                 {"remote", HostBinding::kRemote}});
    return;
  }
  kind = HostBinding::kList;
  list = read_list(section, key, what);
}

}  // namespace

void read_placement(const Section& plan, Scenario& scenario) {
  const YamlNode* node = plan.node("placement");
  if (node == nullptr) return;
  const std::size_t before = plan.faults().count();
  const Section section(*node, plan.path("placement"), "placement", plan.faults());
  PlacementRequest& request = scenario.placement;
  Choices<PlacementPolicy> policies;
  for (const PlacementPolicy policy : all_placement_policies())
    policies.emplace_back(to_string(policy), policy);
  if (section.has("ranks")) {
    request.policy = PlacementPolicy::kList;
    request.ranks = read_list(section, "ranks", "the number of a GPU");
  }
  section.choice("policy", request.policy, policies);
  if (request.policy == PlacementPolicy::kList)
    section.require("ranks", "the GPU of each rank, e.g. [0, 2, 1, 3]");
  read_binding(section, "nic", "the number of a NIC", request.nic, request.nics);
  read_binding(section, "numa", "the number of a CPU", request.numa, request.cpus);
  section.integer("max_pcie_hops", request.max_pcie_hops, 0, kMaxHops);
  section.text("hop_group", request.hop_group);
  if (plan.faults().count() > before || scenario.cluster.node.gpus == 0) return;
  try {
    bind_hosts(request, scenario.cluster.node);
  } catch (const Error& error) {
    section.fault("policy", error.what());
  }
}

}  // namespace orrery
