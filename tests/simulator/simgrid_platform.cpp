#include "simulator/simgrid_platform.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "topology/import/platform.hpp"

using namespace orrery;

TEST_CASE("SimGrid loads a written platform and finds the router's ways", "[simgrid][platform]") {
  Cluster cluster;
  cluster.node = catalogue_node("dgx-h100").value();
  cluster.nodes = 2;
  cluster.fabric.hop_latency_s = 130e-9;
  const Router router(cluster);
  // Within a node, between nodes on one rail, between rails.
  const std::vector<std::pair<std::int32_t, std::int32_t>> gpus{{0, 5}, {1, 9}, {3, 14}};
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [from, to] : gpus) {
    const auto name = [](std::int32_t gpu) {
      return "node" + std::to_string(gpu / 8) + ".gpu" + std::to_string(gpu % 8);
    };
    names.emplace_back(name(from), name(to));
  }
  const std::vector<SimgridWay> ways = simgrid_ways(write_simgrid_platform(cluster), names);
  REQUIRE(ways.size() == gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Path path = router.path(gpus[i].first, gpus[i].second);
    CHECK(ways[i].bytes_per_s == path.bytes_per_s());
    CHECK(ways[i].latency_s == Approx(path.latency_s).epsilon(1e-12));
  }
}

TEST_CASE("SimGrid reads clusters as they were read", "[simgrid][platform]") {
  const std::string text = R"(<?xml version="1.0"?>
    <!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
    <platform version="4.1">
    <cluster id="c" prefix="n-" suffix=".x" radical="0-3" speed="1Gf" bw="125MBps" lat="50us"
             topology="FAT_TREE" topo_parameters="2;2,2;1,2;1,2"/></platform>)";
  const std::string again = write_simgrid_platform(read_simgrid_platform(text, "p.xml"));
  const std::vector<std::pair<std::string, std::string>> pairs{{"n-0.x", "n-1.x"}, {"n-0.x", "n-3.x"}};
  const std::vector<SimgridWay> ways = simgrid_ways(text, pairs), ways_again = simgrid_ways(again, pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    CHECK(ways[i].bytes_per_s == 125e6);
    CHECK(ways_again[i].bytes_per_s == 125e6);
    CHECK(ways_again[i].latency_s == ways[i].latency_s);
  }
  CHECK(ways[1].latency_s == Approx(2 * ways[0].latency_s));  // Four cables over the second level, or two.
}

TEST_CASE("a platform that SimGrid can't load is an error", "[simgrid][platform]") {
  CHECK_THROWS_AS(simgrid_ways("<platform version=\"4.1\"><host/></platform>", {}), Error);
}
