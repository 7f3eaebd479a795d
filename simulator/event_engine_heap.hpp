#pragma once
// A queue of dates that can be moved: for each id at most one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::fast {

// Four children per node: half the depth of a binary heap, and a node's children share cache lines.
class DateHeap {
 public:
  void reserve_ids(std::size_t count) {
    if (places_.size() < count) places_.resize(count, kAbsent);
  }
  bool empty() const { return entries_.empty(); }
  std::int64_t first_date() const { return entries_.front().date; }

  std::int32_t pop() {
    const std::int32_t id = entries_.front().id;
    places_[static_cast<std::size_t>(id)] = kAbsent;
    const Entry moved = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(0, moved);
    return id;
  }

  void set(std::int32_t id, std::int64_t date) {
    const std::int32_t place = places_[static_cast<std::size_t>(id)];
    if (place == kAbsent) {
      entries_.push_back({});
      rise(entries_.size() - 1, {date, id});
    } else if (date < entries_[static_cast<std::size_t>(place)].date) {
      rise(static_cast<std::size_t>(place), {date, id});
    } else {
      sink(static_cast<std::size_t>(place), {date, id});
    }
  }

 private:
  struct Entry {
    std::int64_t date = 0;
    std::int32_t id = 0;
  };
  static constexpr std::int32_t kAbsent = -1;
  static constexpr std::size_t kChildren = 4;

  void put(std::size_t place, const Entry& entry) {
    entries_[place] = entry;
    places_[static_cast<std::size_t>(entry.id)] = static_cast<std::int32_t>(place);
  }

  void rise(std::size_t place, const Entry& entry) {
    while (place > 0) {
      const std::size_t parent = (place - 1) / kChildren;
      if (entries_[parent].date <= entry.date) break;
      put(place, entries_[parent]);
      place = parent;
    }
    put(place, entry);
  }

  void sink(std::size_t place, const Entry& entry) {
    for (;;) {
      std::size_t child = kChildren * place + 1;
      if (child >= entries_.size()) break;
      std::size_t least = child;
      const std::size_t end = std::min(child + kChildren, entries_.size());
      while (++child < end)
        if (entries_[child].date < entries_[least].date) least = child;
      if (entries_[least].date >= entry.date) break;
      put(place, entries_[least]);
      place = least;
    }
    put(place, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::int32_t> places_;  // By id.
};

}  // namespace orrery::fast
