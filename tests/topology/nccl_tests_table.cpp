#include "topology/import/nccl_tests_table.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/nccl_log_files.hpp"

using namespace orrery;
using log_test::says;
using log_test::says_at;

namespace {

// An all-reduce of two ranks: busbw = 2 · 1/2 · algbw. 1000000 bytes in 100.0 us are 10.00 GB/s.
const std::string kHeader =
    "# nThread 1 nGpus 2 minBytes 1000000 maxBytes 2000000 step: 2(factor) warmup iters: 5 iters: 20 agg "
    "iters: 1 validation: 1 graph: 0\n"
    "#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid   2114 on node-0 device  0 [0x07] NVIDIA A100-SXM4-40GB\n"
    "#  Rank  1 Group  0 Pid   2114 on node-0 device  1 [0x0f] NVIDIA A100-SXM4-40GB\n"
    "#\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
    "busbw #wrong\n";
const std::string kRows =
    "     1000000        250000     float     sum      -1    100.0   10.00   10.00      0    50.00   20.00   "
    "20.00      0\n"
    "     2000000        500000     float     sum      -1    100.0   20.00   20.00      0    50.00   40.00   "
    "40.00    N/A\n";
// (10 + 20 + 20 + 40) / 4 = 22.5.
const std::string kSummary = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 22.5 \n";

NcclTestsTable read(const std::string& text, const std::string& file = "all_reduce.txt") {
  return read_nccl_tests(text, file);
}

std::string edited(const std::string& text, const std::string& from, const std::string& to) {
  std::string result = text;
  const std::size_t at = result.find(from);
  REQUIRE(at != std::string::npos);
  return result.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a table of nccl-tests", "[nccl_tests]") {
  const NcclTestsTable table = read(kHeader + kRows + kSummary);
  CHECK(table.notes.empty());
  CHECK(table.collective == "all_reduce");
  CHECK(table.threads == 1);
  CHECK(table.gpus_per_thread == 2);
  CHECK(table.min_bytes == 1000000);
  CHECK(table.warmup_iterations == 5);
  CHECK(table.iterations == 20);
  CHECK(table.rank_count == 2);
  REQUIRE(table.ranks.size() == 2);
  CHECK(table.ranks[1].host == "node-0");
  CHECK(table.ranks[1].device == 1);
  CHECK(table.ranks[1].bus_id == "0x0f");
  CHECK(table.ranks[1].gpu == "NVIDIA A100-SXM4-40GB");
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].elements == 250000);
  CHECK(table.rows[0].root == -1);
  CHECK(table.rows[0].out_of_place->time_us == 100);
  CHECK(table.rows[1].in_place->bus_gb_per_s == 40);
  CHECK(table.rows[1].out_of_place->wrong == 0.0);
  CHECK_FALSE(table.rows[1].in_place->wrong);
  CHECK(table.average_bus_gb_per_s == 22.5);
}

TEST_CASE("tables with tags, indents, CRLF, colours and other lines in them", "[nccl_tests]") {
  for (const std::string prefix : {"[1,0]<stdout>:", "0: ", "    ", "\x1b[1m"}) {
    for (const std::string end : {"\n", "\r\n", "\nnode-0:1:2 [0] NCCL INFO Launch mode Parallel\n"}) {
      CAPTURE(prefix, end);
      std::string text;
      const std::string whole = kHeader + kRows + kSummary;
      for (std::size_t at = 0; at < whole.size();) {
        const std::size_t stop = whole.find('\n', at);
        text += prefix + whole.substr(at, stop - at) + end;
        at = stop + 1;
      }
      const NcclTestsTable table = read(text);
      CHECK(table.notes.empty());
      CHECK(table.rows.size() == 2);
      CHECK(table.ranks.size() == 2);
    }
  }
}

TEST_CASE("the forms of old versions: no root, an error instead of a count, no group", "[nccl_tests]") {
  const NcclTestsTable table = read(
      "# nThread 1 nGpus 1 minBytes 1000000 maxBytes 1000000 step: 2(factor) warmup iters: 5 iters: 20 "
      "validation: 1 \n"
      "#   Rank  0 Pid  63365 on node-0 device  0 [0x00] A100-SXM4-40GB\n#   Rank  1 Pid  63366 on node-1 "
      "device  0 [0x00] A100-SXM4-40GB\n"
      "     1000000        250000     float     sum    100.0   10.00   10.00  1e-07    50.00   20.00   20.00 "
      " 0e+00\n"
      "# Avg bus bandwidth    : 15 \n");
  CHECK(table.notes.empty());
  REQUIRE(table.rows.size() == 1);
  CHECK(table.rows[0].out_of_place->wrong == 1e-07);
  CHECK(table.ranks[1].host == "node-1");
}

TEST_CASE("which collective: by the program, the file, the ratio, or asked for", "[nccl_tests]") {
  const std::string body = kHeader + kRows + kSummary;
  CHECK(read("+ srun all_gather_perf_mpi -b 1M\n" + body, "x").collective == "all_gather");
  CHECK(read("# Collective test starting: reduce_scatter_perf\n" + body, "x").collective == "reduce_scatter");
  CHECK(read(body, "some/dir/run-AllReduce-2.log").collective == "all_reduce");
  // busbw = algbw, two ranks, sum: 2(n − 1)/n = 1.
  const NcclTestsTable guessed = read(body, "x");
  CHECK(guessed.collective == "all_reduce");
  CHECK(says(guessed.notes, "all_reduce by busbw/algbw = 1.000"));
  const NcclTestsTable unknown = read(edited(edited(body, "sum", "none"), "sum", "none"), "x");
  CHECK(unknown.collective.empty());
  REQUIRE(says(unknown.notes, "which collective"));
  CHECK(nccl_tests_bus_factor("all_reduce", 8) == 1.75);
  CHECK(nccl_tests_bus_factor("alltoall", 8) == 0.875);
  CHECK(nccl_tests_bus_factor("broadcast", 8) == 1.0);
  CHECK_FALSE(nccl_tests_bus_factor("all_to_none", 8));
}

TEST_CASE("rows that don't add up, are cut, lost or wrong are noted", "[nccl_tests]") {
  const std::string body = kHeader + kRows + kSummary;
  CHECK(says_at(read(edited(body, "100.0   10.00", "110.0   10.00")).notes, 8,
                "1000000 bytes in 110.0 us are 9.09 GB/s, and the row says 10.00"));
  CHECK(says_at(read(edited(body, "20.00   20.00      0    50.00", "20.00   30.00      0    50.00")).notes, 9,
                "busbw 30.00 isn't 1.0000"));
  const NcclTestsTable cut = read(kHeader + kRows.substr(0, kRows.find("50.00   20.00")) + "\n");
  CHECK(says_at(cut.notes, 8, "cut off behind 4 of 8 figures"));
  CHECK(cut.rows[0].out_of_place);
  CHECK_FALSE(cut.rows[0].in_place);
  CHECK(says(cut.notes, "the last row is of 1000000 bytes, where the test went on to 2000000"));
  CHECK(says(cut.notes, "summary"));
  const NcclTestsTable lost = read(kHeader + kRows.substr(kRows.find('\n') + 1) + kSummary);
  CHECK(says(lost.notes, "the first row is of 2000000 bytes"));
  CHECK(says(lost.notes, "busbw is 30.000 GB/s on average, and the summary says 22.500"));
  CHECK(says_at(read(edited(body, "      0    50.00   20.00", "      3    50.00   20.00")).notes, 8,
                "3 wrong elements at 1000000 bytes"));
  CHECK(says(read(edited(body, "0 OK", "5 FAILED")).notes, "nccl-tests found wrong results"));
  CHECK(says_at(read(edited(body, "20.00      0\n", "20.00      0 node-0:1:2 [0] NCCL INFO x\n")).notes, 8,
                "something else stands behind the row"));
  CHECK(says(read(edited(body, "#  Rank  0", "# Bank  0")).notes, "1 of 2 ranks are listed"));
  CHECK(says_at(read(edited(body, "device  1 [0x0f] N", "device  1 [0x")).notes, 5, "a rank's line is torn"));
  CHECK(says(read(edited(body, " maxBytes 2000000 step: 2(factor) warmup", "")).notes,
             "the options ('# nThread …') are torn"));
  const NcclTestsTable two = read(body + body);
  CHECK(two.rows.size() == 2);
  CHECK(says_at(two.notes, 12, "another table begins here"));
  CHECK_THROWS_WITH(read("nothing\n"), Catch::Contains("all_reduce.txt: no row of an nccl-tests table"));
}
