#include "scenarios/yaml.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

std::string message_of(const std::string& text) {
  try {
    parse_yaml(text, "f.yaml");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("YAML keeps places, order and quotes", "[scenarios]") {
  const YamlNode root = parse_yaml("b: 1\na: [x, \"y\"]\nc:\n", "f.yaml");
  CHECK(root.keys == std::vector<std::string>{"b", "a", "c"});
  CHECK(root.find("b")->text == "1");
  CHECK(root.find("b")->line == 1);
  CHECK(root.find("b")->column == 4);
  const YamlNode& list = *root.find("a");
  REQUIRE(list.children.size() == 2);
  CHECK_FALSE(list.children[0].quoted);
  CHECK(list.children[1].quoted);
  CHECK(list.children[1].line == 2);
  CHECK(root.find("c")->kind == YamlNode::Kind::kNull);
  CHECK(root.find("d") == nullptr);
}

TEST_CASE("YAML that has no place in a scenario is refused where it stands", "[scenarios]") {
  CHECK(message_of("a: 1\nb: 2\na: 3\n") == "f.yaml:3:1: \"a\" is given twice; the first one is in line 1");
  CHECK_THAT(message_of("a: &x [1]\nb: *x\n"), Contains("f.yaml:2:4: aliases"));
  CHECK_THAT(message_of("a: !!int 3\n"), Contains("tags"));
  CHECK_THAT(message_of("a: 1\n---\nb: 2\n"), Contains("second document"));
  CHECK_THAT(message_of("? [a, b]\n: 1\n"), Contains("a key must be a single word"));
  CHECK_THAT(message_of("~: 1\n"), Contains("a key is missing"));
  CHECK_THAT(message_of(""), Contains("the file is empty"));
  CHECK_THAT(message_of("a: [1, 2"), Contains("f.yaml:1:1: not valid YAML"));
  CHECK_THAT(message_of(std::string(100, '[') + std::string(100, ']')), Contains("nested too deeply"));
  CHECK_THAT(message_of(std::string((1 << 20) + 1, ' ')), Contains("larger than 1 MiB"));
}

TEST_CASE("a tab in the indentation is named", "[scenarios]") {
  CHECK_THAT(message_of("plan:\n\ttp: 4\n"), Contains("line 2 is indented with a tab"));
}

TEST_CASE("quoted text in messages is short and printable", "[scenarios]") {
  CHECK(quote("a\nb") == "\"a\\x0ab\"");
  CHECK(quote(std::string(100, 'x')) == "\"" + std::string(60, 'x') + "…\"");
  // The cut doesn't fall inside a character: 59 bytes and the two of "é".
  CHECK(quote(std::string(59, 'x') + "éyy") == "\"" + std::string(59, 'x') + "…\"");
}
