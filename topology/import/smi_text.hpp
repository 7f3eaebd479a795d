#pragma once
// The words of nvidia-smi's tables, found in lines as they were pasted. Nothing here depends on columns.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/smi_matrix.hpp"

namespace orrery {

// A word of a line, and how many tabs lie between it and the word before: more than one leave a blank field.
struct SmiToken {
  std::string text;
  std::int32_t tabs_before = 0;
};

struct SmiLine {
  std::int32_t number = 0;  // From 1.
  bool ended = true;        // By a line break: what stands at the end of the text without one may be cut.
  std::string text = {};    // Without colours, table bars and carriage returns.
  std::vector<SmiToken> tokens = {};
};

std::vector<SmiLine> smi_lines(std::string_view text);

// One cell of a row as it stands there.
struct SmiWord {
  SmiCell cell = {};     // Unknown where the word isn't one, or could be two.
  bool damaged = false;  // Not spelt as nvidia-smi does; `cell` is what it must have been.
  bool foreign = false;  // A clean word that is none of nvidia-smi's.
  std::string raw = {};
};

// The cells that one token holds, and what is left of it for the columns behind the matrix: "SYSSYS" are two,
// "PH0-115" is PHB and the CPU list "0-115". `cells` is empty where the token is no cell at all.
struct SmiCells {
  std::vector<SmiWord> cells;
  std::string rest;
};
SmiCells smi_cells(std::string_view token, const SmiReadOptions& options);

// A device name at the end of a token, and what is glued to it: "<stdout>:GPU0", "GPU1NV12".
struct SmiLabel {
  std::string label;
  std::string rest;       // Behind it, for smi_cells.
  bool prefixed = false;  // Something stands before it in the token.
};
std::optional<SmiLabel> smi_label(std::string_view token, const SmiReadOptions& options);

// Names glued to each other, as in "GPU0GPU1mlx5_0"; empty where any of it is no name.
std::vector<std::string> smi_labels(std::string_view token, const SmiReadOptions& options);

// The number of a GPU label; none for other labels.
std::optional<std::int32_t> smi_gpu_number(std::string_view label, const SmiReadOptions& options);

// Labels of devices that NVIDIA's tool doesn't know: "DCU0", "MLU3", "GPU 0/0".
bool smi_foreign_label(std::string_view token);

bool smi_p2p_word(std::string_view token);     // OK, CNS, GNS, TNS, NS, DR, U.
bool smi_number_list(std::string_view token);  // "0-31,64-95"; also cut ones.

}  // namespace orrery
