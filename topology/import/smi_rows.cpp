#include "topology/import/smi_rows.hpp"

#include <algorithm>

namespace orrery {
namespace {

// Reads line after line; keeps the table that is being filled last.
class Reader {
 public:
  explicit Reader(const SmiReadOptions& options) : options_(options) {}

  void take(const SmiLine& line) {
    note_surroundings(line);
    if (line.tokens.empty() || take_legend(line)) return;
    if (paste_.legend && !line.tokens.empty()) paste_.after_legend = true;
    scan(line);
  }
  SmiPaste result() {
    flush_header();
    return std::move(paste_);
  }

 private:
  void note_surroundings(const SmiLine& line);
  bool take_legend(const SmiLine& line);
  void scan(const SmiLine& line);
  void keep_header(const SmiLine& line, std::vector<std::string> labels, std::size_t junk);
  void flush_header();
  void open_row(const SmiLine& line, const std::string& label);
  void take_unlabelled(const SmiLine& line);
  std::size_t take_words(const SmiLine& line, SmiRow& row, std::size_t from, std::int32_t skipped_tabs);
  std::optional<SmiLabel> label_of(const std::string& token) const;
  SmiTable& table() { return paste_.tables.back(); }

  const SmiReadOptions& options_;
  SmiPaste paste_;
  SmiTable header_;             // Header lines of which no row has been seen yet.
  std::int32_t last_line_ = 0;  // Where the last row stands.
  bool mig_heading_ = false;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void Reader::note_surroundings(const SmiLine& line) {
  const std::string_view text = line.text;
  if (contains(text, "topo -mp")) paste_.mp_command = true;
  // `nvidia-smi` has a column "MIG M."; `-q` and -L write "MIG Mode", "MIG 1g.10gb".
  const std::size_t mig = text.find("MIG ");
  if (contains(text, "MIG M.")) mig_heading_ = true;
  const bool slice = mig != std::string_view::npos && mig + 5 < text.size() && text[mig + 4] >= '0' &&
                     text[mig + 4] <= '9' && text.find("g.", mig) != std::string_view::npos;
  if (contains(text, "Enabled") && (mig != std::string_view::npos || mig_heading_)) paste_.mig_enabled = true;
  if (slice || contains(text, "MIG devices:")) paste_.mig_enabled = true;
  // "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)", from -L.
  const std::size_t gpu = text.find("GPU 0: ");
  const std::size_t uuid = text.find(" (UUID", gpu == std::string_view::npos ? 0 : gpu);
  if (gpu != std::string_view::npos && uuid != std::string_view::npos && paste_.gpu_model.empty()) {
    paste_.gpu_model = text.substr(gpu + 7, uuid - gpu - 7);
  }
  for (const std::string_view tool :
       {"ROCm System Management", "Link Type between", "rocm-smi", "xpu-smi", "npu-smi"}) {
    if (contains(text, tool) && paste_.foreign_tool.empty()) paste_.foreign_tool = tool;
  }
  std::size_t foreign = 0;
  for (const SmiToken& token : line.tokens) {
    const bool known = smi_gpu_number(token.text, options_).has_value();
    foreign +=
        !known && (smi_foreign_label(token.text) ||
                   (contains(token.text, "/") && token.text.size() == 3 &&
                    smi_number_list(token.text.substr(0, 1)) && smi_number_list(token.text.substr(2))));
  }
  if (foreign >= 2 && foreign * 2 >= line.tokens.size() && paste_.foreign_tool.empty()) {
    for (const SmiToken& token : line.tokens) {
      if (smi_foreign_label(token.text) || contains(token.text, "/")) paste_.foreign_tool = token.text;
    }
  }
}

// "  PIX  = Connection …" and "  NIC0: mlx5_0".
bool Reader::take_legend(const SmiLine& line) {
  const auto& tokens = line.tokens;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::string& word = tokens[i].text;
    if (tokens[i + 1].text == "=") {
      if (word == "NV#") paste_.nvlink_legend = true;
      if (word == "PIX" || word == "PXB") paste_.legend = true;
      if (word == "SOC") paste_.old_words = true;
      return true;
    }
    if (word.size() < 2 || word.back() != ':') continue;
    const auto label = smi_label(std::string_view(word).substr(0, word.size() - 1), options_);
    if (!label || !label->rest.empty() || smi_gpu_number(label->label, options_)) continue;
    const std::string& name = tokens[i + 1].text;
    if (!smi_cells(name, options_).cells.empty()) return false;
    const auto same_name = [&](const auto& entry) { return entry.second == name; };
    // A name cut off at the end of the text repeats an earlier one at best.
    if (line.ended && std::none_of(paste_.nic_names.begin(), paste_.nic_names.end(), same_name)) {
      paste_.nic_names.emplace(label->label, name);
    }
    paste_.after_legend = paste_.after_legend || paste_.legend;
    return true;
  }
  return false;
}

std::optional<SmiLabel> Reader::label_of(const std::string& token) const {
  if (auto label = smi_label(token, options_)) return label;
  const auto known = [&](const SmiTable& table) {
    return !token.empty() && std::find(table.header.begin(), table.header.end(), token) != table.header.end();
  };
  if (known(header_) || (!paste_.tables.empty() && known(paste_.tables.back())))
    return SmiLabel{token, "", false};
  return std::nullopt;
}

// A line is names, then words, then what follows the words; names again where a line break was lost.
void Reader::scan(const SmiLine& line) {
  std::vector<std::string> labels;  // Not yet known to be of a header or of a row.
  std::size_t junk = 0;
  bool rows = false;
  for (std::size_t i = 0; i < line.tokens.size();) {
    const std::string& token = line.tokens[i].text;
    const auto glued = smi_labels(token, options_);
    const auto label = label_of(token);
    if (label && label->rest.empty() && glued.size() < 2) {
      const bool words_follow = i + 1 < line.tokens.size() && !label_of(line.tokens[i + 1].text) &&
                                !smi_cells(line.tokens[i + 1].text, options_).cells.empty();
      if (words_follow && line.tokens[i + 1].text != "GPU" && line.tokens[i + 1].text != "CPU" &&
          line.tokens[i + 1].text != "NUMA") {
        if (!labels.empty()) keep_header(line, std::move(labels), junk);
        labels.clear();
        open_row(line, label->label);
        i = take_words(line, table().rows.back(), i + 1, 0);
        rows = true;
        continue;
      }
      labels.push_back(label->label);
    } else if (label && !label->rest.empty()) {  // "GPU0X"
      open_row(line, label->label);
      SmiRow& row = table().rows.back();
      const SmiCells first = smi_cells(label->rest, options_);
      row.words = first.cells;
      row.glued = token;
      if (!first.rest.empty()) row.tail.push_back(first.rest);
      i = take_words(line, row, i + 1, 0);
      rows = true;
      continue;
    } else if (!glued.empty()) {
      labels.insert(labels.end(), glued.begin(), glued.end());
      header_.glued_header = true;
      header_.cpu_column = header_.cpu_column || token.ends_with("CPU");
    } else if (token == "CPU" || token == "NUMA" || token == "GPU" || token == "ID" ||
               contains(token, "Affinity")) {
      const std::string next = i + 1 < line.tokens.size() ? line.tokens[i + 1].text : "";
      if (!labels.empty() || !header_.header.empty()) {
        if (token == "CPU" && contains(next, "Affinity")) header_.cpu_column = true;
        if (token == "NUMA" && contains(next, "Affinity")) header_.numa_column = true;
        if (token == "NUMA" && next.starts_with("ID")) header_.gpu_numa_column = true;
      }
    } else if (!labels.empty() && i + 1 < line.tokens.size() && line.tokens[i + 1].text != "=") {
      labels.emplace_back(smi_cells(token, options_).cells.empty() ? token
                                                                   : "");  // A name we don't know, or damage.
      ++junk;
    }
    ++i;
  }
  if (!labels.empty()) {
    keep_header(line, std::move(labels), junk);
  } else if (!rows) {
    take_unlabelled(line);
  }
}

// Prose names devices too: a header is names for the most part, and stands right before rows.
void Reader::keep_header(const SmiLine& line, std::vector<std::string> labels, std::size_t junk) {
  if (junk * 2 > labels.size()) return;
  if (labels.size() == 1 && line.tokens.size() > 2 && !contains(line.text, "Affinity")) return;
  if (header_.header == labels && !header_.header_lines.empty()) return;  // The same line twice.
  header_.header.insert(header_.header.end(), labels.begin(), labels.end());
  header_.header_lines.push_back(line.number);
}

void Reader::flush_header() {
  // Names below the rows, without rows of their own: the header after all, if the rows have none.
  if (header_.header.empty() || paste_.tables.empty() || !table().header.empty()) return;
  header_.rows = std::move(table().rows);
  table() = std::move(header_);
  header_ = {};
}

void Reader::open_row(const SmiLine& line, const std::string& label) {
  const bool fresh = header_.header.empty();
  if (paste_.tables.empty()) {
    paste_.tables.push_back(std::move(header_));
  } else if (!fresh) {
    const auto& rows = table().rows;
    const bool repeats =
        std::any_of(rows.begin(), rows.end(), [&](const SmiRow& row) { return row.label == label; });
    if (table().header.empty() && !repeats) {
      flush_header();
    } else if (table().header != header_.header || repeats) {
      paste_.tables.push_back(std::move(header_));
    }
  }
  header_ = {};
  table().rows.push_back({.line = line.number, .label = label, .cut = !line.ended});
  last_line_ = line.number;
}

// A row without its label, or the rest of a row that a terminal has wrapped.
void Reader::take_unlabelled(const SmiLine& line) {
  SmiRow row{.line = line.number, .cut = !line.ended};
  std::size_t from = 0;
  const bool follows = !paste_.tables.empty() && !table().rows.empty() && last_line_ + 1 == line.number;
  if (follows && table().rows.back().tail.empty() &&
      table().rows.back().words.size() < table().header.size()) {
    SmiRow& before = table().rows.back();
    const std::string glued = (before.words.empty() ? "" : before.words.back().raw) + line.tokens[0].text;
    const SmiCells whole = smi_cells(glued, options_);
    const bool alone = !smi_cells(line.tokens[0].text, options_).cells.empty();
    if (!alone && whole.cells.size() == 1 && !whole.cells[0].damaged && !whole.cells[0].foreign &&
        whole.rest.empty() && line.tokens.size() > 1) {
      before.words.back() = whole.cells[0];
      from = 1;
    } else if (!alone && !smi_number_list(line.tokens[0].text)) {
      return;
    }
    before.joined = true;
    before.cut = !line.ended;
    last_line_ = line.number;
    take_words(line, before, from, line.tokens[from].tabs_before > 0 ? line.tokens[from].tabs_before - 1 : 0);
    return;
  }
  while (from < line.tokens.size() && smi_cells(line.tokens[from].text, options_).cells.empty()) ++from;
  if (from == line.tokens.size()) return;
  take_words(line, row, from, line.tokens[from].tabs_before > 0 ? line.tokens[from].tabs_before - 1 : 0);
  const auto clean = [](const SmiWord& word) { return !word.damaged && !word.foreign; };
  const auto words = static_cast<std::size_t>(std::count_if(row.words.begin(), row.words.end(), clean));
  if (words < 2 || words * 2 <= row.words.size() || row.selves() != 1) return;
  open_row(line, "");
  table().rows.back() = std::move(row);
}

// Reads words and tail from token `from` on; gives back where the next label stands.
std::size_t Reader::take_words(const SmiLine& line, SmiRow& row, std::size_t from,
                               std::int32_t skipped_tabs) {
  std::size_t i = from;
  for (; i < line.tokens.size(); ++i) {
    const SmiToken& token = line.tokens[i];
    const std::int32_t tabs = token.tabs_before - (i == from ? skipped_tabs : 0);
    row.tabbed = row.tabbed || token.tabs_before > 0;
    if (const auto next = label_of(token.text); next && (!row.words.empty() || !row.tail.empty())) return i;
    const SmiCells found = smi_cells(token.text, options_);
    const bool is_tail = smi_number_list(token.text) || token.text.starts_with("N/A");
    if (row.tail.empty() && !is_tail) {
      for (std::int32_t blank = 1; blank < tabs; ++blank) row.words.push_back({.damaged = true});
      if (found.cells.empty()) {
        row.words.push_back({.damaged = true, .raw = token.text});
      } else {
        row.words.insert(row.words.end(), found.cells.begin(), found.cells.end());
        if (found.cells.size() > 1) row.glued = token.text;
        if (!found.rest.empty()) row.tail.push_back(found.rest);
      }
      continue;
    }
    for (std::int32_t blank = 1; row.tabbed && blank < tabs; ++blank) row.tail.emplace_back();
    row.tail.push_back(token.text);
  }
  return i;
}

}  // namespace

std::size_t SmiRow::selves() const {
  return static_cast<std::size_t>(std::count_if(words.begin(), words.end(), [](const SmiWord& word) {
    return word.cell.relation == SmiRelation::kSelf;
  }));
}

std::optional<std::size_t> SmiRow::self() const {
  if (selves() != 1) return std::nullopt;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].cell.relation == SmiRelation::kSelf) return i;
  }
  return std::nullopt;
}

SmiPaste smi_paste(std::string_view text, const SmiReadOptions& options) {
  Reader reader(options);
  for (const SmiLine& line : smi_lines(text)) reader.take(line);
  return reader.result();
}

}  // namespace orrery
