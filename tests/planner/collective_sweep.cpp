#include "planner/collective_sweep.hpp"

#include <catch2/catch.hpp>

#include "simulator/collective_time.hpp"
#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery {
namespace {

using enum CollectiveAlgorithm;
using enum CollectiveKind;
using testing::cluster_of;

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

// NCCL's prices without what was measured beside them.
Profile plain_nccl(const Cluster& cluster) {
  Profile profile = default_profile(cluster.node.gpu);
  profile.collectives.ramp = 0;
  profile.collectives.all_reduce_ends = profile.collectives.gather_ends = profile.collectives.scatter_ends = 0;
  return profile;
}

}  // namespace

TEST_CASE("print sweep", "[.sweep]") {
  for (const std::int32_t nodes : {1, 2, 16, 64})
    for (const CollectiveKind kind : {kAllReduce, kAllGather, kAllToAll})
      for (const std::optional<CollectiveAlgorithm> algorithm :
           {std::optional<CollectiveAlgorithm>{}, std::optional{kRing}, std::optional{kTree}, std::optional{kHierarchical}, std::optional{kRingChain}, std::optional{kChain}, std::optional{kPairwise}}) {
        CollectiveSweep sweep;
        sweep.kind = kind;
        sweep.algorithm = algorithm;
        sweep.sizes = {64 << 10, kMiB, 16 * kMiB, 256 * kMiB, kGiB};
        const Cluster cluster = cluster_of("dgx-h100", nodes);
        try {
          for (const CollectiveRow& row : sweep_collective(sweep, cluster, plain_nccl(cluster)))
            printf("%d %s %ld %s p%d c%d chunk %ld: %.1f us, formula %.1f (%.3f), bus %.1f, classes %d instr %ld\n", nodes,
                   std::string(to_string(kind)).c_str(), row.bytes, std::string(to_string(row.algorithm)).c_str(),
                   (int)row.protocol, row.channels, row.chunk_bytes, row.time.seconds() * 1e6, row.formula.seconds() * 1e6,
                   row.time.seconds() / row.formula.seconds(), row.busbw_bytes_per_s / 1e9, row.classes, row.instructions);
        } catch (const std::exception& error) {
          if (!algorithm) printf("%s\n", error.what());
        }
        fflush(stdout);
      }
}

}  // namespace orrery
