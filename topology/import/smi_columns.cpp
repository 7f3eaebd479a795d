#include "topology/import/smi_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace orrery {
namespace {

using Names = std::vector<std::string>;
using Votes = std::vector<std::set<std::string>>;  // By column: labels of the rows that have their X there.

// Words per row that most rows have; the larger number where two are as frequent.
std::size_t usual_width(const SmiTable& table) {
  std::map<std::size_t, std::size_t> rows;
  for (const SmiRow& row : table.rows) ++rows[row.words.size()];
  std::size_t width = 0, most = 0;
  for (const auto& [words, count] : rows) {
    if (count >= most) most = count, width = words;
  }
  return width;
}

// Of whole rows, or of rows that were cut behind their X.
Votes votes_of(const SmiTable& table, std::size_t width, bool whole) {
  Votes votes(width);
  for (const SmiRow& row : table.rows) {
    const auto self = row.self();
    if (!self || row.label.empty() || *self >= width) continue;
    const bool is_whole = row.words.size() == width;
    if (whole ? is_whole : (row.words.size() < width && row.tail.empty())) votes[*self].insert(row.label);
  }
  return votes;
}

// A header with fewer names than the rows have words: moved to where it agrees with the rows, or left out.
Names aligned_header(const Names& header, const Votes& votes) {
  const std::size_t width = votes.size();
  std::size_t best_shift = 0, best = 0;
  for (std::size_t shift = 0; shift + header.size() <= width; ++shift) {
    std::size_t agreements = 0;
    bool conflict = false;
    for (std::size_t i = 0; i < header.size(); ++i) {
      const auto& vote = votes[i + shift];
      const bool agrees = vote.count(header[i]) > 0;
      agreements += agrees;
      // The name at the end may be cut: "NIC1" of "NIC10".
      conflict = conflict || (!agrees && !vote.empty() && !header[i].empty() && i + 1 < header.size());
    }
    if (!conflict && agreements > best) best = agreements, best_shift = shift;
  }
  Names names(width);
  if (best == 0) return names;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool whole = i + 1 < header.size() || votes[i + best_shift].count(header[i]) > 0;
    if (whole) names[i + best_shift] = header[i];
  }
  return names;
}

std::string join(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

struct Numbered {
  std::string prefix;
  std::int64_t number = -1;
};
Numbered numbered(const std::string& label) {
  const std::size_t digits = label.find_last_not_of("0123456789") + 1;
  Numbered found{label.substr(0, digits)};
  const char* end = label.data() + label.size();
  constexpr std::size_t kMostDigits = 9;  // Of a number that can still be counted on.
  if (digits == label.size() || label.size() - digits > kMostDigits ||
      std::from_chars(label.data() + digits, end, found.number).ec != std::errc()) {
    return {label, -1};
  }
  return found;
}

// Names that columns without one must have had if numbers go on: between two named ones, before the first,
// behind the last. NVLinks in a column tell a GPU from a network card.
class Sequence {
 public:
  Sequence(Names& names, const SmiTable& table) : names_(names), table_(table) {}

  Names fill(const SmiReadOptions& options) {
    std::size_t last = names_.size();  // The last named column so far.
    for (std::size_t p = 0; p < names_.size(); ++p) {
      if (names_[p].empty()) continue;
      const Numbered here = numbered(names_[p]);
      const auto gap = static_cast<std::int64_t>(last < p ? p - last : p + 1);
      const Numbered before = last < p ? numbered(names_[last]) : Numbered{here.prefix, here.number - gap};
      const bool runs =
          before.prefix == here.prefix && here.number >= 0 && here.number - before.number == gap;
      if (runs && here.number >= gap - 1) {
        for (std::size_t q = last < p ? last + 1 : 0; q < p; ++q) {
          name(q, here.prefix, here.number - static_cast<std::int64_t>(p - q));
        }
      }
      last = p;
    }
    if (last < names_.size()) fill_end(last, options);
    return given_;
  }

 private:
  void fill_end(std::size_t last, const SmiReadOptions& options) {
    const Numbered end = numbered(names_[last]);
    const bool gpu = smi_gpu_number(names_[last], options).has_value();
    bool any_nvlinks = false;
    for (std::size_t p = 0; p < names_.size(); ++p) any_nvlinks = any_nvlinks || nvlinks(p);
    if (end.number < 0 || (gpu && !any_nvlinks)) return;
    std::string prefix = end.prefix;
    std::int64_t number = end.number;
    for (std::size_t p = last + 1; p < names_.size(); ++p) {
      if (gpu && prefix == end.prefix && !nvlinks(p)) prefix = "NIC", number = -1;
      name(p, prefix, ++number);
    }
  }
  bool nvlinks(std::size_t column) const {
    return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const SmiRow& row) {
      return row.words.size() == names_.size() && row.words[column].cell.relation == SmiRelation::kNvLink;
    });
  }
  void name(std::size_t column, const std::string& prefix, std::int64_t number) {
    const std::string label = prefix + std::to_string(number);
    if (std::find(names_.begin(), names_.end(), label) != names_.end()) return;
    names_[column] = label;
    given_.push_back(label);
  }

  Names& names_;
  const SmiTable& table_;
  Names given_;
};

constexpr const char* kAgain = "nvidia-smi topo -m > topology.txt, and give that file";

// Takes out names that the rows' X speaks against, and second ones of a kind.
void drop_contradicted(Names& names, const Votes& votes, std::int32_t line, std::vector<ImportNote>& notes,
                       std::set<std::size_t>& spoilt) {
  for (std::size_t p = 0; p < names.size(); ++p) {
    if (names[p].empty()) continue;
    if (!votes[p].empty() && votes[p].count(names[p]) == 0) {
      notes.push_back(
          {ImportNote::Kind::kSuspect, line,
           fmt::format("column {} is headed {}, but the X of {} stands there: the column is left out", p + 1,
                       names[p], *votes[p].begin()),
           kAgain});
      names[p].clear();
      spoilt.insert(p);
    } else if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(p), names[p]) !=
               names.begin() + static_cast<std::ptrdiff_t>(p)) {
      notes.push_back({ImportNote::Kind::kSuspect, line,
                       fmt::format("the header names {} twice: its second column is left out", names[p]),
                       kAgain});
      names[p].clear();
      spoilt.insert(p);
    }
  }
}

Names take_votes(Names& names, const Votes& votes, const std::set<std::size_t>& spoilt) {
  Names taken;
  for (std::size_t p = 0; p < names.size(); ++p) {
    if (!names[p].empty() || spoilt.count(p) > 0 || votes[p].size() != 1) continue;
    const std::string& label = *votes[p].begin();
    if (std::find(names.begin(), names.end(), label) != names.end()) continue;
    names[p] = label;
    taken.push_back(label);
  }
  return taken;
}

void label_rows(SmiTable& table, const Names& names, std::vector<ImportNote>& notes) {
  for (SmiRow& row : table.rows) {
    if (!row.label.empty()) continue;
    const auto self = row.self();
    if (self && row.words.size() == names.size() && !names[*self].empty()) {
      row.label = names[*self];
      notes.push_back(
          {ImportNote::Kind::kRepaired, row.line,
           fmt::format("the row has no label: taken as {}, in whose column its X stands", row.label), ""});
    } else {
      notes.push_back({ImportNote::Kind::kSuspect, row.line,
                       "the row has no label, nor an X that would tell it: left out", kAgain});
    }
  }
}

}  // namespace

Names smi_columns(SmiTable& table, const SmiReadOptions& options, std::vector<ImportNote>& notes) {
  const std::size_t usual = usual_width(table);
  const bool whole_header = table.header.size() >= usual;
  const std::size_t width = std::max(usual, table.header.size());
  const std::int32_t line = table.header_lines.empty() ? 0 : table.header_lines.front();
  const Votes votes = votes_of(table, width, true);
  Names names = whole_header ? table.header : aligned_header(table.header, votes);
  std::set<std::size_t> spoilt;
  drop_contradicted(names, votes, line, notes, spoilt);
  Names told = take_votes(names, votes, spoilt);
  for (std::string& label : take_votes(names, votes_of(table, width, false), spoilt))
    told.push_back(std::move(label));
  if (!told.empty()) {
    notes.push_back(
        {ImportNote::Kind::kRepaired, line,
         fmt::format("{}: columns {} are told by the X in their rows",
                     table.header.empty() ? "there is no header" : "the header is damaged", join(told)),
         ""});
  }
  if (!whole_header && spoilt.empty()) {
    const Names assumed = Sequence(names, table).fill(options);
    if (!assumed.empty()) {
      notes.push_back(
          {ImportNote::Kind::kAssumed, line,
           fmt::format("nothing names the columns taken as {}: their numbers go on from the others'",
                       join(assumed)),
           kAgain});
    }
  }
  const auto nameless = std::count(names.begin(), names.end(), "");
  if (nameless > static_cast<std::ptrdiff_t>(spoilt.size())) {
    notes.push_back(
        {ImportNote::Kind::kMissing, line,
         fmt::format("{} of {} columns have no name that can be read: left out", nameless, names.size()),
         kAgain});
  }
  label_rows(table, names, notes);
  return names;
}

SmiPlacement place_smi_row(const SmiRow& row, const Names& columns, bool last_row) {
  const std::size_t width = columns.size(), words = row.words.size();
  const auto own_name = std::find(columns.begin(), columns.end(), row.label);
  const auto own = static_cast<std::size_t>(own_name - columns.begin());  // `width`: it has no column.
  const auto self = row.self();
  const bool one_self = row.selves() == 1;
  const auto note = [&](ImportNote::Kind kind, const std::string& text) {
    return ImportNote{kind, row.line, fmt::format("row of {}: {}", row.label, text),
                      kind == ImportNote::Kind::kRepaired ? "" : kAgain};
  };
  if (words == width && own == width && row.selves() == 0) {
    return {
        words, 0,
        note(ImportNote::Kind::kRepaired, "it has no column of its own; its cells are taken by the others'")};
  }
  if (words == width && own < width) {
    if (one_self && *self == own) return {words, 0, {}};
    if (row.selves() == 0 && row.words[own].damaged) {
      return {words, 0,
              note(ImportNote::Kind::kRepaired, "its X can't be read; the number of cells is right")};
    }
  }
  if (own < width && one_self && *self == own) {
    const bool tail = !row.tail.empty();
    if (words < width && !tail && last_row) {
      return {words, 0,
              note(ImportNote::Kind::kMissing, fmt::format("it ends after {} of {} cells", words, width))};
    }
    return {
        own + 1, 0,
        note(ImportNote::Kind::kSuspect,
             fmt::format("{} cells where {} are expected; those behind its X are left out", words, width))};
  }
  if (own < width && one_self && *self < own && words - *self == width - own) {
    return {
        0, words - *self,
        note(ImportNote::Kind::kSuspect,
             fmt::format("{} cells where {} are expected; those before its X are left out", words, width))};
  }
  if (own < width && row.selves() == 0 && words <= own && row.tail.empty() && last_row) {
    return {words, 0,
            note(ImportNote::Kind::kMissing, fmt::format("it ends after {} of {} cells", words, width))};
  }
  return {0, 0,
          note(ImportNote::Kind::kSuspect,
               fmt::format("{} cells where {} are expected, {}: its cells are left out", words, width,
                           one_self ? "and its X in another column"
                                    : "without the X that would tell their columns"))};
}

}  // namespace orrery
