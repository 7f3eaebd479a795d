#pragma once
// Collectives as Programs of chunk-level sends and receives, so that contention, rails and stragglers come
// out of the simulation instead of a formula. Beside the Program stands what its messages carry, so that a
// test can run it over real arrays.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "model/program.hpp"

namespace orrery {

enum class CollectiveAlgorithm : std::uint8_t {
  kRing,  // All-reduce, all-gather, reduce-scatter; as a broadcast a pipelined chain from the root.
  kTree,  // NCCL's double binary tree over nodes, a chain inside each.
  kHalvingDoubling,  // Rabenseifner's; ranks beyond a power of two hand their part to a partner.
  kChain,            // Up the chain and back, pipelined in chunks.
  kRingChain,        // Rings inside nodes, chains between them, in chunks; small payloads as kHierarchical.
  kHierarchical,     // Reduce-scatter in each node, all-reduce between nodes, all-gather in each node.
  kNvls,             // One node; the switch adds and multicasts.
  kNvlsTree,         // The switch inside nodes, double binary trees between equal heads.
  kPat,              // Parallel aggregated trees: all-gather, reduce-scatter.
  kPairwise,         // All-to-all: NCCL's rounds.
  kPxn,              // All-to-all: first to the GPU of the right rail, then along it, eight messages as one.
};
std::string_view to_string(CollectiveAlgorithm algorithm);  // "ring", "halving-doubling", …

bool has_schedule(CollectiveAlgorithm algorithm, CollectiveKind kind);

struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  std::int64_t bytes = 0;  // nccl-tests' size: the whole buffer of one rank.
  std::int32_t ranks = 2;
  std::int32_t ranks_per_node = 0;    // Rank r is on node r / ranks_per_node; 0: all on one.
  std::vector<std::int32_t> devices;  // By rank; empty: rank r on device r.
  std::int32_t root = 0;              // Of a broadcast.
  std::int32_t channels = 1;          // Of rings, trees and chains: each carries an equal part.
  // By channel: the ranks in the order of its ring or chain. Fewer than channels: they repeat. Empty: by
  // rank.
  std::vector<std::vector<std::int32_t>> orders;
  std::int64_t chunk_bytes = 512 << 10;  // Payload of a message at most, where messages are chunks.
  std::int32_t slots = 8;                // Messages of a connection under way at a time, at most.
  double wire_factor = 1;                // Bytes on the wire for one of payload: LL 2, LL128 16/15.
  double switch_factor = 1;              // And for one that an NVSwitch adds or multicasts.
  SimTime call;                          // What every rank does before its first message.
};

// Rings that keep to their rail where a node has one NIC per rank: they walk through the ranks of one node
// upwards and of the next one downwards, each from another rank on.
std::vector<std::vector<std::int32_t>> rail_orders(std::int32_t ranks, std::int32_t ranks_per_node,
                                                   std::int32_t channels);

// ---- What messages carry.

// Of a range cut into `of` nearly equal parts those from number `index` on, `count` of them. With an axis:
// the part of the member `index` positions further in the rank's group. A member's number is its place among
// the group's ranks, or where `of` is the number of all ranks, its rank.
struct DataCut {
  AxisId axis;
  std::int32_t index = 0;
  std::int32_t of = 1;
  std::int32_t count = 1;
  bool operator==(const DataCut&) const = default;
};

// All but all-to-alls work in place on the payload.
enum class DataBuffer : std::uint8_t { kPayload, kResult, kStaging };

struct DataMove {
  DataBuffer buffer = DataBuffer::kPayload;
  Range cuts;         // Into CollectiveProgram::cuts, the outermost first.
  bool adds = false;  // A receive that adds to what is there.
};

struct CollectiveProgram {
  Program program;
  std::vector<std::vector<Range>> moves_of;  // By role, by instruction: into `moves`. Empty: no message.
  std::vector<DataMove> moves;
  std::vector<DataCut> cuts;

  // Of `elements` those that the move touches on the rank: first and one past the last.
  std::pair<std::int64_t, std::int64_t> elements(const DataMove& move, RankId rank,
                                                 std::int64_t elements) const;
};

// The reduction is part of its receive, as in NCCL's kernels, which add while they copy. Dependencies follow
// from what messages read and write, and from the slots: a receive waits until what arrived `slots` messages
// before has been passed on. THROWS Error(kInput) for a spec that its algorithm can't do, with the reason.
CollectiveProgram collective_program(const CollectiveSpec& spec);

// Chunks for kRingChain: payloads from 64 MB on over at least 8 nodes go in four or more, of 16 MB or less;
// others in one, with rings on both levels.
std::int32_t ring_chain_chunks(std::int64_t bytes, std::int32_t nodes);

}  // namespace orrery
