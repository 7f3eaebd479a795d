#include "base/csv.hpp"

#include <csv.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace orrery {
namespace {

// A row as libcsv hands it over, field by field.
struct Rows {
  struct Row {
    std::int64_t line = 0;
    std::vector<std::string> values;
  };
  std::vector<Row> done;
  std::vector<std::string> open;
  std::int64_t start_line = 1;
  bool between = true;  // No row is open: the next line starts one.

  static void end_field(void* text, std::size_t size, void* self) {
    static_cast<Rows*>(self)->open.emplace_back(static_cast<const char*>(text), size);
  }
  static void end_row(int, void* self) {
    Rows& rows = *static_cast<Rows*>(self);
    rows.done.push_back({rows.start_line, std::exchange(rows.open, {})});
    rows.between = true;
  }
};

class Parser {
 public:
  Parser() { csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI); }
  ~Parser() { csv_free(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // Fed line by line, since libcsv doesn't tell where it is.
  std::vector<Rows::Row> parse(std::string_view text, std::string_view place) {
    Rows rows;
    std::int64_t line = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      ++line;
      if (rows.between) rows.start_line = line;
      const std::string_view piece = text.substr(0, end);
      const bool blank = piece.find_first_not_of(" \t\r\n") == std::string_view::npos;
      if (!blank || !rows.between) {
        rows.between = false;
        if (csv_parse(&parser_, piece.data(), piece.size(), Rows::end_field, Rows::end_row, &rows) != end)
          fault(place, line);
      }
      text.remove_prefix(end);
    }
    if (csv_fini(&parser_, Rows::end_field, Rows::end_row, &rows) != 0) fault(place, rows.start_line);
    return std::move(rows.done);
  }

 private:
  [[noreturn]] void fault(std::string_view place, std::int64_t line) {
    fail(ErrorKind::kInput,
         "{}:{}: quotes don't match ({}); a value with quotes in it is quoted itself and doubles them", place,
         line, csv_strerror(csv_error(&parser_)));
  }
  csv_parser parser_{};
};

std::size_t column_index(const CsvHeader& header, std::string_view column) {
  const auto found = std::ranges::find(header.columns, column);
  if (found == header.columns.end())
    fail(ErrorKind::kInput, "{}:1: there is no column \"{}\"; the table has {}", header.place, column,
         fmt::join(header.columns, ", "));
  return static_cast<std::size_t>(found - header.columns.begin());
}

template <class Number>
Number parse_number(const CsvRecord& record, std::string_view column, const char* expected) {
  const std::string& text = record[column];
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() ||
      !std::isfinite(static_cast<double>(value)))
    fail(ErrorKind::kInput, "{}: {} is \"{}\", expected {}", record.place(), column, text, expected);
  return value;
}

}  // namespace

CsvRecord::CsvRecord(std::shared_ptr<const CsvHeader> header, std::vector<std::string> values,
                     std::int64_t line)
    : header_(std::move(header)), values_(std::move(values)), line_(line) {}

const std::string& CsvRecord::operator[](std::string_view column) const {
  return values_[column_index(*header_, column)];
}

double CsvRecord::number(std::string_view column) const {
  return parse_number<double>(*this, column, "a number");
}

std::int64_t CsvRecord::integer(std::string_view column) const {
  return parse_number<std::int64_t>(*this, column, "a whole number");
}

std::optional<double> CsvRecord::number_if_given(std::string_view column) const {
  if ((*this)[column].empty()) return std::nullopt;
  return number(column);
}

std::string CsvRecord::place() const { return fmt::format("{}:{}", header_->place, line_); }

bool CsvTable::has_column(std::string_view column) const {
  return std::ranges::find(header->columns, column) != header->columns.end();
}

CsvTable parse_csv(std::string_view text, std::string_view place) {
  std::vector<Rows::Row> rows = Parser().parse(text, place);
  if (rows.empty()) fail(ErrorKind::kInput, "{}: empty; expected a first line that names the columns", place);
  std::vector<std::string> sorted = rows.front().values;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail(ErrorKind::kInput, "{}:{}: two columns are named \"{}\"", place, rows.front().line, *twice);

  CsvTable table;
  table.header = std::make_shared<CsvHeader>(CsvHeader{std::string(place), std::move(rows.front().values)});
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].values.size() != table.header->columns.size())
      fail(ErrorKind::kInput, "{}:{}: {} values, but the header names {} columns", place, rows[i].line,
           rows[i].values.size(), table.header->columns.size());
    table.records.emplace_back(table.header, std::move(rows[i].values), rows[i].line);
  }
  return table;
}

CsvTable read_csv(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) fail(ErrorKind::kInput, "{}: can't be read", path);
  return parse_csv(text.str(), path);
}

}  // namespace orrery
