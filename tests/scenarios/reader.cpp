#include "scenarios/reader.hpp"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("plain numbers are read whole or not at all", "[scenarios]") {
  CHECK(parse_integer("8192") == 8192);
  CHECK(parse_integer("-3") == -3);
  CHECK(parse_integer("0") == 0);
  for (const char* text : {"", "-", "1.0", "1e3", "0x10", "010", "8k", " 8", "9223372036854775808"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_integer(text));
  }
  CHECK(parse_number("1e-5") == 1e-5);
  for (const char* text : {"", "nan", "inf", "1e999", "1,5", "2.49 USD"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number(text));
  }
}

TEST_CASE("peak rates are read with prefix and unit", "[scenarios]") {
  CHECK(parse_flops_rate("989T") == 989e12);
  CHECK(parse_flops_rate("989 TFLOP/s") == 989e12);
  CHECK(parse_flops_rate("989TFLOPS") == 989e12);
  CHECK(parse_flops_rate("1.5P") == 1.5e15);
  CHECK(parse_flops_rate("989e12") == 989e12);
  for (const char* text : {"", "T", "989 X", "989 T B", "nanT", "989TB/s"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_flops_rate(text));
  }
}
