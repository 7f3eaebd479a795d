#include "topology/import/nccl_tests_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "topology/import/log_text.hpp"
#include "topology/import/nccl_tests_check.hpp"

namespace orrery {
namespace {

using log_text::Cursor;

// The programs' names are these and "_perf".
constexpr std::array<std::string_view, 10> kCollectives{
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "alltoall",   "sendrecv",   "gather",         "scatter",   "hypercube"};
constexpr std::array<std::string_view, 13> kTypes{"int8",     "uint8",    "int32", "uint32", "int64",
                                                  "uint64",   "half",     "float", "double", "bfloat16",
                                                  "fp8_e4m3", "fp8_e5m2", "f8e4m3"};
constexpr std::array<std::string_view, 7> kReductions{"sum", "prod", "max", "min", "avg", "mulsum", "none"};

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::ranges::find(words, word) != words.end();
}

// The collective whose program is named in `text`; the longest, for reduce is in all_reduce.
std::string_view named_in(std::string_view text) {
  std::string_view best;
  for (const std::string_view name : kCollectives) {
    const std::size_t at = text.find(fmt::format("{}_perf", name));
    if (at != std::string_view::npos && name.size() > best.size()) best = name;
  }
  return best;
}

// "allreduce", "all-gather", "AllReduce" in a file's name.
std::string_view named_in_file(std::string_view file) {
  std::string letters;
  for (const char c : file.substr(file.find_last_of('/') + 1)) {
    if (c != '_' && c != '-') letters += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  std::string_view best;
  for (const std::string_view name : kCollectives) {
    std::string plain(name);
    std::erase(plain, '_');
    if (letters.find(plain) != std::string::npos && name.size() > best.size()) best = name;
  }
  return best;
}

class TableReader {
 public:
  explicit TableReader(NcclTestsTable& table) : table_(table) {}

  // False: the next table begins.
  bool read(std::string_view line, std::int32_t number) {
    const std::string_view text = log_text::untagged(line);
    if (table_.collective.empty()) table_.collective = std::string(named_in(text));
    if (!table_.rows.empty() &&
        (text.starts_with("# nThread") || text.find("Collective test starting") != std::string_view::npos))
      return false;
    if (read_row(text, number)) return true;
    read_options(text);
    read_rank(text, number);
    read_summary(text, number);
    Cursor cursor(text);
    if (cursor.seek("NCCL version ") && table_.nccl_version.empty())
      table_.nccl_version = std::string(cursor.until("+ "));
    if (Cursor own(text); own.seek("nccl-tests version ")) table_.version = std::string(own.word());
    return true;
  }

 private:
  static std::string_view field(std::string_view text, std::string_view name) {
    Cursor cursor(text);
    if (!cursor.seek(name)) return {};
    cursor.blanks();
    return cursor.until(" (");
  }

  static std::int32_t small_field(std::string_view text, std::string_view name) {
    return static_cast<std::int32_t>(
        std::clamp<std::int64_t>(log_text::whole_integer(field(text, name)).value_or(0), 0, 1 << 30));
  }

  void read_options(std::string_view text) {
    if (text.find("nThread ") == std::string_view::npos) return;
    table_.threads = small_field(text, "nThread ");
    table_.gpus_per_thread = small_field(text, "nGpus ");
    table_.min_bytes = log_text::whole_integer(field(text, "minBytes ")).value_or(0);
    table_.max_bytes = log_text::whole_integer(field(text, "maxBytes ")).value_or(0);
    if (text.find("(factor)") != std::string_view::npos) {
      table_.step_factor = log_text::whole_number(field(text, "step: ")).value_or(0);
    }
    table_.warmup_iterations = small_field(text, "warmup iters: ");
    // Behind the warm-up's, whose name ends alike.
    Cursor rest(text);
    if (rest.seek("warmup iters: ")) table_.iterations = small_field(rest.rest(), "iters: ");
  }

  void read_rank(std::string_view text, std::int32_t number) {
    Cursor cursor(text);
    if (!cursor.seek("Rank ") || text.find(" Pid ") == std::string_view::npos) return;
    cursor.blanks();
    NcclTestsRank rank;
    const auto index = cursor.integer();
    if (cursor.skip(" Group ")) rank.group = cursor.integer().value_or(0);
    bool whole = index && *index >= 0 && *index < 1 << 20 && cursor.skip(" Pid ");
    const auto pid = whole ? cursor.long_integer() : std::nullopt;
    whole = pid && cursor.skip(" on ");
    rank.host = std::string(cursor.word());
    whole = whole && !rank.host.empty() && cursor.skip(" device ");
    const auto device = whole ? cursor.integer() : std::nullopt;
    whole = device && cursor.skip(" [");
    rank.bus_id = std::string(cursor.until("]"));
    whole = whole && cursor.skip("] ");
    if (!whole) {
      note(ImportNote::Kind::kSuspect, number, "a rank's line is torn: left out");
      return;
    }
    rank.rank = *index;
    rank.pid = *pid;
    rank.device = *device;
    rank.gpu = std::string(log_text::trimmed(cursor.rest()));
    table_.ranks.push_back(std::move(rank));
  }

  void read_summary(std::string_view text, std::int32_t number) {
    Cursor cursor(text);
    if (cursor.seek("Avg bus bandwidth")) {
      cursor.skip(" : ");
      table_.average_bus_gb_per_s = cursor.number();
    }
    if (cursor.seek("Out of bounds values :") && text.find("FAILED") != std::string_view::npos) {
      note(ImportNote::Kind::kSuspect, number, fmt::format("nccl-tests found wrong results: {}", text));
    }
  }

  // size count type redop [root] and twice time algbw busbw error, behind whatever a launcher put before.
  bool read_row(std::string_view text, std::int32_t number) {
    const std::vector<std::string_view> words = log_text::words(text);
    for (std::size_t i = 0; i + 3 < words.size(); ++i) {
      const auto bytes = log_text::whole_integer(words[i]), elements = log_text::whole_integer(words[i + 1]);
      if (!bytes || !elements || !is_one_of(words[i + 2], kTypes) || !is_one_of(words[i + 3], kReductions))
        continue;
      NcclTestsRow row;
      row.bytes = *bytes;
      row.elements = *elements;
      row.type = std::string(words[i + 2]);
      row.reduction = std::string(words[i + 3]);
      row.line = number;
      add_figures(
          std::vector<std::string_view>(words.begin() + static_cast<std::ptrdiff_t>(i) + 4, words.end()),
          row);
      return true;
    }
    if (words.size() >= 11 && log_text::whole_integer(words[0]) && log_text::whole_integer(words[1])) {
      note(ImportNote::Kind::kSuspect, number,
           fmt::format("looks like a row, but '{}' is no data type of nccl-tests: left out", words[2]));
    }
    return false;
  }

  void add_figures(std::vector<std::string_view> words, NcclTestsRow row) {
    if (row.bytes < 0 || row.elements < 0) {
      note(ImportNote::Kind::kSuspect, row.line, "a row with a negative size: left out");
      return;
    }
    // With a root there are nine figures; without, eight. A cut row is told by its header's columns.
    const bool root =
        words.size() >= 9 || (words.size() != 8 && !words.empty() && log_text::whole_integer(words[0]));
    if (root) {
      row.root = static_cast<std::int32_t>(
          std::clamp<std::int64_t>(log_text::whole_integer(words[0]).value_or(-1), -1, 1 << 20));
      words.erase(words.begin());
    }
    row.out_of_place = read_timing(words, 0, row);
    row.in_place = read_timing(words, 4, row);
    if (words.size() < 8) {
      note(ImportNote::Kind::kMissing, row.line,
           fmt::format("the row of {} bytes is cut off behind {} of 8 figures", row.bytes, words.size()));
    }
    if (words.size() > 8) {
      note(ImportNote::Kind::kRepaired, row.line,
           fmt::format("something else stands behind the row of {} bytes: left out", row.bytes));
    }
    table_.rows.push_back(std::move(row));
  }

  std::optional<NcclTestsTiming> read_timing(const std::vector<std::string_view>& words, std::size_t at,
                                             const NcclTestsRow& row) {
    if (at + 4 > words.size() || words[at] == "N/A") return std::nullopt;
    const auto time = log_text::whole_number(words[at]), algorithm = log_text::whole_number(words[at + 1]),
               bus = log_text::whole_number(words[at + 2]);
    if (!time || !algorithm || !bus || *time < 0) {
      note(ImportNote::Kind::kSuspect, row.line,
           fmt::format("figures of the row of {} bytes are no numbers: left out", row.bytes));
      return std::nullopt;
    }
    NcclTestsTiming timing{*time, *algorithm, *bus, log_text::whole_number(words[at + 3])};
    if (!timing.wrong && words[at + 3] != "N/A") {
      note(ImportNote::Kind::kSuspect, row.line,
           fmt::format("'{}' is no count of wrong elements", words[at + 3]));
    }
    if (!nccl_tests::adds_up(row.bytes, words[at], timing)) {
      note(ImportNote::Kind::kSuspect, row.line,
           fmt::format("{} bytes in {} us are {:.2f} GB/s, and the row says {:.2f}", row.bytes, words[at],
                       static_cast<double>(row.bytes) / *time / 1e3, *algorithm));
    }
    return timing;
  }

  void note(ImportNote::Kind kind, std::int32_t line, std::string text) {
    table_.notes.push_back({kind, line, std::move(text), {}});
  }

  NcclTestsTable& table_;
};

}  // namespace

std::optional<double> nccl_tests_bus_factor(std::string_view collective, std::int32_t rank_count) {
  if (!is_one_of(collective, kCollectives) || rank_count < 1) return std::nullopt;
  const double n = rank_count;
  if (collective == "all_reduce") return 2 * (n - 1) / n;
  if (collective == "broadcast" || collective == "reduce" || collective == "sendrecv") return 1;
  return (n - 1) / n;
}

NcclTestsTable read_nccl_tests(std::string_view text, const std::string& file) {
  NcclTestsTable table;
  table.file = file;
  TableReader reader(table);
  std::int32_t number = 0;
  for (const std::string_view line : log_text::lines(text)) {
    ++number;
    if (reader.read(log_text::plain(line), number)) continue;
    table.notes.push_back({ImportNote::Kind::kMissing, number, "another table begins here: it isn't read",
                           "split the file, and read each table by itself"});
    break;
  }
  if (table.rows.empty()) {
    fail(ErrorKind::kInput,
         "{}: no row of an nccl-tests table ('size count type redop …'); give what all_reduce_perf or "
         "another of its "
         "programs printed",
         file);
  }
  if (table.collective.empty()) table.collective = std::string(named_in_file(file));
  nccl_tests::check_table(table);
  std::ranges::stable_sort(table.notes, {}, &ImportNote::line);
  return table;
}

}  // namespace orrery
