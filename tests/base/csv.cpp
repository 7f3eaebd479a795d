#include <catch2/catch.hpp>

#include "base/csv.hpp"
#include "base/error.hpp"

using namespace orrery;

namespace {

std::string message_of(std::string_view text, std::string_view column = "") {
  try {
    const CsvTable table = parse_csv(text, "a.csv");
    if (!column.empty()) table.records.at(0).number(column);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("records are read by column name and know their line", "[csv]") {
  const CsvTable table = parse_csv(
      "name,shape,time\n\nfirst,\"{\"\"m\"\": 1}\",2.5\r\n"
      "\"two\nlines\",,\n third , x ,-7\n",
      "a.csv");
  REQUIRE(table.records.size() == 3);
  CHECK(table.has_column("shape"));
  CHECK_FALSE(table.has_column("size"));
  CHECK(table.records[0]["shape"] == "{\"m\": 1}");
  CHECK(table.records[0].number("time") == 2.5);
  CHECK(table.records[0].place() == "a.csv:3");
  CHECK(table.records[1]["name"] == "two\nlines");
  CHECK(table.records[1].line() == 4);
  CHECK_FALSE(table.records[1].number_if_given("time"));
  CHECK(table.records[2]["name"] == "third");
  CHECK(table.records[2].integer("time") == -7);
  CHECK(table.records[2].line() == 6);
}

TEST_CASE("a table whose last line has no end is read whole", "[csv]") {
  CHECK(parse_csv("a,b\n1,2").records.at(0).integer("b") == 2);
}

TEST_CASE("faults of a table name file and line", "[csv]") {
  CHECK(message_of("").find("a.csv: empty") == 0);
  CHECK(message_of("a,b,a\n").find("a.csv:1: two columns are named \"a\"") == 0);
  CHECK(message_of("a,b\n1,2\n3\n").find("a.csv:3: 1 values, but the header names 2 columns") == 0);
  CHECK(message_of("a,b\n1,\"2\n3,4\n").find("a.csv:2: quotes don't match") == 0);
  CHECK(message_of("a,b\n1,x\"y\n").find("a.csv:2: quotes don't match") == 0);
  CHECK(message_of("a,b\n1,2\n", "c").find("a.csv:1: there is no column \"c\"; the table has a, b") == 0);
  CHECK(message_of("a,b\n1,2k\n", "b").find("a.csv:2: b is \"2k\", expected a number") == 0);
  CHECK(message_of("a,b\n1,\n", "b").find("a.csv:2: b is \"\", expected a number") == 0);
  CHECK(message_of("a,b\n1,nan\n", "b").find("expected a number") != std::string::npos);
  CHECK_THROWS_AS(read_csv("/nonexistent/table.csv"), Error);
}
