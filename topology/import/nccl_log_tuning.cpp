#include "topology/import/nccl_log_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "topology/import/log_text.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;
using log_text::trimmed;

// In the order of NCCL's numbers, which older logs print instead of names.
constexpr std::array<std::string_view, 7> kAlgorithms{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, 3> kProtocols{"LL", "LL128", "Simple"};
constexpr std::array<std::string_view, 5> kFunctions{"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                     "AllReduce"};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// "RING", "Ring" and "1" are Ring; nothing for another word.
template <std::size_t N>
std::string_view name_of(std::string_view text, const std::array<std::string_view, N>& names) {
  if (const auto number = log_text::whole_integer(text)) {
    return *number >= 0 && *number < static_cast<std::int64_t>(N) ? names[static_cast<std::size_t>(*number)]
                                                                  : std::string_view();
  }
  const auto* const found =
      std::ranges::find_if(names, [&](std::string_view name) { return equal_ignoring_case(name, text); });
  return found == names.end() ? std::string_view() : *found;
}

// Cells between bars; the last one has no bar where the row is cut.
std::vector<std::string_view> cells_of(std::string_view row, bool& cut) {
  std::vector<std::string_view> cells;
  std::size_t bar = 0;
  while ((bar = row.find('|')) != std::string_view::npos) {
    cells.push_back(trimmed(row.substr(0, bar)));
    row.remove_prefix(bar + 1);
  }
  cut = !trimmed(row).empty();
  return cells;
}

void note_cut(std::vector<ImportNote>& notes, std::int32_t line, std::string_view row, std::size_t cells) {
  notes.push_back({ImportNote::Kind::kSuspect, line,
                   fmt::format("the tuning table's row '{}' is cut off behind {} cells", row, cells),
                   "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING prints the table"});
}

// "Tree/ LL" of the older form: one heading per column.
bool read_joint_heading(const std::vector<std::string_view>& cells, TuningColumns& columns) {
  TuningColumns result;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const std::size_t slash = cells[i].find('/');
    if (slash == std::string_view::npos) return false;
    const std::string_view algorithm = name_of(trimmed(cells[i].substr(0, slash)), kAlgorithms);
    const std::string_view given = trimmed(cells[i].substr(0, slash));
    result.algorithms.emplace_back(algorithm.empty() ? given : algorithm);
    result.protocols.emplace_back(trimmed(cells[i].substr(slash + 1)));
  }
  columns = std::move(result);
  return true;
}

// The newer form: three algorithms in one line, three protocols under each in the next.
void read_protocols(const std::vector<std::string_view>& cells, TuningColumns& columns) {
  columns.protocols.clear();
  for (std::size_t i = 1; i < cells.size(); ++i) columns.protocols.emplace_back(cells[i]);
  std::vector<std::string> spread;
  for (std::size_t i = 0; i < columns.protocols.size(); ++i) {
    const std::size_t algorithm = i / kProtocols.size();
    if (algorithm < columns.algorithms.size()) spread.push_back(columns.algorithms[algorithm]);
  }
  columns.algorithms = std::move(spread);
}

bool read_cost(std::string_view cell, LogTuningCell& cost) {
  Cursor cursor(cell);
  const auto latency = cursor.number();
  if (!latency || !cursor.skip(" / ")) return false;
  const auto rate = cursor.number();
  if (!rate || !cursor.empty()) return false;
  cost.latency_us = *latency;
  cost.gb_per_s = *rate;
  return true;
}

}  // namespace

bool read_tuning_line(std::string_view text, std::int32_t line, TuningColumns& columns, LogTuningTable& table,
                      std::vector<ImportNote>& notes) {
  const std::size_t first_bar = text.find('|');
  if (first_bar == std::string_view::npos) return false;
  const std::string_view row = trimmed(text.substr(0, first_bar));
  const std::string_view function = name_of(row, kFunctions);
  const bool threads = row == "Max NThreads";
  const bool joint = row == "Latency/AlgBw", algorithms = row == "Algorithm", protocols = row == "Protocol";
  if (function.empty() && !threads && !joint && !algorithms && !protocols) return false;
  bool cut = false;
  const std::vector<std::string_view> cells = cells_of(text, cut);
  if (table.line == 0) table.line = line;
  if (joint && !read_joint_heading(cells, columns)) columns = {};
  if (algorithms) {
    columns = {};
    for (std::size_t i = 1; i < cells.size(); ++i) columns.algorithms.emplace_back(cells[i]);
  }
  if (protocols) read_protocols(cells, columns);
  if (cut) note_cut(notes, line, row, cells.size() - 1);
  if (joint || algorithms || protocols) return true;
  const std::size_t width = std::min(columns.algorithms.size(), columns.protocols.size());
  if (cells.size() - 1 != width && !cut) note_cut(notes, line, row, cells.size() - 1);
  for (std::size_t i = 0; i < std::min(width, cells.size() - 1); ++i) {
    LogTuningCell cost{std::string(function), columns.algorithms[i], columns.protocols[i], 0, 0};
    const auto count = log_text::whole_integer(cells[i + 1]);
    if (threads && count && *count >= 0 && *count <= 4096) {
      table.threads.push_back(
          {columns.algorithms[i], columns.protocols[i], static_cast<std::int32_t>(*count)});
    } else if (!threads && read_cost(cells[i + 1], cost)) {
      table.cells.push_back(std::move(cost));
    } else {
      notes.push_back({ImportNote::Kind::kSuspect,
                       line,
                       fmt::format("'{}' in the tuning table is no figure: left out", cells[i + 1]),
                       {}});
    }
  }
  return true;
}

bool read_choice(std::string_view text, std::int32_t line, std::vector<LogChoice>& choices,
                 std::vector<ImportNote>& notes) {
  if (text.find(" Bytes -> Algo ") == std::string_view::npos) return false;
  LogChoice choice;
  choice.line = line;
  Cursor cursor(text);
  if (text.substr(0, text.find(" Bytes")).find(':') != std::string_view::npos) {
    choice.function = std::string(cursor.until(":"));
    cursor.skip(": ");
  }
  const auto bytes = cursor.long_integer();
  bool whole = bytes && *bytes >= 0 && cursor.skip(" Bytes -> Algo ");
  const std::string_view algorithm = name_of(cursor.word(), kAlgorithms);
  whole = whole && !algorithm.empty() && cursor.skip(" proto ");
  const std::string_view protocol = name_of(cursor.word(), kProtocols);
  whole = whole && !protocol.empty();
  if (whole && cursor.skip(" time ")) {
    const auto time = cursor.number();
    whole = time.has_value();
    choice.time_us = time.value_or(-1);
  }
  if (whole && cursor.skip(" channel{Lo..Hi}={")) {
    const auto first = cursor.integer();
    whole = first && cursor.skip("..");
    const auto last = whole ? cursor.integer() : std::nullopt;
    whole = last && cursor.skip("}");
    choice.first_channel = first.value_or(-1);
    choice.last_channel = last.value_or(-1);
  }
  if (!whole) {
    notes.push_back({ImportNote::Kind::kSuspect, line, "what was chosen for a call is torn: left out", {}});
    return true;
  }
  choice.bytes = *bytes;
  choice.algorithm = std::string(algorithm);
  choice.protocol = std::string(protocol);
  for (LogChoice& old : choices) {
    if (old.function != choice.function || old.bytes != choice.bytes || old.algorithm != choice.algorithm ||
        old.protocol != choice.protocol || old.first_channel != choice.first_channel ||
        old.last_channel != choice.last_channel)
      continue;
    ++old.calls;
    return true;
  }
  choices.push_back(std::move(choice));
  return true;
}

}  // namespace orrery::nccl_log
