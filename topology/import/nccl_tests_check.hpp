#pragma once
// What must hold in a table of nccl-tests, and what follows from it where the text doesn't say it.

#include "topology/import/nccl_tests_table.hpp"

namespace orrery::nccl_tests {

// algbw = bytes / time, as far as the printed digits go.
bool adds_up(std::int64_t bytes, std::string_view time, const NcclTestsTiming& timing);

// Ranks, collective, sizes, averages: fills in what follows, and notes what is missing or can't be.
void check_table(NcclTestsTable& table);

}  // namespace orrery::nccl_tests
