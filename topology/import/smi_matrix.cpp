#include "topology/import/smi_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "topology/import/smi_affinity.hpp"
#include "topology/import/smi_columns.hpp"
#include "topology/import/smi_nvlink.hpp"
#include "topology/import/smi_rows.hpp"

namespace orrery {
namespace {

using Kind = ImportNote::Kind;
constexpr const char* kPrintAgain = "nvidia-smi topo -m";
// Of one matrix. The largest machines show 16 GPUs and some 30 ports; this bounds what a hostile file costs.
constexpr std::size_t kMostDevices = 512;

struct WordCounts {
  std::size_t relations = 0, selves = 0, p2p = 0;
  std::map<std::string, std::size_t> foreign;
};

WordCounts count_words(const SmiTable& table) {
  WordCounts counts;
  for (const SmiRow& row : table.rows) {
    for (const SmiWord& word : row.words) {
      const SmiRelation relation = word.cell.relation;
      if (word.foreign && smi_p2p_word(word.raw)) {
        ++counts.p2p;
      } else if (word.foreign) {
        ++counts.foreign[word.raw];
      } else if (relation == SmiRelation::kSelf) {
        ++counts.selves;
      } else if (relation != SmiRelation::kUnknown && !word.damaged) {
        ++counts.relations;
      }
    }
  }
  return counts;
}

// Words that are none of ours and no accident either: the same one twice.
std::string foreign_words(const WordCounts& counts) {
  std::vector<std::string> words;
  for (const auto& [word, count] : counts.foreign) {
    if (count >= 2) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

bool is_p2p(const WordCounts& counts) { return counts.p2p > counts.relations; }

[[noreturn]] void refuse(const SmiPaste& paste, const std::string& file) {
  for (const SmiTable& table : paste.tables) {
    if (is_p2p(count_words(table))) {
      fail(ErrorKind::kInput,
           "{}:{}: this is the table of `nvidia-smi topo -p2p`, which says whether GPUs may reach each "
           "other's memory, "
           "not how they are connected; give the output of `nvidia-smi topo -m`",
           file, table.rows.front().line);
    }
  }
  if (!paste.foreign_tool.empty()) {
    fail(ErrorKind::kInput,
         "{}: this is the table of another vendor's tool (\"{}\"), whose words and links differ from "
         "nvidia-smi's; "
         "give the output of `nvidia-smi topo -m`",
         file, paste.foreign_tool);
  }
  fail(ErrorKind::kInput,
       "{}: no matrix of `nvidia-smi topo -m` was found: rows that start with GPU0, GPU1, … and hold X, "
       "NV18, PIX, "
       "PXB, PHB, NODE or SYS; paste the command's whole output",
       file);
}

// The first table of relations between devices.
SmiTable& choose_table(SmiPaste& paste, const std::string& file) {
  for (SmiTable& table : paste.tables) {
    const WordCounts counts = count_words(table);
    const std::string foreign = foreign_words(counts);
    if (!foreign.empty()) {
      fail(ErrorKind::kInput,
           "{}:{}: the table has words that nvidia-smi doesn't use ({}): another vendor's tool, or one that "
           "prints "
           "another table; give the output of `nvidia-smi topo -m`, or say what those words mean",
           file, table.rows.front().line, foreign);
    }
    if (counts.relations + counts.selves > 0 && !is_p2p(counts)) return table;
  }
  refuse(paste, file);
}

void note_other_tables(const SmiPaste& paste, const SmiTable& chosen, std::vector<ImportNote>& notes) {
  for (const SmiTable& table : paste.tables) {
    if (&table == &chosen || table.rows.empty()) continue;
    const bool p2p = is_p2p(count_words(table));
    notes.push_back({p2p ? Kind::kAssumed : Kind::kSuspect, table.rows.front().line,
                     p2p ? "a table of `topo -p2p` follows; it is not used"
                         : "a second matrix starts here; it is not read",
                     p2p ? "" : "give one file per machine"});
  }
}

// Everything while it is put together.
struct Draft {
  SmiMatrix matrix;
  SmiTable table;
  std::vector<std::string> columns;
  std::vector<SmiWord> words;       // By row and column of devices, as the rows have them.
  std::vector<bool> heard;          // Whether a row says anything about the cell.
  std::set<std::size_t> said_rows;  // Devices whose row has a note that covers its cells.

  std::size_t index(std::size_t row, std::size_t column) const {
    return row * matrix.devices.size() + column;
  }
  void note(Kind kind, std::int32_t line, std::string text, std::string remedy = "") {
    matrix.notes.push_back({kind, line, std::move(text), std::move(remedy)});
  }
  std::string pair(std::size_t a, std::size_t b) const {
    return fmt::format("{} × {}", matrix.devices[a].label, matrix.devices[b].label);
  }
  std::size_t find(const std::string& label) const {
    const auto same = [&](const SmiDevice& device) { return device.label == label; };
    return static_cast<std::size_t>(std::find_if(matrix.devices.begin(), matrix.devices.end(), same) -
                                    matrix.devices.begin());
  }
};

void list_devices(Draft& draft, const SmiPaste& paste, const SmiReadOptions& options) {
  std::vector<std::string> labels = draft.columns;
  for (const SmiRow& row : draft.table.rows) labels.push_back(row.label);
  std::vector<SmiDevice>& devices = draft.matrix.devices;
  for (const std::string& label : labels) {
    if (label.empty() || draft.find(label) < devices.size()) continue;
    SmiDevice device;
    device.label = label;
    const auto number = smi_gpu_number(label, options);
    device.gpu = number.has_value();
    device.index = number.value_or(0);
    const auto name = paste.nic_names.find(label);
    if (name != paste.nic_names.end()) device.name = name->second;
    if (!device.gpu && device.name.empty() && !label.starts_with("NIC")) device.name = label;
    devices.push_back(std::move(device));
  }
  std::stable_sort(devices.begin(), devices.end(), [](const SmiDevice& a, const SmiDevice& b) {
    return a.gpu != b.gpu ? a.gpu : a.gpu && a.index < b.index;
  });
  std::int32_t nic = 0;
  for (SmiDevice& device : devices) {
    if (!device.gpu) device.index = nic++;
  }
}

// Two rows of one device have to say the same.
void put_word(Draft& draft, std::size_t row, std::size_t column, const SmiWord& word, std::int32_t line) {
  const std::size_t at = draft.index(row, column);
  if (!draft.heard[at] || draft.words[at].cell.relation == SmiRelation::kUnknown) {
    draft.words[at] = word;
  } else if (word.cell.relation != SmiRelation::kUnknown && draft.words[at].cell != word.cell) {
    draft.note(Kind::kSuspect, line,
               fmt::format("cell {} is {} in one row and {} in another: taken as unknown",
                           draft.pair(row, column), to_string(draft.words[at].cell), to_string(word.cell)),
               kPrintAgain);
    draft.words[at] = {.damaged = true, .raw = word.raw};
  }
  draft.heard[at] = true;
}

// The last word of a row that seems to end early may be cut: "NV1" of "NV18".
bool may_be_cut(const SmiRow& row, bool tails, std::size_t width) {
  return row.tail.empty() && !row.words.empty() && row.words.back().cell.relation == SmiRelation::kNvLink &&
         (tails || row.cut || row.words.size() < width);
}

void place_rows(Draft& draft) {
  const auto& rows = draft.table.rows;
  const bool tails =
      std::any_of(rows.begin(), rows.end(), [](const SmiRow& row) { return !row.tail.empty(); });
  std::vector<std::size_t> columns;
  for (const std::string& label : draft.columns) columns.push_back(draft.find(label));
  for (const SmiRow& read : rows) {
    if (read.label.empty()) continue;
    SmiRow row = read;
    if (may_be_cut(row, tails, columns.size()))
      row.words.back() = {.damaged = true, .raw = row.words.back().raw};
    const std::size_t own = draft.find(row.label);
    SmiDevice& device = draft.matrix.devices[own];
    if (device.line > 0) draft.note(Kind::kAssumed, row.line, fmt::format("{} has a second row", row.label));
    if (!row.glued.empty()) {
      draft.note(Kind::kRepaired, row.line,
                 fmt::format("row of {}: \"{}\" is taken apart", row.label, row.glued));
    }
    if (row.joined)
      draft.note(Kind::kRepaired, row.line,
                 fmt::format("row of {} is wrapped over several lines", row.label));
    if (device.line == 0) device.line = row.line;
    const SmiPlacement placement = place_smi_row(row, draft.columns, &read == &rows.back());
    if (!placement.note.text.empty()) {
      draft.matrix.notes.push_back(placement.note);
      draft.said_rows.insert(own);
    }
    for (std::size_t i = 0; i < row.words.size(); ++i) {
      const bool left = i < placement.from_left;
      const bool right = i + placement.from_right >= row.words.size();
      if (!left && !right) continue;
      const std::size_t column = columns[left ? i : columns.size() - (row.words.size() - i)];
      if (column < draft.matrix.devices.size()) put_word(draft, own, column, row.words[i], row.line);
    }
  }
}

// One cell from its two mentions.
SmiCell reconcile(Draft& draft, std::size_t a, std::size_t b) {
  const std::size_t forth = draft.index(a, b), back = draft.index(b, a);
  const SmiWord &one = draft.words[forth], &two = draft.words[back];
  const bool one_known = one.cell.relation != SmiRelation::kUnknown;
  const bool two_known = two.cell.relation != SmiRelation::kUnknown;
  const auto line = [&](std::size_t device) { return draft.matrix.devices[device].line; };
  // X belongs on the diagonal; elsewhere it is no relation.
  if ((one_known && one.cell.relation == SmiRelation::kSelf) ||
      (two_known && two.cell.relation == SmiRelation::kSelf)) {
    draft.note(Kind::kSuspect, line(a),
               fmt::format("cell {} is X, off the diagonal: taken as unknown", draft.pair(a, b)),
               kPrintAgain);
    return {};
  }
  if (one_known && two_known) {
    if (one.cell == two.cell) {
      if (one.damaged || two.damaged) {
        draft.note(
            Kind::kRepaired, line(one.damaged ? a : b),
            fmt::format("cell {} is damaged (\"{}\"): taken as {}, which {} says too", draft.pair(a, b),
                        (one.damaged ? one : two).raw, to_string(one.cell), draft.pair(b, a)));
      }
      return one.cell;
    }
    if (one.damaged != two.damaged) {
      const SmiWord& clean = one.damaged ? two : one;
      const SmiWord& damaged = one.damaged ? one : two;
      draft.note(Kind::kRepaired, line(one.damaged ? a : b),
                 fmt::format("cell {} is damaged (\"{}\"): taken as {} from its mirror", draft.pair(a, b),
                             damaged.raw, to_string(clean.cell)));
      return clean.cell;
    }
    draft.note(Kind::kSuspect, line(a),
               fmt::format("cell {} is {}, and {} is {}: taken as unknown", draft.pair(a, b),
                           to_string(one.cell), draft.pair(b, a), to_string(two.cell)),
               kPrintAgain);
    return {};
  }
  if (!one_known && !two_known) return {};
  const bool from_one = one_known;
  const std::size_t damaged = from_one ? b : a, source = from_one ? a : b;
  const SmiWord& word = from_one ? one : two;
  if (draft.heard[from_one ? back : forth] && draft.said_rows.count(damaged) == 0) {
    draft.note(Kind::kRepaired, line(damaged),
               fmt::format("cell {} can't be read (\"{}\"): taken as {} from {}", draft.pair(damaged, source),
                           (from_one ? two : one).raw, to_string(word.cell), draft.pair(source, damaged)));
  } else if (word.damaged) {
    draft.note(Kind::kRepaired, line(source),
               fmt::format("cell {} is damaged (\"{}\"): taken as {} from its first letters",
                           draft.pair(source, damaged), word.raw, to_string(word.cell)));
  }
  return word.cell;
}

void reconcile_all(Draft& draft) {
  SmiMatrix& matrix = draft.matrix;
  const std::size_t devices = matrix.devices.size();
  std::vector<std::string> rowless, unknown;
  for (std::size_t a = 0; a < devices; ++a) {
    if (matrix.devices[a].line == 0) rowless.push_back(matrix.devices[a].label);
    matrix.cells[draft.index(a, a)] = {SmiRelation::kSelf, 0};
    for (std::size_t b = a + 1; b < devices; ++b) {
      SmiCell cell = reconcile(draft, a, b);
      if (cell.relation == SmiRelation::kNvLink && !(matrix.devices[a].gpu && matrix.devices[b].gpu)) {
        draft.note(Kind::kSuspect, matrix.devices[a].line,
                   fmt::format("cell {} says {}, but network cards have no NVLink: taken as unknown",
                               draft.pair(a, b), to_string(cell)),
                   kPrintAgain);
        cell = {};
      }
      matrix.cells[draft.index(a, b)] = matrix.cells[draft.index(b, a)] = cell;
      if (cell.relation == SmiRelation::kUnknown) unknown.push_back(draft.pair(a, b));
    }
  }
  if (!rowless.empty()) {
    draft.note(Kind::kMissing, 0,
               fmt::format("no row for {}: what others' rows say of them is taken", fmt::join(rowless, ", ")),
               kPrintAgain);
  }
  if (!unknown.empty()) {
    constexpr std::size_t kShown = 12;
    const std::size_t count = unknown.size();
    if (count > kShown) unknown.resize(kShown);
    draft.note(Kind::kMissing, 0,
               fmt::format("{} {} unknown: {}{}", count, count == 1 ? "cell is" : "cells are",
                           fmt::join(unknown, ", "), count > kShown ? ", …" : ""),
               kPrintAgain);
  }
}

void note_surroundings(Draft& draft, const SmiPaste& paste) {
  SmiMatrix& matrix = draft.matrix;
  const auto nvlink = [](const SmiCell& cell) { return cell.relation == SmiRelation::kNvLink; };
  const bool any_nvlink = std::any_of(matrix.cells.begin(), matrix.cells.end(), nvlink);
  matrix.nvlink_hidden = !any_nvlink && (paste.mp_command || (paste.legend && !paste.nvlink_legend));
  const SmiTable& table = draft.table;
  if (table.header_lines.size() > 1 || table.glued_header) {
    draft.note(Kind::kRepaired, table.header_lines.empty() ? 0 : table.header_lines.front(),
               table.glued_header ? "names in the header are glued together: taken apart"
                                  : "the header is wrapped over several lines: put together");
  }
  matrix.mig_enabled = paste.mig_enabled;
  matrix.gpu_model = paste.gpu_model;
  if (matrix.nvlink_hidden) {
    draft.note(
        Kind::kMissing, 0,
        paste.mp_command || paste.after_legend
            ? "this is `topo -mp`, which hides NVLinks"
            : "the legend has no line on NV#: this is `topo -mp`, which hides NVLinks, or the legend is cut",
        kPrintAgain);
  }
  if (matrix.mig_enabled) {
    draft.note(Kind::kSuspect, 0,
               "MIG is enabled: its instances have no NVLink to each other, and NCCL refuses two of one GPU",
               "nvidia-smi mig -lgi");
  }
  const auto soc = [](const SmiWord& word) { return word.raw == "SOC"; };
  matrix.old_words = paste.old_words || std::any_of(draft.words.begin(), draft.words.end(), soc);
  if (matrix.old_words) {
    draft.note(
        Kind::kAssumed, 0,
        "SOC is a word of drivers before 390, taken as SYS; pairs that newer ones call NODE are among them",
        "lstopo");
  }
}

void note_nameless_nics(Draft& draft) {
  std::vector<std::string> nameless;
  for (const SmiDevice& device : draft.matrix.devices) {
    if (!device.gpu && device.name.empty()) nameless.push_back(device.label);
  }
  if (nameless.empty()) return;
  draft.note(Kind::kMissing, 0, fmt::format("no NIC legend names {}", fmt::join(nameless, ", ")),
             "ibdev2netdev, or ls /sys/class/infiniband");
}

}  // namespace

std::string to_string(const SmiCell& cell) {
  switch (cell.relation) {
    case SmiRelation::kUnknown: return "?";
    case SmiRelation::kSelf: return "X";
    case SmiRelation::kNvLink: return fmt::format("NV{}", cell.nvlinks);
    case SmiRelation::kPix: return "PIX";
    case SmiRelation::kPxb: return "PXB";
    case SmiRelation::kPhb: return "PHB";
    case SmiRelation::kNode: return "NODE";
    case SmiRelation::kSys: return "SYS";
  }
  return "?";
}

std::size_t SmiMatrix::gpu_count() const {
  return static_cast<std::size_t>(
      std::count_if(devices.begin(), devices.end(), [](const SmiDevice& device) { return device.gpu; }));
}

SmiMatrix read_smi_matrix(std::string_view text, const std::string& file, const SmiReadOptions& options) {
  SmiPaste paste = smi_paste(text, options);
  SmiTable& table = choose_table(paste, file);
  for (const SmiRow& row : table.rows) {
    if (std::max({row.words.size(), table.header.size(), table.rows.size()}) > kMostDevices) {
      fail(ErrorKind::kInput, "{}:{}: a matrix of more than {} devices is no machine's", file, row.line,
           kMostDevices);
    }
  }
  Draft draft;
  draft.matrix.file = file;
  note_other_tables(paste, table, draft.matrix.notes);
  draft.table = table;
  draft.columns = smi_columns(draft.table, options, draft.matrix.notes);
  list_devices(draft, paste, options);
  const std::size_t devices = draft.matrix.devices.size();
  if (draft.matrix.gpu_count() == 0) refuse(paste, file);
  draft.words.resize(devices * devices);
  draft.heard.resize(devices * devices);
  draft.matrix.cells.resize(devices * devices);
  place_rows(draft);
  reconcile_all(draft);
  note_surroundings(draft, paste);
  note_nameless_nics(draft);
  read_smi_affinities(draft.table, draft.matrix.devices, draft.matrix.notes);
  for (ImportNote& note : smi_nvlink_faults(draft.matrix)) draft.matrix.notes.push_back(std::move(note));
  return std::move(draft.matrix);
}

}  // namespace orrery
