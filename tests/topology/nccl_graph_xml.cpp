#include "topology/import/nccl_graph_xml.hpp"

#include <catch2/catch.hpp>

#include <iostream>

#include "base/error.hpp"
#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

const char* const kGraphs = R"(<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20.6" speedinter="45" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel>
      <net dev="2"/>
      <gpu dev="0"/>
      <gpu dev="1" rank="1"/>
      <net dev="3"/>
    </channel>
    <channel>
      <gpu dev="0x100000000000001"/>
      <gpu dev="0xa"/>
    </channel>
  </graph>
  <graph id="4" pattern="6" crossnic="0" nchannels="0" speedintra="0" speedinter="0" typeintra="LOC" typeinter="LOC" samechannels="1"/>
</graphs>
)";

std::string error_of(const std::string& text) {
  try {
    read_nccl_graphs(text, "g.xml");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGraphs;
  return text.replace(text.find(from), from.size(), to);
}

std::string up_to(const std::string& end) {
  const std::string text = kGraphs;
  return text.substr(0, text.find(end));
}

std::filesystem::path folder() { return topo_test::published_folder() / "graph"; }

bool skip_without_data() {
  if (std::filesystem::exists(folder())) return false;
  std::cout << "skipped: no published graphs (set ORRERY_DATA to the data folder)\n";
  return true;
}

}  // namespace

TEST_CASE("graph files give channels with their ports", "[topology][nccl_xml]") {
  const NcclGraphImport import = read_nccl_graphs(kGraphs, "g.xml");
  CHECK(import.notes.empty());
  REQUIRE(import.graphs.size() == 2);
  const nccl::Graph& ring = import.graphs[0];
  CHECK(ring.kind == nccl::GraphKind::kRing);
  CHECK(ring.pattern == nccl::Pattern::kRing);
  CHECK(ring.node_gb_per_s == 20.6);
  CHECK(ring.node_path == nccl::PathClass::kNvl);
  CHECK(ring.network_path == nccl::PathClass::kPix);
  CHECK_FALSE(ring.same_channels);
  REQUIRE(ring.channels.size() == 2);
  CHECK(ring.channels[0].gpus == std::vector<std::int64_t>{0, 1});
  CHECK(ring.channels[0].entry_nic == 2);
  CHECK(ring.channels[0].exit_nic == 3);
  // Device 1 of host 1.
  CHECK(ring.channels[1].gpus == std::vector<std::int64_t>{(std::int64_t{1} << 56) + 1, 10});
  CHECK_FALSE(ring.channels[1].entry_nic.has_value());
  CHECK(import.graphs[1].kind == nccl::GraphKind::kCollNetDirect);
  CHECK(import.graphs[1].channels.empty());
}

TEST_CASE("graphs that are written read back equal", "[topology][nccl_xml]") {
  const std::vector<nccl::Graph> graphs = read_nccl_graphs(kGraphs, "g.xml").graphs;
  const std::string text = write_nccl_graphs(graphs);
  CHECK(read_nccl_graphs(text, "again").graphs == graphs);
  CHECK_THAT(text,
             Catch::Contains("<gpu dev=\"0\"/>") && Catch::Contains("<gpu dev=\"0x100000000000001\"/>"));
  CHECK_THAT(text, Catch::Contains("typeinter=\"LOC\" samechannels=\"1\"/>"));
}

TEST_CASE("a graph file that was cut off says how much is there", "[topology][nccl_xml]") {
  const std::string between = up_to("    <channel>\n      <gpu dev=\"0x1000");
  CHECK_THAT(error_of(between), Catch::Contains("line 8") && Catch::Contains("before </graph>") &&
                                    Catch::Contains("1 of 2 channels of graph 0 (line 2) are whole"));
  const std::string inside = up_to("      <gpu dev=\"0xa\"");
  CHECK_THAT(error_of(inside), Catch::Contains("before </channel>: 1 of 2 channels"));
  CHECK_THAT(error_of(up_to("xa\"/>")), Catch::Contains("1 of 2 channels"));  // In a value.
  CHECK_THAT(error_of(up_to("</graphs>")), Catch::Contains("between two graphs"));
  NcclGraphOptions options;
  options.keep_whole_channels = true;
  const NcclGraphImport kept = read_nccl_graphs(inside, "g.xml", options);
  REQUIRE(kept.graphs.size() == 1);
  CHECK(kept.graphs[0].channels.size() == 1);
  CHECK(find_note(kept.notes, Kind::kRepaired, "1 of 2 channels") != nullptr);
  CHECK(read_nccl_graphs(up_to("</graphs>"), "g.xml", options).graphs.size() == 2);
}

TEST_CASE("what a graph file can't mean is refused with its line", "[topology][nccl_xml]") {
  CHECK_THAT(error_of("<system version=\"1\"/>"), Catch::Contains("a topology"));
  CHECK_THAT(error_of("<graph/>"), Catch::Contains("begins with <graphs>"));
  CHECK_THAT(error_of("<graphs version=\"2\"/>"), Catch::Contains("version \"2\""));
  CHECK_THAT(error_of(with("pattern=\"4\"", "pattern=\"9\"")), Catch::Contains("line 2: pattern=\"9\""));
  CHECK_THAT(error_of(with("\"NVL\"", "\"NVX\"")), Catch::Contains("no path class"));
  CHECK_THAT(error_of(with("speedinter=\"45\"", "speedinter=\"fast\"")), Catch::Contains("GB/s"));
  CHECK_THAT(error_of(with("id=\"0\" ", "")), Catch::Contains("lacks id"));
  CHECK_THAT(error_of(with("<net dev=\"2\"/>", "<cpu dev=\"2\"/>")), Catch::Contains("gpu and net"));
  CHECK_THAT(error_of(with("<gpu dev=\"0\"/>", "<gpu dev=\"-1\"/>")), Catch::Contains("line 5"));
  CHECK_THAT(error_of(with("</channel>", "</graph>")),
             Catch::Contains("</graph> stands where </channel> must"));
  const NcclGraphImport fewer = read_nccl_graphs(with("nchannels=\"2\"", "nchannels=\"3\""), "g.xml");
  CHECK(find_note(fewer.notes, Kind::kSuspect, "nchannels is 3, and 2 channels are there") != nullptr);
  const NcclGraphImport uneven = read_nccl_graphs(with("      <gpu dev=\"0xa\"/>\n", ""), "g.xml");
  CHECK(find_note(uneven.notes, Kind::kSuspect, "ring 1 has 1 GPUs, the first channel has 2") != nullptr);
}

TEST_CASE("published graph files are read and written back", "[topology][nccl_xml][data]") {
  if (skip_without_data()) return;
  const auto read = [](const char* name, const NcclGraphOptions& options = {}) {
    return read_nccl_graphs(topo_test::read_file(folder() / name), name, options);
  };
  const NcclGraphImport azure = read("azure-nc48v4-graph.xml");
  REQUIRE(azure.graphs.size() == 3);
  CHECK(azure.graphs[1].channels.size() == 4);
  const NcclGraphImport gb300 = read("gb300-8gpu-graph.xml");
  REQUIRE(gb300.graphs.size() == 5);
  CHECK(gb300.graphs[0].channels.size() == 16);
  CHECK(gb300.graphs[0].channels[0].gpus.size() == 8);
  CHECK(gb300.graphs[4].kind == nccl::GraphKind::kNvls);
  CHECK(gb300.graphs[4].channels.size() == 8);
  for (const NcclGraphImport& import : {azure, gb300}) {
    CHECK(import.notes.empty());
    CHECK(read_nccl_graphs(write_nccl_graphs(import.graphs), "again").graphs == import.graphs);
  }
  CHECK_THROWS_WITH(read("v100-4-mesh-graph-cut.xml"), Catch::Contains("4 of 6 channels of graph 0"));
  NcclGraphOptions options;
  options.keep_whole_channels = true;
  CHECK(read("v100-4-mesh-graph-cut.xml", options).graphs.at(0).channels.size() == 4);
}
