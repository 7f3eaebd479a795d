#include "topology/import/smi_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace orrery {
namespace {

struct Spelling {
  std::string_view word;
  SmiRelation relation;
};
constexpr std::array<Spelling, 7> kSpellings = {{{"X", SmiRelation::kSelf},
                                                 {"PIX", SmiRelation::kPix},
                                                 {"PXB", SmiRelation::kPxb},
                                                 {"PHB", SmiRelation::kPhb},
                                                 {"NODE", SmiRelation::kNode},
                                                 {"SYS", SmiRelation::kSys},
                                                 {"SOC", SmiRelation::kSys}}};

// No GPU has more NVLinks than 18 (H100 to B300, their datasheets); twice that is damage for certain.
constexpr std::int32_t kMostNvLinks = 36;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_name_char(char c) { return is_lower(c) || is_digit(c) || c == '_'; }

std::size_t run_length(std::string_view text, bool (*belongs)(char)) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), belongs) - text.begin());
}

std::optional<std::int32_t> small_number(std::string_view digits) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// The length of a colour code at the start of `text`: ESC[4m, and what is left of it where ESC was lost or
// written out.
std::size_t colour_length(std::string_view text) {
  constexpr std::array<std::string_view, 6> kEscapes = {"\x1b", "^[", "\\033", "\\e", "\\x1b", "\\u001b"};
  std::size_t at = 0;
  for (const std::string_view escape : kEscapes) {
    if (text.starts_with(escape)) at = escape.size();
  }
  const bool escaped = at > 0;
  if (at >= text.size() || text[at] != '[') return 0;
  std::size_t end = at + 1;
  while (end < text.size() && (is_digit(text[end]) || text[end] == ';')) ++end;
  if (end >= text.size()) return escaped ? end : 0;
  if (text[end] == 'm') return end + 1;
  return escaped && (is_upper(text[end]) || is_lower(text[end])) ? end + 1 : 0;
}

// The length of a character that shows as a blank or a table's bar, or not at all.
std::size_t blank_length(std::string_view text) {
  constexpr std::array<std::string_view, 6> kBlanks = {"\xc2\xa0",     "\xe2\x94\x82", "\xef\xbb\xbf",
                                                       "\xe2\x80\x8b", "\xe2\x80\x83", "\xe2\x80\x82"};
  for (const std::string_view blank : kBlanks) {
    if (text.starts_with(blank)) return blank.size();
  }
  const char c = text.front();
  return c == '|' || (c >= 0 && c < ' ' && c != '\t') || c == '\x7f' ? 1 : 0;
}

std::string cleaned(std::string_view raw) {
  std::string text;
  while (!raw.empty()) {
    if (const std::size_t length = colour_length(raw)) {
      raw.remove_prefix(length);
    } else if (const std::size_t blanks = blank_length(raw)) {
      text += ' ';
      raw.remove_prefix(blanks);
    } else {
      text += raw.front();
      raw.remove_prefix(1);
    }
  }
  return text;
}

std::vector<SmiToken> tokens_of(std::string_view text) {
  std::vector<SmiToken> tokens;
  std::int32_t tabs = 0;
  while (!text.empty()) {
    if (text.front() == ' ' || text.front() == '\t') {
      tabs += text.front() == '\t';
      text.remove_prefix(1);
      continue;
    }
    const std::size_t length = std::min(text.find_first_of(" \t"), text.size());
    tokens.push_back({std::string(text.substr(0, length)), tabs});
    tabs = 0;
    text.remove_prefix(length);
  }
  return tokens;
}

// The word that `letters` is the beginning of, where only one is; SOC and SYS differ from their second letter
// on.
SmiWord from_first_letters(std::string_view letters) {
  SmiWord word{.damaged = true, .raw = std::string(letters)};
  std::int32_t matches = std::string_view("NV").starts_with(letters);
  for (const Spelling& spelling : kSpellings) {
    if (!spelling.word.starts_with(letters)) continue;
    ++matches;
    word.cell.relation = spelling.relation;
  }
  if (matches != 1 || letters.size() < 2 || letters == "NV") word.cell = {};
  return word;
}

bool begins_a_word(std::string_view letters) {
  return std::string_view("NV").starts_with(letters) ||
         std::any_of(kSpellings.begin(), kSpellings.end(),
                     [&](const Spelling& s) { return s.word.starts_with(letters); });
}

// Takes one word off the front of `text`; false where none stands there.
bool take_word(std::string_view& text, SmiCells& into) {
  if (text.starts_with("NV") && text.size() > 2 && is_digit(text[2])) {
    const std::size_t digits = run_length(text.substr(2), is_digit);
    const std::string_view raw = text.substr(0, 2 + digits);
    const auto count = small_number(raw.substr(2));
    text.remove_prefix(raw.size());
    SmiWord word{.raw = std::string(raw)};
    if (!text.empty() && (text.front() == '-' || text.front() == ',')) {
      // "NV120-31" is NV12 and 0-31, or NV1 and 20-31.
      word.damaged = true;
      word.raw += text;
      text = {};
    } else if (!count || *count < 1 || *count > kMostNvLinks) {
      word.damaged = true;
    } else {
      word.cell = {SmiRelation::kNvLink, *count};
    }
    into.cells.push_back(word);
    return true;
  }
  for (const Spelling& spelling : kSpellings) {
    if (!text.starts_with(spelling.word)) continue;
    into.cells.push_back({.cell = {spelling.relation, 0}, .raw = std::string(spelling.word)});
    text.remove_prefix(spelling.word.size());
    return true;
  }
  const std::size_t letters = run_length(text, is_upper);
  const bool whole = letters == text.size() || is_digit(text[letters]);
  if (letters == 0 || !whole || !begins_a_word(text.substr(0, letters))) return false;
  into.cells.push_back(from_first_letters(text.substr(0, letters)));
  text.remove_prefix(letters);
  return true;
}

// Kernel and vendor prefixes of RDMA device names: rdma-core's providers and its persistent naming.
constexpr std::array<std::string_view, 20> kRdmaPrefixes = {
    "roce", "ib",     "bnxt_re", "hfi1_", "cxi", "irdma", "qedr", "efa",    "rdma",  "hns_",
    "hsi",  "erdma_", "hsn",     "usnic", "siw", "rxe",   "mana", "ocrdma", "mthca", "qib"};

// The length of a device name at the start of `text`; 0 where there is none.
std::size_t name_length(std::string_view text, const SmiReadOptions& options) {
  const auto numbered = [&](std::string_view prefix) -> std::size_t {
    if (!text.starts_with(prefix)) return 0;
    const std::size_t digits = run_length(text.substr(prefix.size()), is_digit);
    return digits > 0 && digits < 6 ? prefix.size() + digits : 0;
  };
  for (const std::string& prefix : options.gpu_labels) {
    if (const std::size_t length = numbered(prefix)) return length;
  }
  for (const std::string_view prefix : {"GPU", "NIC"}) {
    if (const std::size_t length = numbered(prefix)) return length;
  }
  if (text.starts_with("mlx") && text.size() > 5 && is_digit(text[3]) && text[4] == '_') {
    std::size_t at = 5;
    while (at < text.size() && (is_lower(text[at]) || text[at] == '_')) ++at;
    const std::size_t digits = run_length(text.substr(at), is_digit);
    return digits > 0 ? at + digits : 0;
  }
  for (const std::string_view prefix : kRdmaPrefixes) {
    if (!text.starts_with(prefix)) continue;
    const std::string_view name = text.substr(0, run_length(text, is_name_char));
    if (std::any_of(name.begin(), name.end(), is_digit)) return name.size();
  }
  return 0;
}

}  // namespace

std::vector<SmiLine> smi_lines(std::string_view text) {
  std::vector<SmiLine> lines;
  for (std::int32_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find_first_of("\r\n");
    SmiLine line{.number = number, .ended = end != std::string_view::npos};
    line.text = cleaned(text.substr(0, end));
    line.tokens = tokens_of(line.text);
    lines.push_back(std::move(line));
    if (end == std::string_view::npos) break;
    const bool pair = text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n';
    text.remove_prefix(end + (pair ? 2 : 1));
  }
  return lines;
}

SmiCells smi_cells(std::string_view token, const SmiReadOptions& options) {
  for (const auto& [word, cell] : options.words) {
    if (token == word) return {{{.cell = cell, .raw = word}}, ""};
  }
  SmiCells found;
  std::string_view text = token;
  while (!text.empty() && !is_digit(text.front()) && !text.starts_with("N/A")) {
    if (!take_word(text, found)) {
      const bool clean =
          token.size() <= 8 && is_upper(token.front()) &&
          std::all_of(token.begin(), token.end(), [](char c) { return is_upper(c) || is_digit(c); });
      found = {};
      if (clean) found.cells.push_back({.foreign = true, .raw = std::string(token)});
      return found;
    }
  }
  if (!found.cells.empty()) found.rest = text;
  return found;
}

std::optional<SmiLabel> smi_label(std::string_view token, const SmiReadOptions& options) {
  for (std::size_t start = 0; start < token.size(); ++start) {
    const char before = start == 0 ? ' ' : token[start - 1];
    if (is_upper(before) || is_name_char(before) || before == '-' || before == '.' || before == '/') continue;
    const std::size_t length = name_length(token.substr(start), options);
    if (length == 0) continue;
    SmiLabel found{std::string(token.substr(start, length)), std::string(token.substr(start + length)),
                   start > 0};
    if (found.rest.empty()) return found;
    const SmiCells cells = smi_cells(found.rest, options);
    if (!cells.cells.empty() && !cells.cells.front().foreign) return found;
  }
  return std::nullopt;
}

std::vector<std::string> smi_labels(std::string_view token, const SmiReadOptions& options) {
  std::vector<std::string> labels;
  while (!token.empty()) {
    const std::size_t length = name_length(token, options);
    if (length == 0) return token.starts_with("CPU") ? labels : std::vector<std::string>();
    labels.emplace_back(token.substr(0, length));
    token.remove_prefix(length);
  }
  return labels;
}

std::optional<std::int32_t> smi_gpu_number(std::string_view label, const SmiReadOptions& options) {
  std::string_view prefix = "GPU";
  for (const std::string& other : options.gpu_labels) {
    if (label.starts_with(other)) prefix = other;
  }
  return label.starts_with(prefix) ? small_number(label.substr(prefix.size())) : std::nullopt;
}

bool smi_foreign_label(std::string_view token) {
  const std::size_t letters = run_length(token, is_upper);
  if (letters < 2 || letters > 4 || letters == token.size()) return false;
  const std::string_view word = token.substr(0, letters);
  return word != "GPU" && word != "NIC" && word != "NV" && word != "CPU" &&
         run_length(token.substr(letters), is_digit) == token.size() - letters;
}

bool smi_p2p_word(std::string_view token) {
  constexpr std::array<std::string_view, 7> kWords = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
  return std::find(kWords.begin(), kWords.end(), token) != kWords.end();
}

bool smi_number_list(std::string_view token) {
  return !token.empty() && is_digit(token.front()) &&
         std::all_of(token.begin(), token.end(), [](char c) { return is_digit(c) || c == ',' || c == '-'; });
}

}  // namespace orrery
