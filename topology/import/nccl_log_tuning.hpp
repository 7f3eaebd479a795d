#pragma once
// What NCCL's tuning says in a log (NCCL_DEBUG_SUBSYS=TUNING): its table of latencies and bandwidths, and
// what it chose for each call.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

struct LogTuningCell {
  std::string function, algorithm, protocol;  // "AllReduce", "Tree", "LL128"
  double latency_us = 0, gb_per_s = 0;
  bool operator==(const LogTuningCell&) const = default;
};

struct LogTuningThreads {
  std::string algorithm, protocol;
  std::int32_t threads = 0;
  bool operator==(const LogTuningThreads&) const = default;
};

struct LogTuningTable {
  std::vector<LogTuningCell> cells;
  std::vector<LogTuningThreads> threads;
  std::int32_t line = 0;
};

// "AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}".
struct LogChoice {
  std::string function;  // Empty in the oldest form.
  std::int64_t bytes = 0;
  std::string algorithm, protocol;                     // "Ring", "Simple", whatever the log's form.
  std::int32_t first_channel = -1, last_channel = -1;  // −1: not said.
  double time_us = -1;                                 // NCCL's own prediction; −1: not said.
  std::int32_t calls = 1;                              // How often it stands in the log.
  std::int32_t line = 0;
};

namespace nccl_log {

// The columns of the block whose rows follow, in the order of the printed table.
struct TuningColumns {
  std::vector<std::string> algorithms, protocols;  // Per column, both of the columns' number.
};
bool read_tuning_line(std::string_view text, std::int32_t line, TuningColumns& columns, LogTuningTable& table,
                      std::vector<ImportNote>& notes);
bool read_choice(std::string_view text, std::int32_t line, std::vector<LogChoice>& choices,
                 std::vector<ImportNote>& notes);

}  // namespace nccl_log
}  // namespace orrery
