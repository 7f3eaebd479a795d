// Links and commands in the pages that people read first.
#include <catch2/catch.hpp>

#include <regex>

#include "tests/house/tree.hpp"

using namespace orrery;
using house::kRoot;
namespace fs = std::filesystem;

namespace {

// Targets of [text](target) that are files: no address, no place on the same page.
std::vector<std::string> relative_links(const std::string& page) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  static const std::regex kAddress("^([a-z]+:|#).*");
  std::vector<std::string> result;
  for (std::sregex_iterator match(page.begin(), page.end(), kLink), end; match != end; ++match) {
    const std::string target = (*match)[1];
    if (!std::regex_match(target, kAddress)) result.push_back(target.substr(0, target.find('#')));
  }
  return result;
}

std::vector<std::string> pages() {
  std::vector<std::string> result = house::files("docs", {".md"});
  for (const char* page : {"README.md", "CONTRIBUTING.md"}) result.emplace_back(page);
  return result;
}

}  // namespace

TEST_CASE("every relative link in README and docs leads to a file", "[house]") {
  CHECK(relative_links("[a](b.md) [c](https://d) [e](#f) [g](h.md#i)") ==
        std::vector<std::string>{"b.md", "h.md"});
  std::size_t links = 0;
  for (const std::string& page : pages()) {
    for (const std::string& link : relative_links(house::read(kRoot / page))) {
      ++links;
      CAPTURE(page, link);
      CHECK(fs::exists((kRoot / page).parent_path() / link));
    }
  }
  CHECK(links > 5);
}

TEST_CASE("every script of tools that a page names can be run", "[house]") {
  static const std::regex kScript(R"(\btools/([a-z0-9-]+)\b(?![./]))");
  std::size_t scripts = 0;
  for (const std::string& page : pages()) {
    const std::string text = house::read(kRoot / page);
    for (std::sregex_iterator match(text.begin(), text.end(), kScript), end; match != end; ++match) {
      const fs::path script = kRoot / "tools" / (*match)[1].str();
      CAPTURE(page, script);
      REQUIRE(fs::exists(script));
      if (fs::is_directory(script)) continue;
      ++scripts;
      CHECK((fs::status(script).permissions() & fs::perms::owner_exec) != fs::perms::none);
    }
  }
  CHECK(scripts > 5);
}
