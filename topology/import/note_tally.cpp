#include "topology/import/note_tally.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

constexpr std::size_t kNamed = 4;  // Places that are named; the others are counted.

}  // namespace

void NoteTally::add(ImportNote::Kind kind, std::int32_t line, std::string_view where, std::string_view what,
                    std::string_view remedy) {
  auto entry = std::ranges::find_if(
      entries_, [&](const Entry& other) { return other.note.kind == kind && other.note.text == what; });
  if (entry == entries_.end()) {
    entry = entries_.emplace(entry);
    entry->note = {kind, line, std::string(what), std::string(remedy)};
  }
  if (!where.empty()) entry->places.emplace_back(where);
}

std::vector<ImportNote> NoteTally::notes() const {
  std::vector<ImportNote> notes;
  for (const Entry& entry : entries_) {
    notes.push_back(entry.note);
    if (entry.places.empty()) continue;
    const std::size_t named = std::min(entry.places.size(), kNamed);
    const auto first = entry.places.begin();
    const bool lists = std::ranges::any_of(
        entry.places, [](const std::string& place) { return place.find(',') != std::string::npos; });
    std::string places =
        fmt::format("{}", fmt::join(first, first + static_cast<std::ptrdiff_t>(named), lists ? "; " : ", "));
    if (named < entry.places.size()) places += fmt::format(" and {} more", entry.places.size() - named);
    notes.back().text = places + ": " + entry.note.text;
  }
  return notes;
}

}  // namespace orrery
