#pragma once
// Ranks on other hosts: their memory is mirrored here, so that exchanges read it as they read that of a rank
// next door. Whenever a rank comes further in an exchange it sends what the others' next phase reads of it,
// and how far it has come.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "executor/launch/mesh.hpp"
#include "executor/runtime/bound.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::host {

class Remote {
 public:
  // `ranks`: those on other hosts that this one is connected to; the World's memory of them is the mirror.
  Remote(Tables& tables, const BoundRank& rank, launch::Mesh& mesh, std::vector<RankId> ranks);

  bool has(RankId rank) const { return plans_.contains(rank.value); }
  // The rank has come to `phase` of the instruction's exchange; the counter says `reached`.
  void tell(RankId to, std::int32_t instruction, std::size_t phase, std::uint64_t reached);
  // Sends and takes what goes without waiting. Whether anything has come.
  bool pump();
  // Comes back when something may have come, or after a while.
  void wait() const;
  // Until all that was told has left.
  void flush();

 private:
  struct Range {
    std::int64_t offset = 0, bytes = 0;  // In the sender's memory.
  };
  // By instruction and phase: what the other rank reads of this one.
  using Plan = std::map<std::pair<std::int32_t, std::size_t>, std::vector<Range>>;
  struct Channel {
    std::vector<std::byte> out, in;  // Not sent yet; come, but no whole message yet.
  };
  void plan(Tables& tables, const BoundRank& rank, std::int32_t instruction);
  void note(const Exchange& theirs, RankId other, std::int32_t instruction);
  bool take(RankId from, Channel& channel);

  const World& world_;
  RankId self_;
  launch::Mesh& mesh_;
  std::map<std::int32_t, Plan> plans_;  // By rank.
  std::map<std::int32_t, Channel> channels_;
};

}  // namespace orrery::host
