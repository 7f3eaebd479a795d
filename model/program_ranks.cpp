#include "model/program_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/program_lexer.hpp"

namespace orrery {
namespace {

struct Repeat {
  std::int64_t count = 1;
  std::int64_t step = 0;
  bool operator==(const Repeat&) const = default;
};

// `base`, repeated; the last repeat is the outermost. Items of one shape differ only in where they begin.
struct Item {
  std::int64_t base = 0;
  std::size_t shape = 0;
  std::vector<Repeat> repeats;
};

bool same_form(const Item& a, const Item& b) { return a.shape == b.shape && a.repeats == b.repeats; }

// One past the last item that continues the progression begun by `first` and its successor.
std::size_t run_end(const std::vector<Item>& items, std::size_t first) {
  if (first + 1 >= items.size() || !same_form(items[first], items[first + 1])) return first + 1;
  const std::int64_t step = items[first + 1].base - items[first].base;
  std::size_t end = first + 2;
  while (end < items.size() && same_form(items[first], items[end]) &&
         items[end].base - items[end - 1].base == step) {
    ++end;
  }
  return end;
}

std::vector<Item> merge_once(const std::vector<Item>& items) {
  std::vector<Item> merged;
  for (std::size_t i = 0; i < items.size();) {
    std::size_t end = run_end(items, i);
    // "0, 8, 9, 10" is 0 and a run, not two pairs.
    if (end == i + 2 && run_end(items, i + 1) > i + 3) end = i + 1;
    merged.push_back(items[i]);
    if (end > i + 1) {
      const auto count = static_cast<std::int64_t>(end - i);
      merged.back().repeats.push_back({count, items[i + 1].base - items[i].base});
    }
    i = end;
  }
  return merged;
}

// A repeat of two is longer to read than the two items, unless it is part of something larger.
void unfold_pairs(const Item& item, std::vector<Item>& out) {
  const bool plain_run =
      item.shape == 0 && item.repeats.size() == 1 && item.repeats[0].step == 1 && item.base >= 0;
  if (plain_run || item.repeats.empty() || item.repeats.back().count != 2) {
    out.push_back(item);
    return;
  }
  Item half = item;
  half.repeats.pop_back();
  unfold_pairs(half, out);
  half.base += item.repeats.back().step;
  unfold_pairs(half, out);
}

std::vector<Item> compact(std::vector<Item> items) {
  while (true) {
    std::vector<Item> merged = merge_once(items);
    if (merged.size() == items.size()) break;
    items = std::move(merged);
  }
  std::vector<Item> unfolded;
  for (const Item& item : items) unfold_pairs(item, unfolded);
  return unfolded;
}

void append_repeats(std::string& out, std::span<const Repeat> repeats) {
  for (const Repeat& repeat : repeats) out += fmt::format(" x {} step {}", repeat.count, repeat.step);
}

std::string format_number_item(const Item& item) {
  std::string out = fmt::format("{}", item.base);
  std::span<const Repeat> rest = item.repeats;
  if (!rest.empty() && item.base >= 0 && rest[0].step >= 1) {
    const Repeat inner = rest[0];
    out += fmt::format("-{}", item.base + (inner.count - 1) * inner.step);
    if (inner.step > 1) out += fmt::format("/{}", inner.step);
    rest = rest.subspan(1);
  }
  append_repeats(out, rest);
  return out;
}

}  // namespace

std::string format_numbers(std::span<const std::int64_t> values) {
  if (values.empty()) return "none";
  std::vector<Item> items;
  items.reserve(values.size());
  for (const std::int64_t value : values) items.push_back({value, 0, {}});
  std::string out;
  for (const Item& item : compact(std::move(items))) {
    if (!out.empty()) out += item.repeats.size() > 1 ? ", " : ",";
    out += format_number_item(item);
  }
  return out;
}

std::string format_ranks(std::span<const RankId> ranks) {
  std::vector<std::int64_t> values;
  values.reserve(ranks.size());
  for (const RankId rank : ranks) values.push_back(rank.value);
  return format_numbers(values);
}

std::string format_groups(std::span<const std::vector<RankId>> groups) {
  // Shape 0 is taken by bare numbers; the shape of a group is its members relative to the first.
  std::map<std::vector<std::int64_t>, std::size_t> shapes;
  std::vector<const std::vector<std::int64_t>*> members_of{nullptr};
  std::vector<Item> items;
  for (const std::vector<RankId>& group : groups) {
    const std::int64_t base = group.empty() ? 0 : group.front().value;
    std::vector<std::int64_t> members;
    members.reserve(group.size());
    for (const RankId rank : group) members.push_back(rank.value - base);
    const auto [entry, added] = shapes.try_emplace(std::move(members), members_of.size());
    if (added) members_of.push_back(&entry->first);
    items.push_back({base, entry->second, {}});
  }
  std::string out;
  for (const Item& item : compact(std::move(items))) {
    std::vector<std::int64_t> members = *members_of[item.shape];
    for (std::int64_t& member : members) member += item.base;
    if (!out.empty()) out += ' ';
    out += fmt::format("[{}]", members.empty() ? "" : format_numbers(members));
    append_repeats(out, item.repeats);
  }
  return out;
}

namespace {

struct Repetition {
  std::int64_t count = 1;
  std::int64_t step = 0;
};

// "x COUNT step STEP", applied to `size` numbers between `lowest` and `highest`.
Repetition read_repetition(Lexer& in, std::string_view what, std::size_t size, std::int64_t lowest,
                           std::int64_t highest, std::int64_t low) {
  const std::size_t offset = in.peek().offset;
  in.expect_word("x");
  Repetition repetition;
  repetition.count = in.expect_integer("a number of repetitions", 1, kMaxRanks);
  in.expect_word("step");
  repetition.step = in.expect_integer("a step", -kMaxRanks, kMaxRanks);
  const std::int64_t shift = (repetition.count - 1) * repetition.step;
  if (static_cast<std::int64_t>(size) * repetition.count > kMaxRanks) {
    in.fail_at(offset, fmt::format("{} numbers; expected at most {}",
                                   static_cast<std::int64_t>(size) * repetition.count, kMaxRanks));
  }
  if (lowest + shift < low || highest + shift >= kMaxRanks) {
    in.fail_at(offset, fmt::format("the repetition leads to {} {}; expected {} from {} to {}", what,
                                   shift < 0 ? lowest + shift : highest + shift, what, low, kMaxRanks - 1));
  }
  return repetition;
}

std::vector<std::int64_t> read_item(Lexer& in, std::string_view what, std::int64_t low) {
  const std::size_t offset = in.peek().offset;
  const std::int64_t first = in.expect_integer(what, low, kMaxRanks - 1);
  std::int64_t last = first;
  std::int64_t step = 1;
  if (in.accept_punctuation('-')) {
    last = in.expect_integer(what, low, kMaxRanks - 1);
    if (last < first)
      in.fail_at(offset, fmt::format("{}-{} runs backward; expected {}-{}", first, last, last, first));
    if (in.accept_punctuation('/')) step = in.expect_integer("a stride", 1, kMaxRanks);
  }
  std::vector<std::int64_t> values;
  for (std::int64_t value = first; value <= last; value += step) values.push_back(value);
  while (in.at_word("x")) {
    const auto [lowest, highest] = std::ranges::minmax(values);
    const Repetition repetition = read_repetition(in, what, values.size(), lowest, highest, low);
    const std::size_t size = values.size();
    for (std::int64_t i = 1; i < repetition.count; ++i) {
      for (std::size_t k = 0; k < size; ++k) values.push_back(values[k] + i * repetition.step);
    }
  }
  return values;
}

using Groups = std::vector<std::vector<RankId>>;

void repeat_groups(Lexer& in, Groups& groups) {
  std::size_t members = 0;
  std::int64_t lowest = kMaxRanks - 1;
  std::int64_t highest = 0;
  for (const std::vector<RankId>& group : groups) {
    members += std::max<std::size_t>(1, group.size());
    for (const RankId rank : group) {
      lowest = std::min<std::int64_t>(lowest, rank.value);
      highest = std::max<std::int64_t>(highest, rank.value);
    }
  }
  const Repetition repetition = read_repetition(in, "a rank", members, std::min(lowest, highest), highest, 0);
  const std::size_t size = groups.size();
  for (std::int64_t i = 1; i < repetition.count; ++i) {
    for (std::size_t k = 0; k < size; ++k) {
      std::vector<RankId> shifted = groups[k];
      for (RankId& rank : shifted) rank = RankId(rank.value + i * repetition.step);
      groups.push_back(std::move(shifted));
    }
  }
}

}  // namespace

std::vector<std::int64_t> read_numbers(Lexer& in, std::string_view what, std::int64_t low) {
  std::vector<std::int64_t> values;
  if (in.accept_word("none")) return values;
  do {
    const std::size_t offset = in.peek().offset;
    const std::vector<std::int64_t> item = read_item(in, what, low);
    if (static_cast<std::int64_t>(values.size() + item.size()) > kMaxRanks) {
      in.fail_at(offset, fmt::format("more than {} numbers", kMaxRanks));
    }
    values.insert(values.end(), item.begin(), item.end());
  } while (in.accept_punctuation(','));
  return values;
}

Groups read_groups(Lexer& in) {
  Groups groups;
  std::size_t members = 0;
  while (in.at_punctuation('[')) {
    const std::size_t offset = in.take().offset;
    Groups block(1);
    if (!in.at_punctuation(']')) {
      for (const std::int64_t rank : read_numbers(in, "a rank", 0)) block.front().emplace_back(rank);
    }
    in.expect_punctuation(']');
    while (in.at_word("x")) repeat_groups(in, block);
    for (std::vector<RankId>& group : block) {
      members += std::max<std::size_t>(1, group.size());
      groups.push_back(std::move(group));
    }
    if (static_cast<std::int64_t>(members) > kMaxRanks) {
      in.fail_at(offset, fmt::format("the groups have more than {} members", kMaxRanks));
    }
  }
  return groups;
}

}  // namespace orrery
