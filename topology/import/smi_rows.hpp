#pragma once
// The tables of a paste, as their lines have them: names of columns, rows of words, and what the text around
// says. Which column a word belongs to is settled afterwards (smi_columns.hpp).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/import/smi_text.hpp"

namespace orrery {

struct SmiRow {
  std::int32_t line = 0;
  std::string label = {};              // Empty: lost.
  std::vector<SmiWord> words = {};     // A blank field among the cells is an unknown one.
  std::vector<std::string> tail = {};  // Behind the cells. With tabs a blank field is an empty string.
  bool tabbed = false;                 // The tail's fields are told apart by tabs.
  bool cut = false;                    // The text ends with this row, without a line break.
  bool joined = false;                 // Made of several lines.
  std::string glued = {};              // A token that held several of its cells, or its label and a cell.

  std::size_t selves() const;               // How often X occurs.
  std::optional<std::size_t> self() const;  // Where X is, if it occurs once.
};

struct SmiTable {
  std::vector<std::string> header;  // Empty strings where a name can't be read.
  std::vector<std::int32_t> header_lines;
  bool glued_header = false;  // Names were printed without anything between them.
  bool cpu_column = false, numa_column = false, gpu_numa_column = false;
  std::vector<SmiRow> rows;
};

struct SmiPaste {
  std::vector<SmiTable> tables;
  std::map<std::string, std::string> nic_names;  // From the NIC legend.
  bool legend = false;                           // Its lines on PIX or PXB were seen.
  bool nvlink_legend = false;                    // Its line on NV# was seen.
  bool after_legend = false;                     // More follows the legend, so that it isn't cut.
  bool old_words = false;                        // SOC.
  bool mp_command = false;                       // "topo -mp" stands in the text.
  bool mig_enabled = false;
  std::string gpu_model;
  std::string foreign_tool;  // A label or heading of another vendor's tool; empty: none.
};

SmiPaste smi_paste(std::string_view text, const SmiReadOptions& options);

}  // namespace orrery
