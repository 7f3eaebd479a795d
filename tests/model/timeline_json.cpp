// Timelines as files.

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/program_hash.hpp"
#include "model/timeline_json.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;

namespace {

Program program() {
  return parse_program(
      "program two\n"
      "role first (ranks 0): f0 = compute 10us for forward\n"
      "                      s0 = send 1MB to next after f0\n"
      "role second (ranks 1): r0 = recv 1MB from previous\n");
}

// f0 until 10 us, the message until 14 us; the receiver waited for 10.
TimelineRecord recorded() {
  Timeline timeline;
  timeline.classes = {{RoleId(0), {RankId(0)}}, {RoleId(1), {RankId(1)}}};
  timeline.spans = {{0, StreamId(0), 0, 0, 0_us, 0_us, 10_us},
                    {0, StreamId(1), 1, 1, 10_us, 10_us, 14_us},
                    {1, StreamId(0), 0, 0, 0_us, 10_us, 14_us}};
  timeline.makespan = timeline.step_time = 14_us;
  return record_timeline(program(), timeline);
}

std::string fault_with(const std::string& from, const std::string& to) {
  std::string text = to_json(recorded());
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  try {
    parse_timeline_json(text.replace(at, from.size(), to), "t.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a timeline is recorded by names", "[timeline]") {
  const TimelineRecord record = recorded();
  CHECK(record.program == "two");
  CHECK(record.program_hash == program_hash(program()));
  CHECK(record.step_time_s == 14e-6);
  REQUIRE(record.classes.size() == 2);
  const RecordedSpan& f0 = record.classes[0].spans.at(0);
  CHECK(f0.first == "f0");
  CHECK(f0.purpose == "forward");
  CHECK(f0.kind == "fixed");
  CHECK(f0.stream == "compute");
  const RecordedSpan& r0 = record.classes[1].spans.at(0);
  CHECK(r0.kind == "recv");
  CHECK(r0.ready_s == 10e-6);
}

TEST_CASE("a timeline reads back as it was written", "[timeline]") {
  TimelineRecord record = recorded();
  CHECK(parse_timeline_json(to_json(record), "t.json") == record);
  record.measured = true;
  record.clocks = {{1, 0.25, 1e-7}};
  record.traced_step_s = 15e-6;
  record.untraced_step_s = 14e-6;
  record.classes[0].spans[0].last = "s0";
  CHECK(parse_timeline_json(to_json(record), "t.json") == record);
}

TEST_CASE("another Program has another hash", "[timeline]") {
  Program other = program();
  other.kernels[0].fixed = 11_us;
  CHECK(program_hash(other) != program_hash(program()));
  CHECK(program_hash(program()).size() == 32);
}

TEST_CASE("a damaged timeline is told with file and field", "[timeline]") {
  CHECK_THAT(fault_with("orrery-timeline", "x"), Contains("t.json: format: is 'x'"));
  CHECK_THAT(fault_with("\"predicted\"", "\"guessed\""), Contains("t.json: kind: is 'guessed'"));
  CHECK_THAT(fault_with("\"steps\": 1", "\"steps\": 0"), Contains("steps: is 0; expected"));
  CHECK_THAT(fault_with("\"end_s\": 1e-05", "\"end_s\": -1"),
             Contains("classes[0].spans[0].end_s") && Contains("start ≤ ready ≤ end"));
  const std::string text = to_json(recorded());
  for (std::size_t size = 0; size + 2 < text.size(); size += 29)
    CHECK_THROWS_AS(parse_timeline_json(text.substr(0, size), "t.json"), Error);
}

TEST_CASE("a rank stands in one class only", "[timeline]") {
  TimelineRecord record = recorded();
  record.classes[1].ranks = {0};
  CHECK_THROWS_WITH(parse_timeline_json(to_json(record), "t.json"), Contains("rank 0 for the second time"));
}
