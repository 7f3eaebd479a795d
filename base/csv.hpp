#pragma once
// Tables of comma-separated values whose first line names the columns. Every Error names file and line.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// What all records of one table share.
struct CsvHeader {
  std::string place;  // File name, for Errors.
  std::vector<std::string> columns;
};

class CsvRecord {
 public:
  CsvRecord(std::shared_ptr<const CsvHeader> header, std::vector<std::string> values, std::int64_t line);

  // The value as it stands in the file, without its quotes. All of these THROW Error(kInput) for a column
  // that the table doesn't have.
  const std::string& operator[](std::string_view column) const;
  // THROW Error(kInput) for a value that is empty or no finite number.
  double number(std::string_view column) const;
  std::int64_t integer(std::string_view column) const;
  // Nothing for an empty value.
  std::optional<double> number_if_given(std::string_view column) const;

  std::int64_t line() const { return line_; }  // Where the record starts, from 1.
  std::string place() const;                   // "kernels.csv:17"

 private:
  std::shared_ptr<const CsvHeader> header_;
  std::vector<std::string> values_;
  std::int64_t line_ = 0;
};

struct CsvTable {
  std::shared_ptr<const CsvHeader> header;
  std::vector<CsvRecord> records;

  bool has_column(std::string_view column) const;
};

// Quotes as in RFC 4180; spaces around values and empty lines don't count. THROW Error(kInput) for a file
// that can't be read, has no header, names a column twice, or has a record of another width than its header.
CsvTable read_csv(const std::string& path);
CsvTable parse_csv(std::string_view text, std::string_view place = "table");

}  // namespace orrery
