#include "report/kernel_trace.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace orrery {
namespace {

using Json = nlohmann::json;

Json trace_of(const KernelTrace& trace) {
  const Program program = parse_program(
      "role only (ranks 0):\n"
      "  buffer x activations 10B\n"
      "  f.l2.m1 = compute 10us for forward writes x\n"
      "  g = compute 10us for backward reads x\n");
  std::ostringstream out;
  write_kernel_trace(out, program, program.roles.front(), trace);
  return Json::parse(out.str());
}

TEST_CASE("a trace of kernels has a track for each stream and names instructions", "[trace]") {
  KernelTrace trace;
  trace.device = "a GPU";
  trace.kernels = {{"copy", -1, 7, 1000, 2000},
                   {"void \"gemm\"<1>", 0, 9, 2500, 4000},
                   {"early", 1, 9, 3000, 3500},
                   {"late", 1, 9, 4000, 5000}};
  const Json json = trace_of(trace);
  CHECK(json.at("otherData").at("device") == "a GPU");
  std::vector<Json> spans;
  std::map<std::uint64_t, std::string> tracks;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
    if (event.at("name") == "thread_name") tracks[event.at("tid")] = event.at("args").at("name");
  }
  REQUIRE(spans.size() == 4);
  CHECK(tracks.at(spans[0].at("tid")) == "CUDA stream 7");
  CHECK_FALSE(spans[0].at("args").contains("instruction"));
  CHECK(spans[0].at("ts") == 0.0);
  CHECK(spans[0].at("dur") == 1.0);
  CHECK(spans[1].at("name") == "void \"gemm\"<1>");
  CHECK(spans[1].at("args").at("instruction") == "f.l2.m1");
  CHECK(spans[1].at("ts") == 1.5);
  // What overlaps stands beside it.
  CHECK(tracks.at(spans[2].at("tid")) == tracks.at(spans[1].at("tid")) + " (2)");
  CHECK(spans[3].at("tid") == spans[1].at("tid"));
  CHECK(tracks.size() == 3);
}

}  // namespace
}  // namespace orrery
