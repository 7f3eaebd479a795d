#include "executor/device/exchange_slots.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::device {
namespace {

using host::Run;
using host::Shard;
using Indices = std::vector<std::vector<std::int64_t>>;  // By dimension, sorted.

Indices sorted(const Shard& shard) {
  Indices all = shard.indices;
  for (auto& dimension : all) std::sort(dimension.begin(), dimension.end());
  return all;
}

Indices common(const Indices& a, const Indices& b) {
  Indices both(a.size());
  for (std::size_t d = 0; d < a.size(); ++d) {
    std::set_intersection(a[d].begin(), a[d].end(), b[d].begin(), b[d].end(), std::back_inserter(both[d]));
  }
  return both;
}

bool empty(const Indices& of) {
  return std::any_of(of.begin(), of.end(), [](const auto& dimension) { return dimension.empty(); });
}

// Those elements of the runs that nobody has brought yet, where members have some in common.
std::vector<Run> unknown(const std::vector<Run>& runs, std::vector<bool>& known) {
  std::vector<Run> fresh;
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const auto at = static_cast<std::size_t>(run.to + i);
      if (known[at]) continue;
      known[at] = true;
      const bool joins = !fresh.empty() && fresh.back().to + fresh.back().count == run.to + i &&
                         fresh.back().from + fresh.back().count == run.from + i;
      if (joins)
        ++fresh.back().count;
      else
        fresh.push_back({run.to + i, run.from + i, 1});
    }
  }
  return fresh;
}

}  // namespace

std::int64_t elements(const Slot& slot) {
  std::int64_t sum = 0;
  for (const Stretch& stretch : slot) sum += stretch.count;
  return sum;
}

Slot own_slot(const std::vector<std::int64_t>& lengths, std::int64_t members, std::int64_t member) {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  const host::Elements own = host::own_part(total, members, member);
  Slot slot;
  std::int64_t begin = 0;
  for (std::size_t a = 0; a < lengths.size(); ++a) {
    const std::int64_t first = std::max(own.begin, begin);
    const std::int64_t end = std::min(own.end, begin + lengths[a]);
    if (first < end) {
      slot.push_back({static_cast<std::int32_t>(a), first - begin, first - begin, end - first});
    }
    begin += lengths[a];
  }
  return slot;
}

std::vector<std::vector<Run>> first_sources(const Shard& wanted, const std::vector<const Shard*>& sources) {
  std::vector<std::vector<Run>> found;
  const Indices all = sorted(wanted);
  std::vector<Indices> brought;
  for (const Shard* const source : sources) {
    Indices here = common(all, sorted(*source));
    std::vector<Run>& runs = found.emplace_back();
    bool fresh = !empty(here), overlaps = false;
    for (const Indices& earlier : brought) {
      const Indices both = common(here, earlier);
      if (both == here) fresh = false;
      if (!empty(both)) overlaps = true;
    }
    if (!fresh) continue;
    runs = runs_between(wanted, *source);
    brought.push_back(std::move(here));
    if (!overlaps) continue;
    // A block that some have in part: element by element. Plans of today don't divide tensors so.
    std::vector<bool> known(wanted.size());
    for (std::size_t m = 0; m + 1 < found.size(); ++m) unknown(found[m], known);
    runs = unknown(runs, known);
  }
  return found;
}

Slot through(std::vector<Run> into, const std::vector<Run>& runs) {
  std::sort(into.begin(), into.end(), [](const Run& a, const Run& b) { return a.from < b.from; });
  Slot slot;
  auto here = into.begin();
  for (const Run& run : runs) {
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t at = run.to + done;
      while (here->from + here->count <= at) ++here;
      const std::int64_t size = std::min(run.count - done, here->from + here->count - at);
      const Stretch next = {0, here->to + at - here->from, run.from + done, size};
      const bool joins = !slot.empty() && slot.back().to + slot.back().count == next.to &&
                         slot.back().from + slot.back().count == next.from;
      if (joins)
        slot.back().count += size;
      else
        slot.push_back(next);
      done += size;
    }
  }
  return slot;
}

bool aligned(const std::vector<Slot>& slots, std::int64_t Stretch::* end) {
  const Slot& first = slots.front();
  for (std::size_t m = 0; m < slots.size(); ++m) {
    if (slots[m].size() != first.size()) return false;
    for (std::size_t s = 0; s < first.size(); ++s) {
      const Stretch& here = slots[m][s];
      const bool fits = here.array == first[s].array && here.count == first[s].count &&
                        here.*end == first[s].*end + static_cast<std::int64_t>(m) * here.count;
      if (!fits) return false;
    }
  }
  return true;
}

}  // namespace orrery::device
