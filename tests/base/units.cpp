#include "base/units.hpp"

#include <catch2/catch.hpp>

#include "base/random.hpp"

using namespace orrery;
using namespace orrery::time_literals;

TEST_CASE("times are read exactly, in every unit", "[base]") {
  CHECK(parse_time("3ps") == 3_ps);
  CHECK(parse_time("10us") == 10_us);
  CHECK(parse_time("1.5 ms") == 1500_us);
  CHECK(parse_time("2s") == 2000_ms);
  CHECK(parse_time(" 7 ns ") == 7_ns);
  CHECK(parse_time("0us") == 0_ps);
  // 0.1 has no exact double; the nearest one times 10^6 still rounds to the picosecond that was meant.
  CHECK(parse_time("0.1us") == 100_ns);
  CHECK(parse_time("1.000000000001s") == SimTime{1'000'000'000'001});
  // 2^53 + 1 is the first whole number that a double can't hold.
  CHECK(parse_time("9007199254740993ps") == SimTime{9'007'199'254'740'993});
}

TEST_CASE("what isn't one number and one unit is no quantity", "[base]") {
  for (const char* text : {"", " ", "us", "10", "10 parsecs", "10us 5ns", "1,5us", "10US", "nan us", "inf s",
                           "1e99s", "ten us", "--1us", "1e us", "0x10us"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_time(text).has_value());
  }
  for (const char* text :
       {"", "MB", "1 mb", "1 MB/s", "1 Mb", "1e30GB", "9223372036854775808B", "nan", "1 M B"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
  for (const char* text : {"", "5", "5GB", "5 Gb", "5 /s", "5Gbps", "GB/s", "5 GB/h", "5 gb/s"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bandwidth(text).has_value());
  }
}

TEST_CASE("bytes: MB is a power of 1000, MiB of 1024", "[base]") {
  CHECK(parse_bytes("123") == 123);
  CHECK(parse_bytes("1kB") == 1'000);
  CHECK(parse_bytes("1KiB") == 1'024);
  CHECK(parse_bytes("25 MB") == 25'000'000);
  CHECK(parse_bytes("25MiB") == 26'214'400);
  CHECK(parse_bytes("1.5 GB") == 1'500'000'000);
  CHECK(parse_bytes("0.5GiB") == 536'870'912);
  CHECK(parse_bytes("2TB") == 2'000'000'000'000);
  CHECK(parse_bytes("1TiB") == 1'099'511'627'776);
}

TEST_CASE("bandwidth: a small b is a bit", "[base]") {
  CHECK(parse_bandwidth("400Gb/s") == 50e9);
  CHECK(parse_bandwidth("50 GB/s") == 50e9);
  CHECK(parse_bandwidth("3.35 TB/s") == 3.35e12);
  CHECK(parse_bandwidth("1Tb/s") == 125e9);
  CHECK(parse_bandwidth("100 Mb/s") == 12.5e6);
  CHECK(parse_bandwidth("1 GiB/s") == 1'073'741'824.0);
}

TEST_CASE("the exact forms read back as they were written", "[base]") {
  CHECK(exact_time(10_us) == "10us");
  CHECK(exact_time(1500_ns) == "1500ns");
  CHECK(exact_time(3_ps) == "3ps");
  CHECK(exact_bytes(1'000'000) == "1MB");
  CHECK(exact_bytes(4'096) == "4KiB");
  CHECK(exact_bytes(1'025) == "1025B");
  CHECK(exact_bytes(0) == "0B");
  Random random(1);
  for (int i = 0; i < 2'000; ++i) {
    // A random number of digits, so that round multiples of every unit come up.
    const std::int64_t magnitude = random.between(0, 60);
    const std::int64_t value = random.between(0, 1'000) << magnitude >> (magnitude / 2);
    CAPTURE(value);
    CHECK(parse_time(exact_time(SimTime{value})) == SimTime{value});
    CHECK(parse_time(exact_time(SimTime{1'000 * (value >> 20)})) == SimTime{1'000 * (value >> 20)});
    CHECK(parse_bytes(exact_bytes(value)) == value);
  }
}

TEST_CASE("tables show the unit that reads best", "[base]") {
  CHECK(format_time(SimTime{123'400'000}) == "123.400 us");
  CHECK(format_time(2500_ms) == "2.500 s");
  CHECK(format_time(42_ms) == "42.000 ms");
  CHECK(format_bytes(79.25 * 1024 * 1024 * 1024) == "79.25 GiB");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_count(16'384) == "16,384");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1'000'000) == "1,000,000");
  CHECK(format_count(-1'234) == "-1,234");
  CHECK(format_count(0) == "0");
}
