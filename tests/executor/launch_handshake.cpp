// Ranks that aren't parts of one run are told apart before they begin.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "executor/launch/handshake.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

std::vector<Identity> alike(int count) {
  std::vector<Identity> identities;
  for (int rank = 0; rank < count; ++rank) {
    Identity one;
    one.rank = rank;
    one.host = rank < 2 ? "a" : "b";
    one.device = fmt::format("core {}", rank % 2);
    one.plan_hash = 1;
    one.program_hash = 2;
    one.build = "0.1.0 (build 3)";
    one.libraries = {{"fmt", "9.1.0"}, {"Eigen", "3.4.0"}};
    identities.push_back(one);
  }
  return identities;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("identities that agree, and what is said of those that don't", "[launch]") {
  CHECK(check_identities(alike(4)).empty());

  std::vector<Identity> ranks = alike(4);
  ranks[2].plan_hash = 0xab;
  CHECK(check_identities(ranks) ==
        Lines{"plan: rank 2 has 00000000000000ab; the others (ranks 0-1, 3) have 0000000000000001"});
  ranks[3].plan_hash = 0xab;  // Two and two: nobody is right.
  CHECK(check_identities(ranks) ==
        Lines{"plan: ranks 0-1 have 0000000000000001, ranks 2-3 have 00000000000000ab"});

  ranks = alike(4);
  ranks[0].program_hash = 7;
  ranks[0].build = "0.1.0 (build 4)";
  ranks[1].libraries["Eigen"] = "3.3.9";
  ranks[3].libraries.erase("fmt");
  CHECK(check_identities(ranks) ==
        Lines{"program: rank 0 has 0000000000000007; the others (ranks 1-3) have 0000000000000002",
              "build: rank 0 has 0.1.0 (build 4); the others (ranks 1-3) have 0.1.0 (build 3)",
              "Eigen: rank 1 has 3.3.9; the others (ranks 0, 2-3) have 3.4.0",
              "fmt: rank 3 has none; the others (ranks 0-2) have 9.1.0"});
}

TEST_CASE("two ranks on one device are refused", "[launch]") {
  std::vector<Identity> ranks = alike(4);
  ranks[3].device = ranks[2].device;
  CHECK(check_identities(ranks) ==
        Lines{"device: core 0 of b is used by ranks 2-3; expected one rank on a device"});
  ranks[2].device = ranks[3].device = "";  // Not bound to any.
  CHECK(check_identities(ranks).empty());
}

TEST_CASE("an identity survives the way to another rank", "[launch]") {
  Identity own = alike(1)[0];
  own.plan_hash = 0xfedcba9876543210;
  own.host = std::string("a\0b", 3);
  const std::string bytes = to_bytes(own);
  const Identity back = identity_from_bytes(bytes);
  CHECK(to_bytes(back) == bytes);
  CHECK(back.plan_hash == own.plan_hash);
  CHECK(back.host == own.host);
  CHECK(back.libraries == own.libraries);
  // The last bytes are those of the second library: "fmt" and "9.1.0" with their lengths, 8 + 3 + 8 + 5 = 24.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    if (size == bytes.size() - 24 || size == bytes.size() - 24 - (8 + 5 + 8 + 5))
      continue;  // Fewer libraries.
    CHECK_THROWS_AS(identity_from_bytes(bytes.substr(0, size)), Error);
  }
}

TEST_CASE("a build and its libraries have names", "[launch]") {
  CHECK(build_name() == build_name());
  CHECK(build_name().find(" (build ") != std::string::npos);
  CHECK(own_libraries().size() == 3);
  CHECK(!host_name().empty());
}

TEST_CASE("all ranks hear of a difference", "[launch]") {
  const std::uint16_t port = test::free_port("127.0.0.1");
  const auto said = test::in_processes(3, [&](int rank) {
    Rendezvous rendezvous(test::member(rank, 3, "127.0.0.1", port));
    Identity own;
    own.rank = rank;
    own.plan_hash = rank == 1 ? 5 : 4;
    return std::to_string(shake_hands(rendezvous, own).size());
  });
  for (const std::string& text : said) {
    CHECK(text ==
          "ranks aren't parts of one run:\n"
          "  plan: rank 1 has 0000000000000005; the others (ranks 0, 2) have 0000000000000004");
  }
}

}  // namespace orrery::launch
