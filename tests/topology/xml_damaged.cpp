// XML files of machines damaged at random: nothing crashes, and what is read is what stood there, or a note
// or an error says otherwise.
#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/topology/damaged_paste.hpp"
#include "tests/topology/topo_files.hpp"
#include "topology/import/hwloc_host.hpp"
#include "topology/import/hwloc_trial.hpp"
#include "topology/import/nccl_graph_xml.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/node_host.hpp"
#include "topology/import/platform.hpp"
#include "topology/nccl/nccl_search.hpp"

using namespace orrery;

namespace {

// Per kind of file; ORRERY_DAMAGED_VARIANTS asks for more.
std::size_t variants(std::size_t usual) {
  const char* given = std::getenv("ORRERY_DAMAGED_VARIANTS");
  return given != nullptr ? std::max<std::size_t>(1, std::strtoul(given, nullptr, 10)) : usual;
}

std::size_t notes_of(const HostImport& import) { return import.notes.size(); }

struct Counts {
  std::size_t refused = 0, noted = 0, same = 0;
};

// Lines that only one of two texts has, with a sign in front, as diff shows them.
std::string changes(const std::string& before, const std::string& after) {
  const auto lines = [](const std::string& text) {
    std::multiset<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.ends_with('\r')) line.pop_back();
      all.insert(line);
    }
    return all;
  };
  const auto a = lines(before), b = lines(after);
  std::string text;
  for (const std::string& line : a)
    if (b.count(line) < a.count(line)) text += "- " + line + "\n";
  for (const std::string& line : b)
    if (a.count(line) < b.count(line)) text += "+ " + line + "\n";
  return text.substr(0, 2000);
}

// Whole lines went, and nothing else: where a line is a thing of its own that no other line counts, nobody
// can know.
bool only_lines_gone(const std::string& before, const std::string& after) {
  std::istringstream in(changes(before, after));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with('+') && line.find_first_not_of("+ ") != std::string::npos) return false;
  return true;
}

// `read` gives a value and how many notes there are on it.
template <class Read>
void damage(const std::string& text, std::size_t wanted, const Read& read, Counts& counts,
            bool lines_count = true) {
  const auto [original, original_notes] = read(text);
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::uint64_t seed = mix64(i + 7919 * text.size());
    const std::string damaged = damaged_paste(text, seed);
    try {
      const auto [value, notes] = read(damaged);
      if (value == original) {
        ++counts.same;
      } else if (notes > original_notes) {
        ++counts.noted;
      } else if (lines_count || !only_lines_gone(text, damaged)) {
        INFO("seed " << seed << "\n" << changes(text, damaged));
        FAIL_CHECK("read as something else without a word");
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) FAIL_CHECK(error.what());
      ++counts.refused;
    }
  }
}

// Without what is for people: the file's name, and blanks in a model's.
std::vector<Host> without_source(std::vector<Host> hosts) {
  for (Host& host : hosts) {
    host.source.clear();
    for (HostGpu& gpu : host.gpus) std::erase(gpu.model, ' ');
  }
  return hosts;
}

const auto kTopology = [](const std::string& text) {
  const HostImport import = read_nccl_topology(text, "t.xml");
  return std::pair(without_source(import.hosts), notes_of(import));
};

}  // namespace

TEST_CASE("damaged topology files of NCCL", "[nccl_xml][damaged]") {
  std::vector<std::string> texts{topo_test::read_file(topo_test::own_folder() / "h200x2/topology.xml")};
  for (const char* node : {"dgx-h100", "dgx-v100-mesh"})
    texts.push_back(write_nccl_topology(hosts_of(*catalogue_node(node))).text);
  Counts counts;
  for (const std::string& text : texts) damage(text, variants(900) / texts.size(), kTopology, counts);
  CHECK(counts.same > 0);
  CHECK(counts.refused > 0);
}

TEST_CASE("damaged graph files of NCCL", "[nccl_xml][damaged]") {
  const std::string text = topo_test::read_file(topo_test::own_folder() / "h200x2/default-graph.xml");
  Counts counts;
  const auto read = [](const std::string& xml) {
    NcclGraphImport import = read_nccl_graphs(xml, "g.xml");
    // A graph that was not found is a line without channels, and says no more than its absence.
    std::erase_if(import.graphs, [](const nccl::Graph& graph) { return graph.channels.empty(); });
    return std::pair(import.graphs, import.notes.size());
  };
  damage(text, variants(600), read, counts);
  CHECK(counts.same > 0);
  CHECK(counts.refused > 0);
}

TEST_CASE("damaged platform files of SimGrid", "[topology][platform][damaged]") {
  Cluster cluster;
  cluster.node = *catalogue_node("dgx-v100-mesh");
  Counts counts;
  const auto read = [](const std::string& xml) {
    return std::pair(read_simgrid_platform(xml, "p.xml"), std::size_t{0});
  };
  damage(write_simgrid_platform(cluster), variants(400), read, counts, false);
  CHECK(counts.same > 0);
  CHECK(counts.refused > 0);
}

TEST_CASE("damaged XML of hwloc", "[topology][hwloc][damaged]") {
  Counts counts;
  const auto read = [](const std::string& xml) {
    const HostImport import = read_hwloc_xml(xml, "m.xml");
    return std::pair(without_source(import.hosts), notes_of(import));
  };
  damage(topo_test::read_file(topo_test::own_folder() / "hwloc.xml"), variants(200), read, counts);
  CHECK(counts.same > 0);
  CHECK(counts.refused > 0);
}

TEST_CASE("a trial tells of a crash, of a run for ever and of nothing else", "[topology][hwloc]") {
  CHECK_FALSE(fault_of_trial([] {}, 5));
  CHECK_FALSE(fault_of_trial([] { fail(ErrorKind::kInput, "no"); }, 5));
  CHECK_THAT(fault_of_trial([] { std::raise(SIGSEGV); }, 5).value_or("nothing"),
             Catch::Contains("signal 11"));
  const auto forever = [] {
    for (std::atomic<int> turns = 0;; ++turns) {
    }
  };
  CHECK_THAT(fault_of_trial(forever, 1).value_or("nothing"), Catch::Contains("isn't done after 1 s"));
}
