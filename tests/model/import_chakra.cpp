// Chakra traces become Programs.

#include "model/import_chakra.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/model/import_files.hpp"

using namespace orrery;
using namespace orrery::import_test;
using Catch::Matchers::Contains;

namespace {

std::vector<ChakraFile> files(const std::vector<std::string>& names) {
  std::vector<ChakraFile> result;
  for (const std::string& name : names) result.push_back({name, test_data(name)});
  return result;
}

std::string corpus(const std::string& name) {
  return read_file(std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/fuzz/corpus/chakra_fuzz" / name);
}

ChakraOptions ranks(std::int32_t count) {
  ChakraOptions options;
  options.ranks = count;
  return options;
}

}  // namespace

TEST_CASE("two traces become two roles that agree", "[import][chakra]") {
  const ChakraImport made = read_chakra(files({"chakra-pair.0.et", "chakra-pair.1.et"}));
  CHECK(verify(made.program).empty());
  // The host's op is left out, and what waited for it waits for nothing.
  CHECK(to_text(made.program) ==
        "program chakra\n"
        "labels \"20us\", forward, send, \"40us\", backward, all_reduce, recv, \"30us\"\n"
        "\n"
        "role rank0 (ranks 0):\n"
        "  forward = compute 20us\n"
        "  send = send 1MB to next on send+1 after forward\n"
        "  backward = compute 40us\n"
        "  all_reduce = all-reduce 4MB fp32 after backward\n"
        "\n"
        "role rank1 (ranks 1):\n"
        "  recv = recv 1MB from next on recv+1\n"
        "  forward = compute 30us after recv\n"
        "  all_reduce = all-reduce 4MB fp32 after forward\n");
  REQUIRE(made.notes.size() == 1);
  CHECK_THAT(made.notes[0], Contains("1 ops of the host"));
}

TEST_CASE("one trace can be what every rank does", "[import][chakra]") {
  // Its peers are rank 1 and rank 3, seen from rank 0: next and previous among 4.
  const ChakraImport made = read_chakra(files({"chakra-ring.et"}), ranks(4));
  CHECK(verify(made.program).empty());
  CHECK(made.program.world_size() == 4);
  CHECK(made.program.roles.size() == 1);
  // A receive is posted at once; what follows it waits for what it waited for, too.
  CHECK_THAT(to_text(made.program),
             Contains("recv = recv 1kB from previous on recv-1\n") && Contains("after send, recv"));
  CHECK_THROWS_WITH(read_chakra(files({"chakra-ring.et"})),
                    Contains("node 0 \"send\"") && Contains("--ranks"));
}

TEST_CASE("collectives count the whole buffer, loads are copies, arithmetic is work", "[import][chakra]") {
  const ChakraImport made = read_chakra({{"c.et", corpus("collectives.et")}}, ranks(4));
  CHECK(verify(made.program).empty());
  // Each of 4 ranks gathers 4 KiB; a barrier moves something small.
  CHECK_THAT(to_text(made.program), Contains("c2 = all-gather 16KiB") && Contains("b = all-reduce 4B") &&
                                        Contains("load = copy 4KiB to device") && Contains("flops=1000"));
}

TEST_CASE("the JSON form, and collectives without a size", "[import][chakra]") {
  const ChakraImport made = read_chakra(files({"chakra.json"}));
  CHECK(verify(made.program).empty());
  REQUIRE(made.program.roles.size() == 1);
  CHECK(made.program.roles[0].instructions.size() == 2);
  REQUIRE(made.notes.size() == 2);
  CHECK_THAT(made.notes[1], Contains("without a size"));
}

TEST_CASE("what isn't a trace, or one that can't have happened, is refused", "[import][chakra]") {
  const auto refused = [](const std::string& bytes, std::int32_t count = 0) -> std::string {
    try {
      read_chakra({{"t.et", bytes}}, ranks(count));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.what();
    }
    return "not refused";
  };
  CHECK_THAT(refused(corpus("cycle.et")), Contains("node 0 \"a\"") && Contains("for itself"));
  CHECK_THAT(refused(corpus("et.json")), Contains("PyTorch execution trace") && Contains("chakra_converter"));
  CHECK_THAT(refused(R"({"traceEvents": []})"), Contains("Kineto"));
  CHECK_THAT(refused(R"({"workload_graph": []})"), Contains("no nodes"));
  CHECK_THAT(refused(R"({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 4, "data_deps": [7]}]})"),
             Contains("node 1 \"a\"") && Contains("node 7, which the trace doesn't have"));
  CHECK_THAT(
      refused(
          R"({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 7, "comm_type": 1, "comm_size": 8}]})"),
      Contains("a reduce, which a Program doesn't have"));
  CHECK_THAT(
      refused(
          R"({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 7, "comm_type": 0, "comm_size": 8, "pg_name": "5"}]})"),
      Contains("process group \"5\"") && Contains("--groups"));
  CHECK_THAT(refused(test_data("chakra-pair.0.et").substr(0, 60), 2), Contains("broken or cut off"));
  CHECK_THAT(refused("\x01"), Contains("not a Chakra trace"));
}

TEST_CASE("process groups are given by name", "[import][chakra]") {
  ChakraOptions options = ranks(4);
  options.groups["5"] = {0, 1, 2, 3};
  const std::string node =
      R"({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 7, "comm_type": 0, "comm_size": 8, "pg_name": "5"}]})";
  CHECK(verify(read_chakra({{"t.et", node}}, options).program).empty());
  options.groups["5"] = {0, 9};
  CHECK_THROWS_WITH(read_chakra({{"t.et", node}}, options), Contains("rank 9 is not one of 0 to 3"));
  options.groups["5"] = {1, 2};
  CHECK_THROWS_WITH(read_chakra({{"t.et", node}}, options), Contains("doesn't have rank 0"));
}
