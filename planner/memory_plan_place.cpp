#include "planner/memory_plan_place.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "planner/memory_plan_space.hpp"

namespace orrery {
namespace {

using Buffers = std::vector<std::size_t>;

// Those that need a place, in the order in which they are begun. Empty ones lie at 0.
Buffers begun_buffers(const Role& role, const std::vector<SafeLifetime>& lifetimes, PlacedBuffers& placed) {
  Buffers begun;
  placed.offsets.assign(lifetimes.size(), -1);
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    if (lifetimes[b].first < 0) continue;
    if (role.buffers[b].bytes > 0) {
      begun.push_back(b);
    } else {
      placed.offsets[b] = 0;
    }
  }
  std::stable_sort(begun.begin(), begun.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  return begun;
}

// Calls `visit` with every two buffers, as places in `begun`, that are busy together; some twice.
template <class Visit>
void for_each_pair(const Buffers& begun, const std::vector<SafeLifetime>& lifetimes, const Visit& visit) {
  Buffers wrapping;
  for (std::size_t a = 0; a < begun.size(); ++a) {
    const SafeLifetime& its = lifetimes[begun[a]];
    for (std::size_t b = a + 1; b < begun.size() && lifetimes[begun[b]].first < its.end; ++b) visit(a, b);
    if (its.wrap_end <= 0) continue;
    for (std::size_t b = 0; b < a && lifetimes[begun[b]].first < its.wrap_end; ++b) visit(b, a);
    for (std::size_t b = a + 1; b < begun.size() && lifetimes[begun[b]].first < its.wrap_end; ++b)
      visit(a, b);
    for (const std::size_t b : wrapping) visit(b, a);
    wrapping.push_back(a);
  }
}

bool more_pairs(const Buffers& begun, const std::vector<SafeLifetime>& lifetimes, std::size_t most_pairs) {
  std::vector<std::int32_t> firsts;
  for (const std::size_t b : begun) firsts.push_back(lifetimes[b].first);
  std::size_t pairs = 0, wraps = 0;
  for (std::size_t a = 0; a < begun.size() && pairs <= most_pairs; ++a) {
    const SafeLifetime& its = lifetimes[begun[a]];
    const auto begun_before = [&](std::int32_t place) {
      return static_cast<std::size_t>(std::lower_bound(firsts.begin(), firsts.end(), place) - firsts.begin());
    };
    pairs += begun_before(its.end) - std::min(begun_before(its.end), a);
    if (its.wrap_end > 0) pairs += begun_before(its.wrap_end) + wraps++;
  }
  return pairs > most_pairs;
}

// Buffers of one size, in the order in which they are begun. Each takes the place that one before it left
// last and that is still free; only if none of a few is, all addresses are searched. Micro-batches repeat, so
// searches are about as many as places, and places as buffers that live at once.
class SizeClass {
 public:
  SizeClass(std::int64_t bytes, AddressSpace& space) : bytes_(bytes), space_(space) {}

  std::int64_t place(const SafeLifetime& lifetime) {
    const std::vector<BusyInterval> busy = busy_intervals(lifetime);
    const std::int64_t offset = find(lifetime, busy);
    space_.take(offset, bytes_, busy);
    left_.emplace(lifetime.end, offset);
    return offset;
  }

 private:
  std::int64_t find(const SafeLifetime& lifetime, const std::vector<BusyInterval>& busy) {
    auto candidate = left_.upper_bound({lifetime.first, space_.bytes()});
    for (int tries = 0; tries < kTries && candidate != left_.begin(); ++tries) {
      --candidate;
      if (space_.is_free(candidate->second, bytes_, busy)) {
        const std::int64_t offset = candidate->second;
        left_.erase(candidate);
        return offset;
      }
    }
    return space_.lowest_fit(bytes_, busy);
  }

  static constexpr int kTries = 8;
  std::int64_t bytes_;
  AddressSpace& space_;
  std::set<std::pair<std::int32_t, std::int64_t>> left_;  // When a place is left, and its offset.
};

}  // namespace

PlacedBuffers place_by_pairs(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                             std::int64_t alignment_bytes) {
  PlacedBuffers placed;
  const Buffers begun = begun_buffers(role, lifetimes, placed);
  std::vector<std::vector<std::uint32_t>> together(begun.size());  // By place in `begun`.
  for_each_pair(begun, lifetimes, [&](std::size_t a, std::size_t b) {
    together[a].push_back(static_cast<std::uint32_t>(b));
    together[b].push_back(static_cast<std::uint32_t>(a));
  });
  const auto bytes = [&](std::size_t place) {
    return aligned_bytes(role.buffers[begun[place]].bytes, alignment_bytes);
  };
  Buffers order(begun.size());
  for (std::size_t place = 0; place < order.size(); ++place) order[place] = place;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes(a) > bytes(b); });
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // From, to.
  for (const std::size_t place : order) {
    taken.clear();
    for (const std::uint32_t other : together[place]) {
      const std::int64_t from = placed.offsets[begun[other]];
      if (from >= 0) taken.emplace_back(from, from + bytes(other));
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t offset = 0;
    for (const auto& [from, to] : taken) {
      if (from - offset >= bytes(place)) break;
      offset = std::max(offset, to);
    }
    placed.offsets[begun[place]] = offset;
    placed.bytes = std::max(placed.bytes, offset + bytes(place));
  }
  return placed;
}

PlacedBuffers place_by_address(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                               std::int64_t alignment_bytes) {
  PlacedBuffers placed;
  std::map<std::int64_t, Buffers, std::greater<>> by_size;
  for (const std::size_t b : begun_buffers(role, lifetimes, placed)) {
    by_size[aligned_bytes(role.buffers[b].bytes, alignment_bytes)].push_back(b);
  }
  AddressSpace space;
  for (const auto& [bytes, buffers] : by_size) {
    SizeClass places(bytes, space);
    for (const std::size_t b : buffers) placed.offsets[b] = places.place(lifetimes[b]);
  }
  placed.bytes = space.bytes();
  return placed;
}

namespace {

PlacedBuffers place_unchained(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                              std::int64_t alignment_bytes) {
  // Each pair costs some 50 ns. Lowered roles have about 20 sizes.
  constexpr std::size_t kFewSizes = 64, kMostPairs = 3'000'000, kMostPairsOfManySizes = 30'000'000;
  PlacedBuffers nothing;
  const Buffers begun = begun_buffers(role, lifetimes, nothing);
  std::set<std::int64_t> sizes;
  for (const std::size_t b : begun) sizes.insert(aligned_bytes(role.buffers[b].bytes, alignment_bytes));
  const bool many =
      more_pairs(begun, lifetimes, sizes.size() <= kFewSizes ? kMostPairs : kMostPairsOfManySizes);
  return many ? place_by_address(role, lifetimes, alignment_bytes)
              : place_by_pairs(role, lifetimes, alignment_bytes);
}

// Chains of transient buffers without gaps between them, each from its first buffer on.
std::vector<Buffers> chains_of(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                               std::int64_t alignment_bytes) {
  std::vector<Buffers> chains;
  std::map<std::size_t, std::size_t> chain_of;  // By the last buffer so far: index into `chains`.
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    if (!buffer.behind.valid() || lifetimes[b].first < 0 || buffer.bytes == 0) continue;
    const std::size_t before = buffer.behind.index();
    const std::int64_t bytes = role.buffers[before].bytes;
    if (lifetimes[before].first < 0 || bytes == 0 || bytes % alignment_bytes != 0) continue;
    const auto known = chain_of.find(before);
    const std::size_t chain = known == chain_of.end() ? chains.size() : known->second;
    if (known == chain_of.end()) {
      chains.push_back({before});
    } else {
      chain_of.erase(known);
    }
    chains[chain].push_back(b);
    chain_of[b] = chain;
  }
  return chains;
}

}  // namespace

PlacedBuffers place_buffers(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                            std::int64_t alignment_bytes) {
  const std::vector<Buffers> chains = chains_of(role, lifetimes, alignment_bytes);
  if (chains.empty()) return place_unchained(role, lifetimes, alignment_bytes);
  Role blocks;  // In which a chain is its first buffer.
  blocks.buffers = role.buffers;
  std::vector<SafeLifetime> lives = lifetimes;
  for (const Buffers& chain : chains) {
    SafeLifetime& all = lives[chain.front()];
    for (std::size_t i = 1; i < chain.size(); ++i) {
      SafeLifetime& one = lives[chain[i]];
      all.first = std::min(all.first, one.first);
      all.end = std::max(all.end, one.end);
      all.wrap_end = std::max(all.wrap_end, one.wrap_end);
      one = {};
      blocks.buffers[chain.front()].bytes += role.buffers[chain[i]].bytes;
    }
  }
  PlacedBuffers placed = place_unchained(blocks, lives, alignment_bytes);
  for (const Buffers& chain : chains) {
    std::int64_t offset = placed.offsets[chain.front()];
    for (const std::size_t b : chain) {
      placed.offsets[b] = offset;
      offset += role.buffers[b].bytes;
    }
  }
  return placed;
}

}  // namespace orrery
