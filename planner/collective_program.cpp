#include "planner/collective_program.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "planner/collective_schedules.hpp"

namespace orrery {
namespace {

using collective::Grid;
using collective::Schedule;
using collective::Scribe;

constexpr std::array<std::string_view, 11> kNames{
    "ring",      "tree", "halving-doubling", "chain", "ring-chain", "hierarchical", "nvls",
    "nvls-tree", "pat",  "pairwise",         "pxn"};

void check_order(const CollectiveSpec& spec, const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> sorted = order, all(static_cast<std::size_t>(spec.ranks));
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    fail(ErrorKind::kInput, "collective: an order of a channel isn't a permutation of the ranks 0 to {}",
         spec.ranks - 1);
}

void check_lines(const CollectiveSpec& spec) {
  using enum CollectiveAlgorithm;
  const bool lines = spec.algorithm == kRing || spec.algorithm == kChain;
  if (spec.channels != 1 && !lines && spec.algorithm != kTree)
    fail(ErrorKind::kInput, "collective: {} channels; only rings, chains and trees have more than one",
         spec.channels);
  if (!spec.orders.empty() && !lines && spec.algorithm != kPat)
    fail(ErrorKind::kInput, "collective: only rings, chains and pat follow an order of ranks, not {}",
         to_string(spec.algorithm));
  for (const std::vector<std::int32_t>& order : spec.orders) check_order(spec, order);
}

void check_numbers(const CollectiveSpec& spec) {
  if (spec.ranks < 2) fail(ErrorKind::kInput, "collective: {} ranks; expected at least 2", spec.ranks);
  if (spec.bytes < 1) fail(ErrorKind::kInput, "collective: {} bytes; expected at least 1", spec.bytes);
  if (spec.channels < 1 || spec.slots < 1 || spec.chunk_bytes < 1 || spec.wire_factor < 1)
    fail(ErrorKind::kInput,
         "collective: {} channels, {} slots, chunks of {} bytes, {} bytes on the wire for each; expected at "
         "least 1 of each",
         spec.channels, spec.slots, spec.chunk_bytes, spec.wire_factor);
  if (spec.ranks_per_node < 0 || (spec.ranks_per_node > 0 && spec.ranks % spec.ranks_per_node != 0))
    fail(ErrorKind::kInput, "collective: {} ranks don't fill nodes of {}", spec.ranks, spec.ranks_per_node);
  if (!spec.devices.empty() && std::ssize(spec.devices) != spec.ranks)
    fail(ErrorKind::kInput, "collective: {} devices for {} ranks", spec.devices.size(), spec.ranks);
  if (std::set<std::int32_t>(spec.devices.begin(), spec.devices.end()).size() != spec.devices.size())
    fail(ErrorKind::kInput, "collective: two ranks on one device");
  if (spec.root < 0 || spec.root >= spec.ranks)
    fail(ErrorKind::kInput, "collective: root {}; ranks are 0 to {}", spec.root, spec.ranks - 1);
}

void check_grid(const CollectiveSpec& spec, const Grid& grid) {
  using enum CollectiveAlgorithm;
  if (!has_schedule(spec.algorithm, spec.kind))
    fail(ErrorKind::kInput, "collective: {} by {} isn't done; choose another algorithm", to_string(spec.kind),
         to_string(spec.algorithm));
  if (spec.algorithm == kNvls && grid.nodes > 1)
    fail(ErrorKind::kInput, "collective: nvls works inside one node; between nodes use nvls-tree");
  if ((spec.algorithm == kNvls || spec.algorithm == kNvlsTree) && grid.per_node < 2)
    fail(ErrorKind::kInput, "collective: {} needs two or more ranks per node", to_string(spec.algorithm));
  if (spec.algorithm == kHalvingDoubling && spec.kind != CollectiveKind::kAllReduce &&
      !std::has_single_bit(static_cast<std::uint32_t>(spec.ranks)))
    fail(ErrorKind::kInput,
         "collective: {} by halving-doubling needs a power of two of ranks, not {}: who else's part is it",
         to_string(spec.kind), spec.ranks);
}

Schedule schedule(Scribe& scribe, const Grid& grid) {
  using enum CollectiveAlgorithm;
  const CollectiveSpec& spec = scribe.spec();
  switch (spec.algorithm) {
    case kRing: return ring_schedule(scribe, grid);
    case kTree: return tree_schedule(scribe, grid);
    case kHalvingDoubling: return halving_doubling_schedule(scribe, grid);
    case kChain: return chain_schedule(scribe, grid);
    case kRingChain:
      return hierarchical_schedule(scribe, grid, ring_chain_chunks(spec.bytes, grid.nodes) > 1);
    case kHierarchical: return hierarchical_schedule(scribe, grid, false);
    case kNvls: return nvls_schedule(scribe, grid);
    case kNvlsTree: return nvls_tree_schedule(scribe, grid);
    case kPat: return pat_schedule(scribe, grid);
    case kPairwise: return pairwise_schedule(scribe, grid);
    case kPxn: return pxn_schedule(scribe, grid);
  }
  return {};
}

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  return kNames[static_cast<std::size_t>(algorithm)];
}

bool has_schedule(CollectiveAlgorithm algorithm, CollectiveKind kind) {
  using enum CollectiveAlgorithm;
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  const bool half = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  switch (algorithm) {
    case kRing: return kind != CollectiveKind::kAllToAll;
    case kTree:
    case kChain:
    case kRingChain:
    case kHierarchical:
    case kNvlsTree: return all_reduce;
    case kHalvingDoubling:
    case kNvls: return all_reduce || half;
    case kPat: return half;
    case kPairwise:
    case kPxn: return kind == CollectiveKind::kAllToAll;
  }
  return false;
}

std::vector<std::vector<std::int32_t>> rail_orders(std::int32_t ranks, std::int32_t ranks_per_node,
                                                   std::int32_t channels) {
  std::vector<std::vector<std::int32_t>> orders(static_cast<std::size_t>(channels));
  for (std::int32_t c = 0; c < channels; ++c)
    for (std::int32_t node = 0; node < ranks / ranks_per_node; ++node)
      for (std::int32_t i = 0; i < ranks_per_node; ++i) {
        const std::int32_t step = node % 2 == 0 ? i : ranks_per_node - 1 - i;
        orders[static_cast<std::size_t>(c)].push_back(node * ranks_per_node + (c + step) % ranks_per_node);
      }
  return orders;
}

std::int32_t ring_chain_chunks(std::int64_t bytes, std::int32_t nodes) {
  constexpr std::int64_t kFrom = 64'000'000, kLargest = 16'000'000, kFewest = 4;
  constexpr std::int32_t kNodes = 8;
  if (bytes < kFrom || nodes < kNodes) return 1;
  return static_cast<std::int32_t>(std::max(kFewest, (bytes + kLargest - 1) / kLargest));
}

std::pair<std::int64_t, std::int64_t> CollectiveProgram::elements(const DataMove& move, RankId rank,
                                                                  std::int64_t elements) const {
  std::int64_t begin = 0, size = elements;
  for (std::int32_t c = move.cuts.begin; c < move.cuts.end; ++c) {
    const DataCut& cut = cuts[static_cast<std::size_t>(c)];
    std::int64_t number = cut.index;
    if (cut.axis.valid()) {
      const auto& groups = program.axes[cut.axis.index()].groups;
      const auto group = std::ranges::find_if(
          groups, [&](const std::vector<RankId>& members) { return std::ranges::count(members, rank) > 0; });
      const std::int64_t members = std::ssize(*group);
      const std::int64_t own = std::ranges::find(*group, rank) - group->begin();
      const RankId member =
          (*group)[static_cast<std::size_t>(((own + cut.index) % members + members) % members)];
      number = cut.of == program.world_size()
                   ? member.value
                   : std::ranges::count_if(*group, [&](RankId other) { return other < member; });
    }
    const std::int64_t first = size * number / cut.of, last = size * (number + cut.count) / cut.of;
    begin += first;
    size = last - first;
  }
  return {begin, begin + size};
}

CollectiveProgram collective_program(const CollectiveSpec& spec) {
  check_numbers(spec);
  const std::int32_t per_node = spec.ranks_per_node == 0 ? spec.ranks : spec.ranks_per_node;
  const Grid grid{spec.ranks, spec.ranks / per_node, per_node};
  check_grid(spec, grid);
  check_lines(spec);

  CollectiveProgram out;
  Scribe scribe(spec, out);
  out.program.name = std::string(to_string(spec.kind)) + "-" + std::string(to_string(spec.algorithm));
  const Schedule what = schedule(scribe, grid);
  std::map<std::string, RoleId> roles;
  for (std::int32_t rank = 0; rank < spec.ranks; ++rank) {
    const std::string name = what.role(rank);
    const auto [role, fresh] =
        roles.try_emplace(name, RoleId(static_cast<std::int64_t>(out.program.roles.size())));
    if (fresh) {
      scribe.begin_role(name);
      what.write(rank);
      scribe.end_role();
    }
    out.program.role_of.push_back(role->second);
    out.program.device_of.push_back(spec.devices.empty() ? rank
                                                         : spec.devices[static_cast<std::size_t>(rank)]);
  }
  return out;
}

}  // namespace orrery
