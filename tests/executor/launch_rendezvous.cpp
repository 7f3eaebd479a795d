// Processes on this host's loopback that meet, exchange texts and connect to each other.
#include <catch2/catch.hpp>

#include <poll.h>

#include <iostream>

#include "executor/launch/mesh.hpp"
#include "executor/launch/wire.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;
using test::free_port;
using test::in_processes;
using test::member;

RendezvousOptions brief(std::chrono::milliseconds arrival) { return {arrival, 5s}; }

std::vector<std::byte> pattern(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at < size; ++at)
    bytes[at] = static_cast<std::byte>(at * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

// Every rank sends every other one its own bytes and checks what it gets: "" or what is wrong.
std::string all_to_all(Mesh& mesh, int rank, int count, std::size_t size) {
  for (int step = 1; step < count; ++step) {
    const int to = (rank + step) % count, from = (rank + count - step) % count;
    std::vector<std::byte> received(size);
    mesh.exchange(to, pattern(size, rank), from, received);
    if (received != pattern(size, from)) return fmt::format("rank {} got something else from {}", rank, from);
  }
  return "";
}

}  // namespace

TEST_CASE("four processes meet and exchange", "[launch]") {
  const std::string host = GENERATE("127.0.0.1", "localhost");
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    // The others come first: they try again until rank 0 listens.
    if (rank == 0) std::this_thread::sleep_for(100ms);
    Rendezvous rendezvous(member(rank, 4, host, port));
    std::string text;
    for (int round = 0; round < 3; ++round) {
      for (const std::string& one : rendezvous.all_gather(fmt::format("{}/{} ", rank, round))) text += one;
      rendezvous.barrier();
    }
    const std::string large(1 << 20, static_cast<char>('a' + rank));
    for (const std::string& one : rendezvous.all_gather(large))
      text += fmt::format("{}{}", one.size(), one.back());
    return text;
  });
  for (const std::string& text : said) {
    CHECK(text == "0/0 1/0 2/0 3/0 0/1 1/1 2/1 3/1 0/2 1/2 2/2 3/2 1048576a1048576b1048576c1048576d");
  }
}

TEST_CASE("a rank alone meets itself", "[launch]") {
  Rendezvous rendezvous(member(0, 1, "127.0.0.1", 1));
  CHECK(rendezvous.all_gather("x") == std::vector<std::string>{"x"});
}

TEST_CASE("who hasn't come is named on all ranks", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(3, [&](int rank) {
    Rendezvous rendezvous(member(rank, 4, "127.0.0.1", port), brief(500ms));
    return std::string("met");
  });
  for (const std::string& text : said) CHECK(text == "rank 3 hasn't come within 0.5 s; ranks 0-2 are here");
}

TEST_CASE("where rank 0 doesn't come, that is what is said", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(1, [&](int) {
    Rendezvous rendezvous(member(1, 2, "127.0.0.1", port), brief(200ms));
    return std::string("met");
  });
  CHECK(said[0] == fmt::format("rank 1 hasn't met rank 0 within 0.2 s: 127.0.0.1 port {} can't be reached: "
                               "Connection refused",
                               port));
}

TEST_CASE("strangers are refused and ranks come all the same", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(5, [&](int process) -> std::string {
    if (process == 2) {  // Of another run.
      Membership other = member(1, 2, "127.0.0.1", port);
      other.job_id = "another";
      Rendezvous rendezvous(other, brief(2s));
      return "met";
    }
    if (process == 3 || process == 4) {  // Not of ours at all; one says nothing.
      Connection connection = connect_to("127.0.0.1", port, after(2s));
      if (process == 4) return std::to_string(wait_for(connection.fd(), POLLIN, after(10s)));
      connection.send(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n", 18)), after(1s));
      std::byte answer{};
      return connection.receive({&answer, 1}, after(5s)) == Moved::kClosed ? "closed" : "answered";
    }
    if (process == 1) std::this_thread::sleep_for(500ms);
    Rendezvous rendezvous(member(process, 2, "127.0.0.1", port));
    rendezvous.barrier();
    return "met";
  });
  CHECK(said[0] == "met");
  CHECK(said[1] == "met");
  CHECK(said[2] ==
        fmt::format("rank 1 hasn't met rank 0 within 2 s: rank 0 at 127.0.0.1 port {} has refused rank 1: it "
                    "is of another run, \"another\"",
                    port));
  CHECK(said[3] == "closed");
}

TEST_CASE("a world of another size is refused and stands in the message", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(2, [&](int rank) {
    Rendezvous rendezvous(member(rank, 2 + rank, "127.0.0.1", port), brief(500ms));
    return std::string("met");
  });
  CHECK(said[0] ==
        "rank 1 hasn't come within 0.5 s; rank 0 is here; refused: 127.0.0.1 has a world size of 3 rather "
        "than 2");
  CHECK(said[1].find("has a world size of 3 rather than 2") != std::string::npos);
}

TEST_CASE("ranks that go or don't take part are named on all others", "[launch]") {
  const bool goes = GENERATE(true, false);
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    Rendezvous rendezvous(member(rank, 4, "127.0.0.1", port), {5s, 500ms});
    if (rank == 2 && goes) return std::string("gone");
    if (rank == 2) std::this_thread::sleep_for(1500ms);
    if (rank != 2) rendezvous.barrier();
    return std::string("done");
  });
  const std::string expected =
      goes ? "rank 2 has gone" : "rank 2 hasn't taken part in an exchange within 0.5 s; the others have";
  for (const int rank : {0, 1, 3}) CHECK(said[static_cast<std::size_t>(rank)] == expected);
}

TEST_CASE("the ranks of a mesh send each other what doesn't fit into buffers", "[launch]") {
  const std::string host = GENERATE("127.0.0.1", "::1");
  try {
    Listener tried = listen_at(host, 0);
  } catch (const Error& error) {
    std::cout << "skipped: " << error.what() << "\n";
    return;
  }
  const std::uint16_t port = free_port(host);
  const auto said = in_processes(4, [&](int rank) {
    Rendezvous rendezvous(member(rank, 4, host, port));
    Mesh mesh = connect_mesh(rendezvous);
    std::string wrong = all_to_all(mesh, rank, 4, std::size_t{8} << 20);
    // Order and pieces: three sends, read as two.
    if (rank == 0) {
      for (const int seed : {1, 2, 3}) mesh.send(3, pattern(10, seed));
    }
    if (rank == 3) {
      std::vector<std::byte> received(30);
      std::size_t have = 0;
      while (have < 15) have += mesh.try_receive(0, std::span(received).subspan(have, 15 - have));
      mesh.receive(0, std::span(received).subspan(15));
      for (std::size_t at = 0; at < 30; ++at) {
        if (received[at] != pattern(10, static_cast<int>(at / 10) + 1)[at % 10]) wrong += "out of order";
      }
    }
    rendezvous.barrier();
    return wrong;
  });
  for (const std::string& text : said) CHECK(text == "");
}

TEST_CASE("a mesh has the connections that were asked for", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(4, [&](int rank) {
    Rendezvous rendezvous(member(rank, 4, "127.0.0.1", port));
    MeshOptions options;
    options.peers = std::vector<int>{(rank + 1) % 4};  // A ring: the neighbours on both sides.
    Mesh mesh = connect_mesh(rendezvous, options);
    std::string text;
    for (int peer = 0; peer < 4; ++peer) text += mesh.connected(peer) ? '1' : '0';
    return text;
  });
  CHECK(said == std::vector<std::string>{"0101", "1010", "0101", "1010"});
}

TEST_CASE("a mesh names who is silent and who has gone", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(3, [&](int rank) -> std::string {
    Rendezvous rendezvous(member(rank, 3, "127.0.0.1", port));
    MeshOptions options;
    options.stall = 300ms;
    Mesh mesh = connect_mesh(rendezvous, options);
    rendezvous.barrier();
    std::byte byte{};
    if (rank == 2) return "";
    if (rank == 0) mesh.receive(2, {&byte, 1});
    mesh.receive(0, {&byte, 1});
    return "";
  });
  CHECK(said[0] == "rank 0: rank 2 has closed its connection");
  const bool gone = said[1] == "rank 1: rank 0 has closed its connection";
  CHECK(gone);
}

TEST_CASE("a silent rank of a mesh is named with what is missing", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(2, [&](int rank) -> std::string {
    Rendezvous rendezvous(member(rank, 2, "127.0.0.1", port));
    MeshOptions options;
    options.stall = 300ms;
    Mesh mesh = connect_mesh(rendezvous, options);
    std::vector<std::byte> bytes(10);
    if (rank == 1) {
      mesh.send(0, std::span(bytes).first(4));
      std::this_thread::sleep_for(1s);
      return "";
    }
    mesh.receive(1, bytes);
    return "";
  });
  CHECK(said[0] == "rank 0: no byte has moved from rank 1 for 0.3 s, 6 are missing");
}

TEST_CASE("what is announced as too long counts as closed", "[launch]") {
  Listener listener = listen_at("127.0.0.1", 0);
  Connection one = connect_to("127.0.0.1", listener.port, after(2s));
  Connection other = listener.accept();
  std::string message;
  CHECK(one.send_message("short", after(1s)) == Moved::kAll);
  CHECK(other.receive_message(message, 5, after(1s)) == Moved::kAll);
  CHECK(message == "short");
  CHECK(other.receive_message(message, 5, after(50ms)) == Moved::kTimeout);
  CHECK(one.send_message("longer", after(1s)) == Moved::kAll);
  CHECK(other.receive_message(message, 5, after(1s)) == Moved::kClosed);
}

TEST_CASE("lists of ranks read well", "[launch]") {
  CHECK(rank_list({3}) == "rank 3");
  CHECK(rank_list({0, 1, 2, 5}) == "ranks 0-2, 5");
  CHECK(rank_list({1, 3}) == "ranks 1, 3");
}

}  // namespace orrery::launch
