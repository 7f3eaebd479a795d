// Every algorithm's Program, run over real arrays: the right result on every rank, and no more bytes than the
// algorithm's formula.

#include "planner/collective_program.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "tests/planner/collective_interpreter.hpp"

namespace orrery {
namespace {

using testing::CollectiveRun;
using enum CollectiveAlgorithm;
using enum CollectiveKind;

CollectiveSpec spec_of(CollectiveKind kind, CollectiveAlgorithm algorithm, std::int32_t ranks,
                       std::int32_t per_node = 0) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.algorithm = algorithm;
  spec.ranks = ranks;
  spec.ranks_per_node = per_node;
  spec.bytes = 1000;
  spec.chunk_bytes = 64;
  spec.slots = 3;
  return spec;
}

void check(const CollectiveSpec& spec) {
  INFO(to_string(spec.kind) << " by " << to_string(spec.algorithm) << ", " << spec.ranks << " ranks, "
                            << spec.ranks_per_node << " per node, " << spec.channels << " channels");
  const CollectiveProgram collective = collective_program(spec);
  const std::vector<std::string> faults = verify(collective.program);
  INFO((faults.empty() ? "" : faults.front()));
  REQUIRE(faults.empty());
  CHECK(parse_program(to_text(collective.program)) == collective.program);
  // In the order of the instructions, and in another one: what no dependency holds then happens too early.
  for (const bool hasty : {false, true}) {
    const CollectiveRun run(spec, collective, hasty);
    CHECK(run.stuck.empty());
    CHECK(run.wrong.empty());
  }
}

}  // namespace

TEST_CASE("rings give every rank the right result", "[collective]") {
  for (std::int32_t ranks = 2; ranks <= 16; ++ranks)
    for (const CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter, kBroadcast}) {
      CollectiveSpec spec = spec_of(kind, kRing, ranks);
      spec.root = ranks / 2;
      check(spec);
    }
  for (const CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter, kBroadcast}) {
    CollectiveSpec spec = spec_of(kind, kRing, 12, 4);
    spec.channels = 3;
    spec.orders = rail_orders(12, 4, 3);
    check(spec);
  }
}

TEST_CASE("trees, chains and halving sum up", "[collective]") {
  for (std::int32_t ranks = 2; ranks <= 16; ++ranks)
    for (const CollectiveAlgorithm algorithm : {kTree, kChain, kHalvingDoubling}) {
      check(spec_of(kAllReduce, algorithm, ranks));
      if (algorithm == kTree && ranks % 2 == 0) check(spec_of(kAllReduce, algorithm, ranks, 2));
      if (algorithm == kTree) check(spec_of(kAllReduce, algorithm, ranks, 1));
    }
  CollectiveSpec spec = spec_of(kAllReduce, kTree, 15, 3);
  spec.channels = 4;
  check(spec);
  for (const std::int32_t ranks : {2, 4, 8, 16}) {
    check(spec_of(kAllGather, kHalvingDoubling, ranks));
    check(spec_of(kReduceScatter, kHalvingDoubling, ranks));
  }
}

TEST_CASE("what goes through levels of the machine sums up", "[collective]") {
  for (const auto& [ranks, per_node] : {std::pair{2, 1}, {6, 2}, {6, 3}, {12, 4}, {16, 8}, {15, 5}}) {
    check(spec_of(kAllReduce, kHierarchical, ranks, per_node));
    if (per_node > 1) check(spec_of(kAllReduce, kNvlsTree, ranks, per_node));
  }
  for (std::int32_t ranks = 2; ranks <= 9; ++ranks)
    for (const CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter})
      check(spec_of(kind, kNvls, ranks));
  CollectiveSpec spec = spec_of(kAllReduce, kRingChain, 16, 2);
  check(spec);  // Rings on both levels.
  spec.bytes = 70'000'000;
  spec.chunk_bytes = 1 << 20;
  check(spec);
}

TEST_CASE("parallel trees gather and scatter", "[collective]") {
  for (std::int32_t ranks = 2; ranks <= 16; ++ranks)
    for (const CollectiveKind kind : {kAllGather, kReduceScatter}) {
      CollectiveSpec spec = spec_of(kind, kPat, ranks);
      check(spec);
      spec.chunk_bytes = 1000;
      check(spec);
    }
}

TEST_CASE("all-to-alls bring every part to its rank", "[collective]") {
  for (std::int32_t ranks = 2; ranks <= 16; ++ranks) check(spec_of(kAllToAll, kPairwise, ranks));
  for (const auto& [ranks, per_node] : {std::pair{2, 1}, {6, 2}, {6, 3}, {12, 4}, {16, 8}, {15, 5}}) {
    check(spec_of(kAllToAll, kPairwise, ranks, per_node));
    check(spec_of(kAllToAll, kPxn, ranks, per_node));
  }
}

TEST_CASE("ranks send what their algorithm's formula says", "[collective]") {
  // 16 ranks, 16 · 960 bytes: everything divides. B is 15,360.
  const auto sent = [](CollectiveKind kind, CollectiveAlgorithm algorithm, std::int32_t per_node = 0) {
    CollectiveSpec spec = spec_of(kind, algorithm, 16, per_node);
    spec.bytes = 15'360;
    spec.chunk_bytes = 960;
    return testing::most_sent(spec, collective_program(spec));
  };
  CHECK(sent(kAllReduce, kRing) == 2 * 15 * 960);
  CHECK(sent(kAllGather, kRing) == 15 * 960);
  CHECK(sent(kReduceScatter, kRing) == 15 * 960);
  CHECK(sent(kBroadcast, kRing) == 15'360);
  CHECK(sent(kAllReduce, kHalvingDoubling) == 2 * 15 * 960);
  CHECK(sent(kAllReduce, kChain) == 2 * 15'360);    // Up and down.
  CHECK(sent(kAllReduce, kTree, 1) == 3 * 15'360);  // Up, and down to two.
  CHECK(sent(kAllGather, kPat) == 15 * 960);
  CHECK(sent(kReduceScatter, kPat) == 15 * 960);
  CHECK(sent(kAllToAll, kPairwise) == 15 * 960);
  // 14 parts of the own node's GPUs' and of other nodes' to its GPUs, 8 along the rail.
  CHECK(sent(kAllToAll, kPxn, 8) == (7 + 7 + 8) * 960);
  // 3/4 B inside, twice; a quarter between four nodes.
  CHECK(sent(kAllReduce, kHierarchical, 4) == 2 * (15'360 * 3 / 4 + 15'360 / 4 * 3 / 4));
  // B (1 + 1/16) through the switch.
  CHECK(sent(kAllReduce, kNvls) == 15'360 * 17 / 16);
  CHECK(sent(kAllGather, kNvls) == 15'360);
}

TEST_CASE("ranks that do the same share a role", "[collective]") {
  CollectiveSpec spec = spec_of(kAllReduce, kRing, 1024, 8);
  spec.bytes = 1 << 20;
  spec.chunk_bytes = 1 << 20;
  CHECK(collective_program(spec).program.roles.size() == 1);
  CHECK(collective_program(spec).program.roles[0].instructions.size() == 4 * 1023);
  spec.algorithm = kHalvingDoubling;
  CHECK(collective_program(spec).program.roles.size() == 1);
  spec.algorithm = kChain;
  CHECK(collective_program(spec).program.roles.size() == 3);
}

TEST_CASE("a collective that an algorithm can't do is refused with the reason", "[collective]") {
  const auto refused = [](const CollectiveSpec& spec, const char* reason) {
    CHECK_THROWS_WITH(collective_program(spec), Catch::Contains(reason));
  };
  refused(spec_of(kAllGather, kHalvingDoubling, 6), "power of two");
  refused(spec_of(kAllReduce, kPat, 4), "all-reduce by pat isn't done");
  refused(spec_of(kAllReduce, kNvls, 4, 2), "inside one node");
  refused(spec_of(kAllReduce, kNvlsTree, 4, 1), "two or more ranks per node");
  refused(spec_of(kAllReduce, kRing, 1), "at least 2");
  refused(spec_of(kAllReduce, kRing, 6, 4), "don't fill nodes");
  CollectiveSpec spec = spec_of(kAllReduce, kRing, 3);
  spec.orders = {{0, 1, 1}};
  refused(spec, "permutation");
  spec.orders.clear();
  spec.root = 3;
  refused(spec, "root 3");
  spec = spec_of(kAllReduce, kNvls, 4);
  spec.channels = 2;
  refused(spec, "only rings, chains and trees");
}

TEST_CASE("chunks of a ring of chains", "[collective]") {
  CHECK(ring_chain_chunks(63'999'999, 8) == 1);
  CHECK(ring_chain_chunks(64'000'000, 7) == 1);
  CHECK(ring_chain_chunks(64'000'000, 8) == 4);
  CHECK(ring_chain_chunks(64'000'001, 8) == 5);
  CHECK(ring_chain_chunks(160'000'000, 64) == 10);
}

TEST_CASE("rings on rails go from node to node by one NIC", "[collective]") {
  const auto orders = rail_orders(12, 4, 2);
  CHECK(orders[0] == std::vector<std::int32_t>{0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11});
  CHECK(orders[1] == std::vector<std::int32_t>{1, 2, 3, 0, 4, 7, 6, 5, 9, 10, 11, 8});
}

}  // namespace orrery
