// Rendezvous and mesh between two network namespaces that only a pair of virtual Ethernet devices joins:
// nothing of it can work by loopback.
#include <catch2/catch.hpp>

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "executor/launch/mesh.hpp"
#include "executor/launch/shared_segment.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

using test::comes_true;
using test::member;

struct Stage {
  std::atomic<int> apart;   // How many have a network of their own.
  std::atomic<int> joined;  // How many have their end of the pair.
  std::atomic<int> pid[2];
};

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// "" or why this can't be had here.
std::string own_network(Stage& stage, int host) {
  stage.pid[host] = getpid();
  const bool unshared = unshare(CLONE_NEWNET) == 0;
  ++stage.apart;
  if (!unshared) return "skipped: no network namespace without root";
  comes_true([&] { return stage.apart == 2; });
  const std::string own = host == 0 ? "orrery0" : "orrery1";
  if (host == 0) {
    const bool made = shell(
        fmt::format("ip link add name orrery0 type veth peer name orrery1 netns {}", stage.pid[1].load()));
    stage.joined = made ? 1 : -1;
  }
  comes_true([&] { return stage.joined != 0; });
  if (stage.joined < 0) return "skipped: no veth pair (needs iproute2 and the kernel's veth)";
  const bool up = shell("ip link set lo up") &&
                  shell(fmt::format("ip addr add 10.77.0.{}/24 dev {}", host + 1, own)) &&
                  shell(fmt::format("ip -6 addr add fd77::{}/64 dev {} nodad", host + 1, own)) &&
                  shell(fmt::format("ip link set {} up", own));
  return up ? "" : "skipped: no addresses in the namespace";
}

// Ranks 0 and 2 on one host, 1 and 3 on the other: what two processes with two forked ranks each are.
std::string rank_work(int rank, const std::string& coordinator) {
  Rendezvous rendezvous(member(rank, 4, coordinator, 4000));
  std::string text;
  for (const std::string& one : rendezvous.all_gather(std::to_string(rank))) text += one;
  Mesh mesh = connect_mesh(rendezvous);
  for (int step = 1; step < 4; ++step) {
    const int to = (rank + step) % 4, from = (rank + 4 - step) % 4;
    std::vector<std::byte> sent(1 << 20, static_cast<std::byte>(rank)), received(1 << 20);
    mesh.exchange(to, sent, from, received);
    const bool all =
        std::ranges::all_of(received, [&](std::byte b) { return b == static_cast<std::byte>(from); });
    text += all ? fmt::format(" {}", from) : " wrong";
  }
  rendezvous.barrier();
  return text;
}

}  // namespace

TEST_CASE("ranks meet between two network namespaces", "[launch]") {
  const std::string coordinator = GENERATE("10.77.0.1", "fd77::1");
  const SharedSegment memory = SharedSegment::anonymous(sizeof(Stage));
  Stage& stage = *reinterpret_cast<Stage*>(memory.bytes().data());
  const auto said = test::in_processes(2, [&](int host) -> std::string {
    if (const std::string why = own_network(stage, host); !why.empty()) return why;
    std::string text;
    for (const std::string& one :
         test::in_processes(2, [&](int local) { return rank_work(host + 2 * local, coordinator); })) {
      text += one + "; ";
    }
    return text;
  });
  if (said[0].starts_with("skipped") || said[1].starts_with("skipped")) {
    std::cout << (said[0].starts_with("skipped") ? said[0] : said[1]) << "\n";
    return;
  }
  // Step s brings rank r what rank r − s (mod 4) sent.
  CHECK(said[0] == "0123 3 2 1; 0123 1 0 3; ");
  CHECK(said[1] == "0123 0 3 2; 0123 2 1 0; ");
}

}  // namespace orrery::launch
