#include "report/trace.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

namespace orrery {
namespace {

using namespace time_literals;
using Json = nlohmann::json;

Json trace_of(const Program& program, const Timeline& timeline) {
  std::ostringstream out;
  write_trace(out, program, timeline);
  return Json::parse(out.str());
}

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

Program program_of_two() {
  return parse_program(
      "role first (ranks 0-7,16-23):\n"
      "  buffer w parameters 100B persistent\n"
      "  buffer x activations 10B\n"
      "  f.l2.m1 = compute 10us for forward writes x reads w\n"
      "  s = send 1MB to +16 for pipeline after f.l2.m1 reads x\n"
      "role \"a \\\"b\\\"\" (ranks 8): c = all-reduce 2MB for tensor-parallel\n");
}

Timeline timeline_of_two() {
  Timeline timeline;
  timeline.classes.resize(2);
  timeline.classes[0].role = RoleId(0);
  for (const std::int64_t first : {0, 16}) {
    for (std::int64_t rank = first; rank < first + 8; ++rank) timeline.classes[0].ranks.emplace_back(rank);
  }
  timeline.classes[1] = {RoleId(1), {RankId(8)}};
  timeline.step_start = 3_us;
  timeline.step_time = 40_us;
  timeline.spans = {{0, StreamId(0), 0, 0, 2_us, 2_us, 12_us},
                    {0, StreamId(1), 1, 1, 12_us, {13'000'001}, 22_us},
                    {1, StreamId(0), 0, 0, 5_us, 5_us, 6_us}};
  return timeline;
}

TEST_CASE("a trace names classes and streams", "[trace]") {
  std::vector<std::string> processes;
  std::vector<std::string> threads;
  for (const Json& event : events_of(trace_of(program_of_two(), timeline_of_two()), "M")) {
    if (event.at("name") == "process_name") processes.push_back(event.at("args").at("name"));
    if (event.at("name") == "thread_name") threads.push_back(event.at("args").at("name"));
  }
  CHECK(processes == std::vector<std::string>{"first – ranks 0-7,16-23 (16 ranks)", "a \"b\" – rank 8"});
  CHECK(threads == std::vector<std::string>{"compute", "send", "comm"});
}

TEST_CASE("a trace has one event per span, in microseconds from the earliest one", "[trace]") {
  const Json trace = trace_of(program_of_two(), timeline_of_two());
  const std::vector<Json> spans = events_of(trace, "X");
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].at("name") == "f.l2.m1");
  CHECK(spans[0].at("pid") == 0);
  CHECK(spans[0].at("tid") == 0);
  CHECK(spans[0].at("ts") == 0.0);
  CHECK(spans[0].at("dur") == 10.0);
  CHECK(spans[0].at("cat") == "forward");
  CHECK(spans[0].at("args") ==
        Json({{"instruction", 0}, {"kind", "compute"}, {"layer", 2}, {"microbatch", 1}, {"kernel", "10us"}}));
  CHECK(spans[1].at("ts") == 10.0);
  CHECK(spans[1].at("args") ==
        Json({{"instruction", 1}, {"kind", "send"}, {"bytes", 1'000'000}, {"waited_us", 1.000001}}));
  CHECK(spans[2].at("cname") != spans[1].at("cname"));
  CHECK(trace.at("otherData").at("step_start_us") == 1.0);
  CHECK(trace.at("otherData").at("step_time_us") == 40.0);
}

TEST_CASE("a trace counts the memory in use", "[trace]") {
  // x lives from the start of f (0 us) to the end of s (20 us); w always.
  std::vector<std::pair<double, std::int64_t>> memory;
  for (const Json& event : events_of(trace_of(program_of_two(), timeline_of_two()), "C")) {
    CHECK(event.at("pid") == 0);
    memory.emplace_back(event.at("ts"), event.at("args").at("bytes"));
  }
  CHECK(memory == std::vector<std::pair<double, std::int64_t>>{{0.0, 100}, {0.0, 110}, {20.0, 100}});
}

TEST_CASE("an empty timeline is a valid trace, and so are names that JSON can't hold", "[trace]") {
  CHECK(trace_of(Program{}, Timeline{}).at("traceEvents").empty());
  const Program program = parse_program("program \"\xff\"\nrole a (ranks 0): \"\x01\xc3\" = compute 1us");
  Timeline timeline;
  timeline.classes = {{RoleId(0), {RankId(0)}}};
  timeline.spans = {{0, StreamId(0), 0, 0, 0_us, 0_us, 1_us}};
  CHECK(events_of(trace_of(program, timeline), "X").size() == 1);
}

}  // namespace
}  // namespace orrery
