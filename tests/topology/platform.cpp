#include "topology/import/platform.hpp"

#include <catch2/catch.hpp>

#include <map>

#include "base/error.hpp"
#include "topology/import/platform_units.hpp"

using namespace orrery;

namespace {

const char* const kPlatform = R"(<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="all" routing="Full">
    <host id="a" speed="1.5Gf" core="4"/>
    <host id="b" speed="2Gf,1Gf"/>
    <link id="wire" bandwidth="10Gbps" latency="50us" sharing_policy="SPLITDUPLEX"/>
    <link id="bus" bandwidth="1e9"/>
    <route src="a" dst="b" symmetrical="NO">
      <link_ctn id="wire" direction="UP"/>
      <link_ctn id="bus"/>
    </route>
  </zone>
  <cluster id="tree" prefix="n-" suffix=".x" radical="0-2,7" speed="1Gf" bw="125MBps" lat="50us"
           topology="FAT_TREE" topo_parameters="2;2,2;1,2;1,2"/>
</platform>
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kPlatform;
  return text.replace(text.find(from), from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    read_simgrid_platform(text, "p.xml");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

Cluster two_nodes() {
  Cluster cluster;
  cluster.node = catalogue_node("dgx-h100").value();
  cluster.nodes = 2;
  cluster.fabric.hop_latency_s = 130e-9;
  return cluster;
}

}  // namespace

TEST_CASE("SimGrid's units", "[topology][platform]") {
  CHECK(parse_platform_bandwidth("10Gbps") == 1.25e9);
  CHECK(parse_platform_bandwidth("125MBps") == 125e6);
  CHECK(parse_platform_bandwidth("1KiBps") == 1024);
  CHECK(parse_platform_bandwidth("8Kibps") == 1024);
  CHECK(parse_platform_bandwidth("2.5e9") == 2.5e9);
  CHECK_FALSE(parse_platform_bandwidth("10Gb").has_value());
  CHECK_FALSE(parse_platform_bandwidth("-1Bps").has_value());
  CHECK(parse_platform_latency("50us") == Approx(50e-6));
  CHECK(parse_platform_latency("2m") == 120);
  CHECK_FALSE(parse_platform_latency("2 parsecs").has_value());
  CHECK(parse_platform_speed("98.095Gf") == Approx(98.095e9));
  CHECK_FALSE(parse_platform_speed("1QQf").has_value());
}

TEST_CASE("a platform's hosts, links, routes and clusters", "[topology][platform]") {
  const PlatformDescription platform = read_simgrid_platform(kPlatform, "p.xml");
  CHECK(platform.hosts == std::vector<PlatformHost>{{"a", 1.5e9, 4}, {"b", 2e9, 1}});
  REQUIRE(platform.links.size() == 2);
  CHECK(platform.links[0].bytes_per_s == 1.25e9);
  CHECK(platform.links[0].sharing == LinkSharing::kSplitDuplex);
  CHECK(platform.links[1].latency_s == 0);
  REQUIRE(platform.routes.size() == 1);
  CHECK_FALSE(platform.routes[0].symmetrical);
  CHECK(platform.routes[0].hops[0].direction == PlatformHop::Direction::kUp);
  REQUIRE(platform.clusters.size() == 1);
  const PlatformCluster& tree = platform.clusters[0];
  CHECK(tree.hosts == std::vector<std::string>{"n-0.x", "n-1.x", "n-2.x", "n-7.x"});
  CHECK(tree.topology == ClusterTopology::kFatTree);
  CHECK(tree.parameters == std::vector<std::vector<std::int32_t>>{{2}, {2, 2}, {1, 2}, {1, 2}});
  CHECK(read_simgrid_platform(write_simgrid_platform(platform), "again") == platform);
}

TEST_CASE("what a platform file says beyond the subset is refused with its line", "[topology][platform]") {
  using Catch::Contains;
  CHECK_THAT(error_of("<system version=\"1\"/>"), Contains("begins with <platform>"));
  CHECK_THAT(error_of(with("\"4.1\"", "\"3\"")), Contains("line 3: version \"3\""));
  CHECK_THAT(error_of(with("<host id=\"a\"", "<router id=\"r\"/><host id=\"a\"")),
             Contains("line 5: <router>"));
  CHECK_THAT(error_of(with("core=\"4\"", "availability_file=\"f\"")),
             Contains("availability_file of <host>"));
  CHECK_THAT(error_of(with("10Gbps", "10Gb")), Contains("line 7: bandwidth=\"10Gb\""));
  CHECK_THAT(error_of(with("SPLITDUPLEX", "WIFI")), Contains("sharing_policy=\"WIFI\""));
  CHECK_THAT(error_of(with("link_ctn id=\"bus\"", "link_ctn id=\"train\"")),
             Contains("\"train\" is no link"));
  CHECK_THAT(error_of(with("dst=\"b\"", "dst=\"c\"")), Contains("\"c\" is no host"));
  CHECK_THAT(error_of(with("id=\"b\"", "id=\"a\"")), Contains("line 6: a second host \"a\""));
  CHECK_THAT(error_of(with("0-2,7", "3-")), Contains("radical=\"3-\""));
  CHECK_THAT(error_of(with("0-2,7", "0-9000000")), Contains("more than"));
  CHECK_THAT(error_of(with("2;2,2;1,2;1,2", "2;2,2")), Contains("has 2 parts where 4 belong"));
  CHECK_THAT(error_of(with("FAT_TREE", "RING")), Contains("topology=\"RING\""));
  CHECK_THAT(error_of(with("</zone>", "")), Contains("not well-formed"));
}

TEST_CASE("a cluster as a platform has the router's ways", "[topology][platform]") {
  const Cluster cluster = two_nodes();
  const Router router(cluster);
  const PlatformDescription platform = make_platform(cluster);
  CHECK(platform.hosts.size() == 16);
  CHECK(platform.routes.size() == 16 * 15);
  std::map<std::string, PlatformLink> links;
  for (const PlatformLink& link : platform.links) links[link.name] = link;
  CHECK(links.size() == platform.links.size());
  CHECK(links.at("node0.gpu1:node0.nvswitch0").bytes_per_s ==
        links.at("node0.nvswitch0:node0.gpu1").bytes_per_s);
  std::size_t next = 0;
  for (std::int32_t from = 0; from < 16; ++from)
    for (std::int32_t to = 0; to < 16; ++to) {
      if (from == to) continue;
      const PlatformRoute& route = platform.routes[next++];
      double narrowest = 1e300, latency_s = 0;
      for (const PlatformHop& hop : route.hops) {
        narrowest = std::min(narrowest, links.at(hop.link).bytes_per_s);
        latency_s += links.at(hop.link).latency_s;
      }
      const Path path = router.path(from, to);
      CHECK(narrowest == path.bytes_per_s());
      CHECK(latency_s == path.latency_s);
    }
  CHECK(read_simgrid_platform(write_simgrid_platform(cluster), "own") == platform);
}

TEST_CASE("platforms of many GPUs are refused", "[topology][platform]") {
  Cluster cluster = two_nodes();
  cluster.nodes = 32;
  CHECK_THROWS_WITH(make_platform(cluster), Catch::Contains("256 GPUs") && Catch::Contains("128"));
}
