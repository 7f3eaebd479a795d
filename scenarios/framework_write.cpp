// An imported plan as the text of a scenario file.

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "scenarios/framework_import.hpp"

namespace orrery {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::size_t kSourceColumn = 34;
constexpr std::size_t kWidth = 106;

// Comments hold what the file says: control characters would end them.
std::string clean(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return result;
}

void line(Out out, std::size_t indent, std::string_view key, std::string_view value,
          std::string_view source) {
  const std::string text = fmt::format("{:{}}{}:{}{}", "", indent, key, value.empty() ? "" : " ", value);
  if (source.empty()) {
    fmt::format_to(out, "{}\n", text);
  } else {
    fmt::format_to(out, "{:<{}}  # {}\n", text, kSourceColumn, clean(source));
  }
}

// The keys that begin with `prefix`, those of a mapping together where its first one stands.
void mapping(Out out, const std::vector<ImportedKey>& keys, const std::string& prefix, std::size_t indent) {
  std::vector<std::string> done;
  for (const ImportedKey& entry : keys) {
    if (!entry.key.starts_with(prefix)) continue;
    const std::string rest = entry.key.substr(prefix.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (std::find(done.begin(), done.end(), name) != done.end()) continue;
    done.push_back(name);
    if (rest == name) {
      line(out, indent, name, entry.value, entry.source);
    } else {
      line(out, indent, name, "", "");
      mapping(out, keys, prefix + name + ".", indent + 2);
    }
  }
}

void remarks(Out out, std::string_view title, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  fmt::format_to(out, "\n# {}\n", title);
  for (const std::string& text : texts) fmt::format_to(out, "#   {}\n", clean(text));
}

// Many short names, as a paragraph.
void names(Out out, std::string_view title, const std::vector<std::string>& words) {
  if (words.empty()) return;
  fmt::format_to(out, "\n# {}\n", title);
  std::string row = "#  ";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = " " + clean(words[i]) + (i + 1 < words.size() ? "," : "");
    if (row.size() + word.size() > kWidth && row.size() > 3) {
      fmt::format_to(out, "{}\n", row);
      row = "#  ";
    }
    row += word;
  }
  fmt::format_to(out, "{}\n", row);
}

}  // namespace

std::string scenario_text(const ImportedPlan& plan, std::string_view place) {
  const std::filesystem::path file{std::string(place)};
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "# From {} ({}), by orrery plan import.\n", clean(file.filename().string()),
                 plan.framework);
  std::string name = file.stem().string();
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                 c == '_' || c == '.');
      },
      '-');
  line(out, 0, "name", fmt::format("\"{}\"", name.empty() ? "imported" : name), "");
  // Sections in the order of the user guide; within one, the order in which they were found.
  std::vector<ImportedKey> sorted;
  for (const std::string_view section : {"model", "sequence", "global_batch", "cluster", "plan", "profile"}) {
    for (const ImportedKey& entry : plan.keys) {
      if (entry.key.substr(0, entry.key.find('.')) == section) sorted.push_back(entry);
    }
  }
  mapping(out, sorted, "", 0);
  remarks(out, "Needed besides:", plan.missing);
  remarks(out, "Assumed:", plan.assumed);
  remarks(out, "Left out, because orrery has no counterpart, and what it does instead:", plan.left_out);
  names(out, "Not known to the importer; see whether one of them matters:", plan.unknown);
  names(out, "Without effect on a step's time and memory:", plan.no_effect);
  return text;
}

}  // namespace orrery
