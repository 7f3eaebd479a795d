#pragma once
// Which instructions of a role meet other ranks, by where they meet: the k-th instruction of such a list
// meets the k-th of its counterpart's.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/program.hpp"

namespace orrery::folding {

using ListId = std::int32_t;  // −1: no such instruction.

struct PeerList {
  std::int32_t offset = 0;  // 0 … group size − 1: how much further in the group the peer stands.
  ListId list = -1;
};

// What one role does on one axis, in groups of one size.
struct RoleTraffic {
  ListId rings = -1;  // All collectives but all-to-all.
  ListId all_to_alls = -1;
  std::vector<PeerList> sends, recvs;

  ListId recv_from(std::int32_t offset) const;
};

class TrafficLists {
 public:
  explicit TrafficLists(const Program& program);

  // By role. Offsets that lead to the same peer (±1 in a group of two) share a list.
  const std::vector<RoleTraffic>& on_axis(AxisId axis, std::int32_t group_size);
  ListId copies(RoleId role, bool to_host) const { return copies_[role.index()][to_host ? 0 : 1]; }

  std::span<const std::int32_t> instructions(ListId list) const { return at(list).instructions; }
  const Work& work(ListId list, std::size_t k) const;
  // Over how many streams the list is spread: at most so many of its instructions run at once.
  std::int32_t lanes(ListId list) const { return at(list).lanes; }

 private:
  struct List {
    RoleId role;
    std::vector<std::int32_t> instructions;
    std::int32_t lanes = 0;
  };
  // Instructions of a role on an axis, not yet by peer.
  struct Raw {
    ListId rings = -1, all_to_alls = -1;
    std::vector<std::int32_t> sends, recvs;
  };
  const List& at(ListId list) const { return lists_[static_cast<std::size_t>(list)]; }
  ListId add(RoleId role, std::vector<std::int32_t> instructions);
  std::vector<PeerList> by_peer(RoleId role, const std::vector<std::int32_t>& instructions,
                                std::int32_t group_size);

  const Program& program_;
  std::vector<List> lists_;
  std::vector<std::vector<Raw>> raw_;  // By role, by axis.
  std::vector<std::array<ListId, 2>> copies_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<RoleTraffic>>
      tables_;  // By axis and group size.
};

}  // namespace orrery::folding
