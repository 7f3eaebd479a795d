#pragma once
// Predictions held against measurements that nothing was fitted to: one row per measurement, and tables by
// source, GPU and family. Never scored per row over all sources, since large sources would drown the rest.

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// One measurement that could be predicted.
struct ValidationRow {
  std::string id, source, gpu, family;
  double measured_s = 0;
  double predicted_s = 0;
  double lower_s = 0, upper_s = 0;  // The prediction's 90 % interval.

  double relative_error() const { return predicted_s / measured_s - 1; }  // Positive: predicted too slow.
  bool covered() const { return lower_s <= measured_s && measured_s <= upper_s; }
};

struct ValidationGroup {
  std::string source, gpu, family;
  std::int64_t rows = 0;        // Of this group in the file.
  std::int64_t predicted = 0;   // Of which could be predicted.
  double median_abs_error = 0;  // Of the predicted rows: |predicted / measured − 1|.
  double median_error = 0;      // The same with its sign, so that a constant shift shows.
  double coverage = 0;          // Share of measurements inside their prediction's 90 % interval.
};

// Measurements that couldn't be predicted, and why.
struct ValidationRefusal {
  std::string source, gpu, family, reason;
  std::int64_t rows = 0;
};

struct ValidationReport {
  std::vector<ValidationGroup> groups;  // By source, GPU, family, in this order.
  std::vector<ValidationRefusal> refused;
  std::vector<ValidationRow> rows;  // In the file's order.
};

// Fills `groups` from `rows` and `refused`.
void group_rows(ValidationReport& report);

}  // namespace orrery
