#pragma once
// What nccl-tests prints (all_reduce_perf and its like): who took part and the table of times, of any
// version, alone or inside a job's log. Rows whose figures can't be together are noted, and so is all that
// was cut.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

struct NcclTestsTiming {
  double time_us = 0;
  double algorithm_gb_per_s = 0, bus_gb_per_s = 0;
  std::optional<double>
      wrong;  // Wrong elements, or up to 2.12 the greatest error; nothing where not checked.
};

struct NcclTestsRow {
  std::int64_t bytes = 0, elements = 0;
  std::string type, reduction;  // "float", "sum"; "none" where nothing is reduced.
  std::int32_t root = -1;
  std::optional<NcclTestsTiming> out_of_place, in_place;  // Nothing: N/A, or cut off.
  std::int32_t line = 0;
};

// "#  Rank  0 Group  0 Pid 2114 on node-0 device  0 [0000:8f:00] NVIDIA B200".
struct NcclTestsRank {
  std::int32_t rank = 0, group = 0;
  std::int64_t pid = 0;
  std::string host;
  std::int32_t device = 0;
  std::string bus_id, gpu;  // As printed: "0x8f" or "0000:8f:00".
};

struct NcclTestsTable {
  std::string file;
  std::string collective;  // "all_reduce", "all_gather", …; empty: not known, and a note asks for it.
  std::string version, nccl_version;
  std::int32_t threads = 0, gpus_per_thread = 0;  // 0: not said, as below.
  std::int64_t min_bytes = 0, max_bytes = 0;
  double step_factor = 0;
  std::int32_t warmup_iterations = 0, iterations = 0;
  std::int32_t rank_count = 0;
  std::vector<NcclTestsRank> ranks;  // Those that are listed, by rank.
  std::vector<NcclTestsRow> rows;    // In the order of the file.
  std::optional<double> average_bus_gb_per_s;
  std::vector<ImportNote> notes;
};

// What busbw is to algbw: 2(n − 1)/n for an all-reduce of n ranks (nccl-tests, doc/PERFORMANCE.md). Nothing
// for an unknown name.
std::optional<double> nccl_tests_bus_factor(std::string_view collective, std::int32_t rank_count);

// The first table in the text. Throws Error(kInput) where there is none.
NcclTestsTable read_nccl_tests(std::string_view text, const std::string& file);

}  // namespace orrery
