#include "topology/import/smi_p2p.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "topology/import/smi_columns.hpp"

namespace orrery {
namespace {

struct Status {
  std::string_view word;
  SmiP2pStatus status;
};
constexpr std::array<Status, 8> kStatuses = {{{"X", SmiP2pStatus::kSelf},
                                              {"OK", SmiP2pStatus::kOk},
                                              {"CNS", SmiP2pStatus::kChipsetNotSupported},
                                              {"GNS", SmiP2pStatus::kGpuNotSupported},
                                              {"TNS", SmiP2pStatus::kTopologyNotSupported},
                                              {"NS", SmiP2pStatus::kNotSupported},
                                              {"DR", SmiP2pStatus::kDisabledByRegistry},
                                              {"U", SmiP2pStatus::kUnknown}}};

SmiP2pStatus status_of(const SmiWord& word) {
  const auto same = [&](const Status& status) { return status.word == word.raw; };
  const auto found = std::find_if(kStatuses.begin(), kStatuses.end(), same);
  return found == kStatuses.end() ? SmiP2pStatus::kUnknown : found->status;
}

bool is_p2p(const SmiTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(), [](const SmiRow& row) {
    return std::any_of(row.words.begin(), row.words.end(),
                       [](const SmiWord& word) { return word.foreign && smi_p2p_word(word.raw); });
  });
}

}  // namespace

std::string_view to_string(SmiP2pStatus status) {
  for (const Status& known : kStatuses) {
    if (known.status == status) return known.word;
  }
  return "U";
}

SmiP2pTable read_smi_p2p(std::string_view text, const std::string& file) {
  constexpr std::size_t kMostGpus = 512;
  const SmiReadOptions options;
  SmiPaste paste = smi_paste(text, options);
  const auto found = std::find_if(paste.tables.begin(), paste.tables.end(), is_p2p);
  const bool small = found != paste.tables.end() &&
                     std::max(found->rows.size(), found->header.size()) <= kMostGpus &&
                     std::all_of(found->rows.begin(), found->rows.end(),
                                 [](const SmiRow& row) { return row.words.size() <= kMostGpus; });
  if (!small) {
    fail(ErrorKind::kInput,
         "{}: no table of `nvidia-smi topo -p2p r` was found: rows that start with GPU0, GPU1, … and hold X, "
         "OK, CNS, "
         "GNS, TNS, NS, DR or U",
         file);
  }
  SmiP2pTable table;
  const std::vector<std::string> columns = smi_columns(*found, options, table.notes);
  std::vector<std::string> labels = columns;
  for (const SmiRow& row : found->rows) labels.push_back(row.label);
  for (const std::string& label : labels) {
    if (const auto gpu = smi_gpu_number(label, options)) table.gpus.push_back(*gpu);
  }
  std::sort(table.gpus.begin(), table.gpus.end());
  table.gpus.erase(std::unique(table.gpus.begin(), table.gpus.end()), table.gpus.end());
  const auto place = [&](const std::string& label) {
    const auto gpu = smi_gpu_number(label, options).value_or(-1);
    return static_cast<std::size_t>(std::find(table.gpus.begin(), table.gpus.end(), gpu) -
                                    table.gpus.begin());
  };
  table.status.resize(table.gpus.size() * table.gpus.size());
  for (std::size_t i = 0; i < table.gpus.size(); ++i)
    table.status[i * table.gpus.size() + i] = SmiP2pStatus::kSelf;
  for (const SmiRow& row : found->rows) {
    const std::size_t from = place(row.label);
    const SmiPlacement placement = place_smi_row(row, columns, &row == &found->rows.back());
    if (!placement.note.text.empty()) table.notes.push_back(placement.note);
    for (std::size_t i = 0; i < row.words.size() && from < table.gpus.size(); ++i) {
      const bool left = i < placement.from_left;
      if (!left && i + placement.from_right < row.words.size()) continue;
      const std::size_t to = place(columns[left ? i : columns.size() - (row.words.size() - i)]);
      if (to < table.gpus.size() && to != from)
        table.status[from * table.gpus.size() + to] = status_of(row.words[i]);
    }
  }
  return table;
}

}  // namespace orrery
