#pragma once
// Which device each column of a pasted matrix is, and which columns the words of a row belong to. Two things
// say it: the header, and the X of every row, which stands in the device's own column. Where they disagree
// nothing is taken.

#include <cstddef>
#include <string>
#include <vector>

#include "topology/import/smi_rows.hpp"

namespace orrery {

// Names of the columns, unique; empty where a column has none. Gives rows that lost their labels those of the
// columns where their X is.
std::vector<std::string> smi_columns(SmiTable& table, const SmiReadOptions& options,
                                     std::vector<ImportNote>& notes);

// How many words of a row belong to the first columns, and how many to the last ones.
struct SmiPlacement {
  std::size_t from_left = 0, from_right = 0;
  ImportNote note;  // Without text where all is well.
};
SmiPlacement place_smi_row(const SmiRow& row, const std::vector<std::string>& columns, bool last_row);

}  // namespace orrery
