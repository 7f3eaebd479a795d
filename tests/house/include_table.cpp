// Holds every #include against the table of folders in docs/architecture.md, and CMakeLists.txt with it.
#include <catch2/catch.hpp>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/house/tree.hpp"

using namespace orrery;
using house::kRoot;

namespace {

// One row: | `folder` | what it owns | `libraries` | `folders` |
struct Row {
  std::set<std::string> libraries;    // First part of a heavy include: "boost" stands for <boost/…>.
  std::set<std::string> may_include;  // Folders of ours, besides itself.
};
using Table = std::map<std::string, Row>;

// Only what stands in back quotes counts, so a cell can hold a remark.
std::set<std::string> in_back_quotes(const std::string& cell) {
  static const std::regex kQuoted("`([^`]*)`");
  std::set<std::string> result;
  for (std::sregex_iterator match(cell.begin(), cell.end(), kQuoted), end; match != end; ++match) {
    for (const std::string& word : house::words((*match)[1])) result.insert(word);
  }
  return result;
}

Table parse_table(const std::string& page) {
  Table table;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| folder |")) inside = true;
    if (inside && !line.starts_with("|")) break;
    if (!inside || !line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    REQUIRE(cells.size() >= 4);
    for (const std::string& folder : in_back_quotes(cells[0])) {
      table[folder] = Row{in_back_quotes(cells[2]), in_back_quotes(cells[3])};
    }
  }
  return table;
}

std::string first_part(const std::string& include) { return include.substr(0, include.find('/')); }

bool names_library(const std::string& include, const std::string& library) {
  return first_part(include).starts_with(library);
}

// Why `file` may not include `include` written in angle brackets; "" when it may.
std::string library_fault(const Table& table, const std::string& file, const std::string& include) {
  const std::string folder = first_part(file);
  const bool is_header = file.ends_with(".hpp");
  const Row& row = table.at(folder);
  for (const std::string& library : row.libraries) {
    if (!names_library(include, library)) continue;
    // base/error.hpp formats its message: fmt is the one library that headers of base may show. The other two
    // are what their folders are made of, and nobody includes those.
    const bool in_headers = library == "fmt" || folder == "tests" || folder == "executor";
    return is_header && !in_headers ? "a library stays in source files" : "";
  }
  if (names_library(include, "fmt")) {
    return is_header ? "fmt stays in source files outside base" : "";
  }
  for (const auto& [other, other_row] : table) {
    for (const std::string& library : other_row.libraries) {
      if (names_library(include, library)) return "only " + other + " may use that library";
    }
  }
  const bool system = include.find('/') == std::string::npos || include.starts_with("sys/") ||
                      include.starts_with("netinet/");
  return system ? "" : "a library that the table doesn't name";
}

std::vector<std::string> faults(const Table& table, const std::string& file, const std::string& text) {
  static const std::regex kInclude(R"re(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])re");
  std::vector<std::string> result;
  const std::string folder = first_part(file);
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const std::string include = match[2];
    std::string fault;
    if (match[1] == "<") {
      fault = library_fault(table, file, include);
    } else if (!table.contains(first_part(include))) {
      fault = "our own files are named from the root, \"folder/file.hpp\"";
    } else if (first_part(include) != folder && !table.at(folder).may_include.contains(first_part(include))) {
      fault = folder + " may not include " + first_part(include);
    }
    if (!fault.empty()) result.push_back(file + ":" + std::to_string(number) + ": " + include + ": " + fault);
  }
  return result;
}

Table real_table() { return parse_table(house::read(kRoot / "docs/architecture.md")); }

}  // namespace

TEST_CASE("every #include is allowed by the table in docs/architecture.md", "[house]") {
  const Table table = real_table();
  REQUIRE(table.size() >= 9);
  std::size_t files_read = 0;
  for (const auto& [folder, row] : table) {
    for (const std::string& file : house::files(folder, {".hpp", ".cpp", ".cu"})) {
      ++files_read;
      for (const std::string& fault : faults(table, file, house::read(kRoot / file))) FAIL_CHECK(fault);
    }
  }
  CHECK(files_read > 40);
}

TEST_CASE("the include check finds what it is for", "[house]") {
  const Table table = real_table();
  CHECK(faults(table, "model/a.cpp", "#include \"base/ids.hpp\"\n#include <vector>\n").empty());
  CHECK(faults(table, "base/a.hpp", "#include \"model/graph.hpp\"\n").size() == 1);
  CHECK(faults(table, "simulator/a.cpp", "  #  include \"planner/plan.hpp\"\n").size() == 1);
  CHECK(faults(table, "model/a.cpp", "#include \"graph.hpp\"\n").size() == 1);
  CHECK(faults(table, "model/a.cpp", "#include <nlohmann/json.hpp>\n").empty());
  CHECK(faults(table, "model/a.hpp", "#include <nlohmann/json.hpp>\n").size() == 1);
  CHECK(faults(table, "planner/a.cpp", "#include <nlohmann/json.hpp>\n").size() == 1);
  CHECK(faults(table, "planner/a.cpp", "#include <boost/graph/graph_traits.hpp>\n").size() == 1);
  CHECK(faults(table, "planner/a.cpp", "#include <fmt/format.h>\n").empty());
  CHECK(faults(table, "planner/a.hpp", "#include <fmt/format.h>\n").size() == 1);
  CHECK(faults(table, "cli/a.cpp", "#include <catch2/catch.hpp>\n").size() == 1);
  CHECK(faults(table, "report/a.cpp", "#include <Eigen/Dense>\n").size() == 1);
}

TEST_CASE("CMakeLists.txt links what the table lets include", "[house]") {
  const Table table = real_table();
  const std::string list = house::read(kRoot / "CMakeLists.txt");
  static const std::regex kModule(R"((?:^|\n)orrery_(module|program)\(([^)]*)\))");
  int modules = 0;
  for (std::sregex_iterator match(list.begin(), list.end(), kModule), end; match != end; ++match) {
    const std::vector<std::string> words = house::words((*match)[2]);
    const std::string folder = (*match)[1] == "program" ? words.at(1) : words.at(0);
    std::set<std::string> uses;
    bool inside = false;
    for (const std::string& word : words) {
      if (word == "USES" || word == "LIBS" || word == "PUBLIC_LIBS") {
        inside = word == "USES";
      } else if (inside) {
        uses.insert(word);
      }
    }
    CAPTURE(folder);
    REQUIRE(table.contains(folder));
    CHECK(uses == table.at(folder).may_include);
    ++modules;
  }
  CHECK(modules >= 8);
}
