// Ranks as processes tell each other the ids of their groups.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cstdlib>

#include "executor/device/unique_ids.hpp"
#include "executor/launch/rendezvous.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::device {
namespace {

using launch::test::free_port;
using launch::test::in_processes;
using launch::test::member;

// Four ranks, two by two in each of two ways, and all in one group that the last one names first.
std::vector<Group> groups_of(int rank) {
  const int row = rank / 2, column = rank % 2;
  std::vector<Group> groups = {
      {fmt::format("row {}", row), {2 * row, 2 * row + 1}, column},
      {fmt::format("column {}", column), {column, column + 2}, row},
  };
  groups.insert(rank == 3 ? groups.begin() : groups.end(), {"all", {0, 1, 2, 3}, rank});
  return groups;
}

std::vector<std::string> shared(int rank, std::uint16_t port, const std::vector<Group>& groups,
                                const std::string& device) {
  launch::Rendezvous rendezvous(member(rank, 4, "127.0.0.1", port));
  int made = 0;
  const auto make_id = [&] { return fmt::format("id {} of rank {}\n", made++, rank) + '\0'; };
  return share_ids(rank, groups, device, make_id,
                   [&](std::string_view own) { return rendezvous.all_gather(own); });
}

}  // namespace

TEST_CASE("each group has the id that its first rank made", "[executor][device]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    const std::vector<Group> groups = groups_of(rank);
    const auto ids = shared(rank, port, groups, fmt::format("GPU-{}", rank));
    std::string text;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (ids[g].back() != '\0') return std::string("an id was cut");
      text += fmt::format("{}: {}", groups[g].name, ids[g].substr(0, ids[g].size() - 2)) + "; ";
    }
    return text;
  });
  CHECK(said[0] == "row 0: id 0 of rank 0; column 0: id 1 of rank 0; all: id 2 of rank 0; ");
  CHECK(said[1] == "row 0: id 0 of rank 0; column 1: id 0 of rank 1; all: id 2 of rank 0; ");
  CHECK(said[2] == "row 1: id 0 of rank 2; column 0: id 1 of rank 0; all: id 2 of rank 0; ");
  CHECK(said[3] == "all: id 2 of rank 0; row 1: id 0 of rank 2; column 1: id 0 of rank 1; ");
}

TEST_CASE("two ranks of a group on one GPU are named", "[executor][device]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    shared(rank, port, groups_of(rank), rank == 2 ? "GPU-0" : fmt::format("GPU-{}", rank));
    return std::string("met");
  });
  CHECK(said[0].find("ranks 0 and 2 are both on GPU GPU-0, and meet in group 'column 0'") == 0);
  for (const std::string& text : said) CHECK(text.find("ranks 0 and 2 are both on GPU GPU-0") == 0);
}

TEST_CASE("ranks of hosts that NCCL tells apart may share a GPU", "[executor][device]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    const std::string alone = with_nccl_host("GPU-0");
    setenv("NCCL_HOSTID", fmt::format("rank{}", rank).c_str(), 1);
    shared(rank, port, groups_of(rank), with_nccl_host("GPU-0"));
    return alone + ", " + with_nccl_host("GPU-0");
  });
  CHECK(said[0] == "GPU-0, GPU-0 of host 'rank0'");
  CHECK(said[3] == "GPU-0, GPU-0 of host 'rank3'");
}

TEST_CASE("ranks that don't agree on a group say so", "[executor][device]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    std::vector<Group> groups = groups_of(rank);
    if (rank == 1) groups.pop_back();
    shared(rank, port, groups, "");
    return std::string("met");
  });
  CHECK(said[0].find("rank 1 doesn't know group 'all' as the others do") == 0);
  CHECK(said[1] == "met");
}

}  // namespace orrery::device
