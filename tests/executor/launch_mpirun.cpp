// Ranks launched by a real mpirun, where there is one: what they read, and that they meet, share memory and
// connect.
#include <catch2/catch.hpp>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "executor/launch/handshake.hpp"
#include "executor/launch/mesh.hpp"
#include "executor/launch/shared_segment.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

struct Said {
  std::string text;
  int status = -1;
};

Said run_shell(const std::string& command) {
  Said said;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return said;
  char piece[4096];
  while (const std::size_t size = fread(piece, 1, sizeof piece, pipe)) said.text.append(piece, size);
  said.status = pclose(pipe);
  return said;
}

std::string own_program() {
  char path[PATH_MAX] = {};
  return readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "";
}

}  // namespace

// Hidden: the test below launches it, three times.
TEST_CASE("a rank that mpirun has launched", "[.launched]") {
  const std::optional<Membership> found = find_membership(process_environment());
  REQUIRE(found);
  Rendezvous rendezvous(*found, {std::chrono::seconds(20), std::chrono::seconds(20)});
  Identity own;
  own.rank = found->rank;
  own.host = host_name();
  own.device = fmt::format("core {}", found->local_rank);
  own.build = build_name();
  own.libraries = own_libraries();
  CHECK(shake_hands(rendezvous, own).size() == 3);
  CHECK(share_on_host(rendezvous, 4096).ranks == std::vector<int>{0, 1, 2});
  Mesh mesh = connect_mesh(rendezvous);
  const auto sent = static_cast<std::byte>(found->rank);
  std::byte received{};
  mesh.exchange((found->rank + 1) % 3, {&sent, 1}, (found->rank + 2) % 3, {&received, 1});
  CHECK(received == static_cast<std::byte>((found->rank + 2) % 3));
  const std::vector<std::string> all =
      rendezvous.all_gather(fmt::format("{}:{} ", found->launched_by, found->rank));
  if (found->rank == 0) std::printf("all met: %s%s%s\n", all[0].c_str(), all[1].c_str(), all[2].c_str());
}

TEST_CASE("ranks launched by mpirun meet", "[launch]") {
  if (run_shell("mpirun --version 2>/dev/null").text.find("Open MPI") == std::string::npos) {
    std::cout << "skipped: no mpirun of Open MPI\n";
    return;
  }
  const Said said = run_shell(fmt::format(
      "env -u RANK -u WORLD_SIZE OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun "
      "--oversubscribe -n 3 {} 'a rank that mpirun has launched' 2>&1",
      own_program()));
  CAPTURE(said.text);
  CHECK(said.status == 0);
  CHECK(said.text.find("all met: Open MPI:0 Open MPI:1 Open MPI:2 ") != std::string::npos);
}

}  // namespace orrery::launch
