#include "tests/topology/damaged_paste.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/random.hpp"

namespace orrery {
namespace {

using Lines = std::vector<std::string>;

Lines split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string join(const Lines& lines, std::string_view end) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append(end);
  return text;
}

std::size_t below(Random& random, std::size_t count) {
  return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(count) - 1));
}

bool is_gap(char c) { return c == ' ' || c == '\t'; }

// Takes out one run of blanks inside a line.
void glue_cells(Lines& lines, Random& random) {
  std::string& line = lines[below(random, lines.size())];
  std::vector<std::size_t> starts;
  for (std::size_t i = 1; i + 1 < line.size(); ++i) {
    if (is_gap(line[i]) && !is_gap(line[i - 1])) starts.push_back(i);
  }
  if (starts.empty()) return;
  const std::size_t start = starts[below(random, starts.size())];
  std::size_t end = start;
  while (end < line.size() && is_gap(line[end])) ++end;
  line.erase(start, end - start);
}

// The n-th word, or the n-th field between tabs, of every line or of one: what cut and awk do.
void drop_column(Lines& lines, Random& random, bool by_tabs) {
  const std::size_t column = below(random, 12);
  const bool all = random.between(0, 2) > 0;
  const std::size_t only = below(random, lines.size());
  for (std::size_t n = 0; n < lines.size(); ++n) {
    if (!all && n != only) continue;
    std::string& line = lines[n];
    std::size_t field = 0, at = 0;
    while (at < line.size()) {
      std::size_t start = at;
      while (!by_tabs && start < line.size() && is_gap(line[start])) ++start;
      std::size_t end = start;
      while (end < line.size() && (by_tabs ? line[end] != '\t' : !is_gap(line[end]))) ++end;
      if (field == column) {
        line.erase(start, end + (by_tabs && end < line.size() ? 1 : 0) - start);
        break;
      }
      at = end + (by_tabs ? 1 : 0);
      ++field;
    }
  }
}

void blanks_for_tabs(Lines& lines) {
  for (std::string& line : lines) {
    std::string out;
    for (const char c : line) {
      if (c == '\t') {
        out.append(8 - out.size() % 8, ' ');
      } else {
        out += c;
      }
    }
    line = out;
  }
}

void collapse_blanks(Lines& lines) {
  for (std::string& line : lines) {
    std::string out;
    for (const char c : line) {
      if (!is_gap(c)) {
        out += c;
      } else if (!out.empty() && out.back() != ' ') {
        out += ' ';
      }
    }
    line = out;
  }
}

void prefix(Lines& lines, Random& random) {
  constexpr std::array<std::string_view, 8> kPrefixes = {
      "# ", "> ", "[rank0]: ", "2026-05-01T12:00:00Z node-17 ", "        ", "[1,0]<stdout>:", "0: ", "\t"};
  const std::string_view text = kPrefixes[below(random, kPrefixes.size())];
  for (std::string& line : lines) line.insert(0, text);
}

void shuffle(Lines& lines, Random& random) {
  // Rows only: a header below its rows is another kind of damage than `sort` does.
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("X") != std::string::npos && lines[i].find('=') == std::string::npos) rows.push_back(i);
  }
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(lines[rows[i - 1]], lines[rows[below(random, i)]]);
}

void damage(Lines& lines, Random& random) {
  if (lines.empty()) return;
  std::string& line = lines[below(random, lines.size())];
  switch (random.between(0, 11)) {
    case 0: lines = split(join(lines, "\n").substr(0, below(random, join(lines, "\n").size()))); break;
    case 1: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size()))); break;
    case 2: glue_cells(lines, random); break;
    case 3: drop_column(lines, random, true); break;
    case 4: drop_column(lines, random, false); break;
    case 5: blanks_for_tabs(lines); break;
    case 6: collapse_blanks(lines); break;
    case 7: prefix(lines, random); break;
    case 8: shuffle(lines, random); break;
    case 9: line.resize(below(random, line.size() + 1)); break;
    case 10: lines.push_back(line); break;
    default: line = "\x1b[4m" + line + "\x1b[0m"; break;
  }
}

}  // namespace

std::string damaged_paste(std::string_view text, std::uint64_t seed) {
  Random random(seed);
  Lines lines = split(text);
  for (std::int64_t rounds = random.between(1, 3); rounds > 0; --rounds) damage(lines, random);
  std::string damaged = join(lines, random.between(0, 3) == 0 ? "\r\n" : "\n");
  if (random.between(0, 1) == 0) {
    while (!damaged.empty() && (damaged.back() == '\n' || damaged.back() == '\r')) damaged.pop_back();
  }
  return damaged;
}

}  // namespace orrery
