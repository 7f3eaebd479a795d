#include "executor/launch/mesh.hpp"

#include <poll.h>

#include <algorithm>
#include <cassert>

#include "base/error.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMagic = 0x4853454d'524f2121;  // "!!ORMESH" as bytes on the wire.
constexpr std::size_t kMostHelloBytes = 4096;
constexpr auto kHello = 5s;
constexpr int kTurn_ms = 20;

// What every rank tells the others before they connect.
struct Place {
  std::string address;  // Empty: where rank 0 is.
  std::uint16_t port = 0;
  std::vector<bool> wants;  // By rank.
};

std::string to_bytes(const Place& place) {
  Writer writer;
  writer.text(place.address);
  writer.number(place.port);
  for (const bool wanted : place.wants) writer.number(wanted);
  return writer.bytes();
}

Place place_from(const std::string& bytes, int world_size) {
  Reader reader(bytes);
  Place place;
  place.address = reader.text();
  place.port = static_cast<std::uint16_t>(reader.number());
  for (int rank = 0; rank < world_size; ++rank) place.wants.push_back(reader.number() != 0);
  return place;
}

std::vector<bool> wanted_ranks(const MeshOptions& options, int rank, int world_size) {
  std::vector<bool> wants(static_cast<std::size_t>(world_size), !options.peers.has_value());
  for (const int peer : options.peers.value_or(std::vector<int>{})) {
    assert(peer >= 0 && peer < world_size);
    wants[static_cast<std::size_t>(peer)] = true;
  }
  wants[static_cast<std::size_t>(rank)] = false;
  return wants;
}

std::string hello_bytes(const std::string& job_id, int from, int to) {
  Writer writer;
  writer.number(kMagic);
  writer.text(job_id);
  writer.number(from);
  writer.number(to);
  return writer.bytes();
}

struct Guest {
  Connection connection;
  Inbox inbox;
  Deadline deadline;
};

// The rank that this connection is from; −1: a stranger, or nobody who was expected.
int rank_of(const std::string& hello, const std::string& job_id, int own_rank,
            const std::vector<int>& expected) {
  for (const int rank : expected) {
    if (hello == hello_bytes(job_id, rank, own_rank)) return rank;
  }
  return -1;
}

// Takes in the connections of `expected`, which becomes empty or those who haven't come by the deadline.
void accept_ranks(Listener& listener, const std::string& job_id, int own_rank, Deadline deadline,
                  std::vector<int>& expected, std::vector<Connection>& connections) {
  std::vector<Guest> guests;
  while (!expected.empty() && std::chrono::steady_clock::now() < deadline) {
    std::vector<pollfd> fds = {{listener.socket.get(), POLLIN, 0}};
    for (const Guest& guest : guests) fds.push_back({guest.connection.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), kTurn_ms);
    keep_waiting();
    for (Connection next = listener.accept(); next.valid(); next = listener.accept()) {
      guests.push_back({std::move(next), {}, after(kHello)});
    }
    std::erase_if(guests, [&](Guest& guest) {
      std::string hello;
      const Inbox::State state = guest.inbox.read(guest.connection, kMostHelloBytes, hello);
      if (state == Inbox::State::kMore) return std::chrono::steady_clock::now() >= guest.deadline;
      const int rank = state == Inbox::State::kWhole ? rank_of(hello, job_id, own_rank, expected) : -1;
      if (rank < 0) return true;
      connections[static_cast<std::size_t>(rank)] = std::move(guest.connection);
      std::erase(expected, rank);
      return true;
    });
  }
}

Connection connect_rank(const Place& place, const std::string& host, const std::string& job_id, int own_rank,
                        int rank, Deadline deadline) {
  try {
    Connection connection = connect_to(host, place.port, deadline);
    if (connection.send_message(hello_bytes(job_id, own_rank, rank), deadline) == Moved::kAll)
      return connection;
  } catch (const Error& error) {
    fail(ErrorKind::kRuntime, "rank {} can't connect to rank {}: {}", own_rank, rank, error.what());
  }
  fail(ErrorKind::kRuntime, "rank {} has closed the connection from rank {}", rank, own_rank);
}

[[noreturn]] void fail_closed(int own_rank, int rank) {
  await_run_end(kVerdict);
  fail(ErrorKind::kRuntime, "rank {}: rank {} has closed its connection", own_rank, rank);
}

}  // namespace

Mesh::Mesh(int rank, std::vector<Connection> connections, std::chrono::milliseconds stall)
    : rank_(rank), connections_(std::move(connections)), stall_(stall) {}

bool Mesh::connected(int rank) const { return connections_[static_cast<std::size_t>(rank)].valid(); }

int Mesh::fd(int rank) const { return connections_[static_cast<std::size_t>(rank)].fd(); }

std::size_t Mesh::try_send(int rank, std::span<const std::byte> bytes) {
  assert(connected(rank));
  const std::ptrdiff_t sent = connections_[static_cast<std::size_t>(rank)].try_send(bytes);
  if (sent < 0) fail_closed(rank_, rank);
  return static_cast<std::size_t>(sent);
}

std::size_t Mesh::try_receive(int rank, std::span<std::byte> bytes) {
  assert(connected(rank));
  const std::ptrdiff_t received = connections_[static_cast<std::size_t>(rank)].try_receive(bytes);
  if (received < 0) fail_closed(rank_, rank);
  return static_cast<std::size_t>(received);
}

void Mesh::send(int rank, std::span<const std::byte> bytes) { exchange(rank, bytes, rank, {}); }

void Mesh::receive(int rank, std::span<std::byte> bytes) { exchange(rank, {}, rank, bytes); }

void Mesh::exchange(int to, std::span<const std::byte> sent, int from, std::span<std::byte> received) {
  Deadline deadline = after(stall_);
  while (!sent.empty() || !received.empty()) {
    const std::size_t out = sent.empty() ? 0 : try_send(to, sent);
    const std::size_t in = received.empty() ? 0 : try_receive(from, received);
    sent = sent.subspan(out);
    received = received.subspan(in);
    keep_waiting();
    if (out + in > 0) {
      deadline = after(stall_);
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      fail(ErrorKind::kRuntime, "rank {}: no byte has moved {} rank {} for {} s, {} are missing", rank_,
           received.empty() ? "to" : "from", received.empty() ? to : from,
           static_cast<double>(stall_.count()) / 1000, received.empty() ? sent.size() : received.size());
    }
    // poll leaves out entries with a negative descriptor.
    pollfd fds[2] = {{sent.empty() ? -1 : fd(to), POLLOUT, 0}, {received.empty() ? -1 : fd(from), POLLIN, 0}};
    poll(fds, 2, kTurn_ms);
  }
}

Mesh connect_mesh(Rendezvous& rendezvous, const MeshOptions& options) {
  const int rank = rendezvous.rank();
  const int world_size = rendezvous.world_size();
  const std::string& job_id = rendezvous.membership().job_id;
  const std::string& coordinator = rendezvous.membership().coordinator_host;
  allow_many_files();
  Listener listener = listen_at(is_loopback(coordinator) ? coordinator : "", 0);
  const std::string own_address = rendezvous.own_address();
  Place own = {is_loopback(own_address) ? "" : own_address, listener.port,
               wanted_ranks(options, rank, world_size)};
  const std::vector<std::string> told = rendezvous.all_gather(to_bytes(own));

  // Of two ranks the higher one connects, so that nobody waits in a circle: rank 0 only accepts. Connections
  // to those who listen stand before they are accepted.
  const Deadline deadline = after(options.connect);
  std::vector<Connection> connections(static_cast<std::size_t>(world_size));
  std::vector<int> expected;
  for (int peer = 0; peer < world_size; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    const Place place = place_from(told[at], world_size);
    if (peer == rank || (!own.wants[at] && !place.wants[static_cast<std::size_t>(rank)])) continue;
    if (peer > rank) {
      expected.push_back(peer);
    } else {
      const std::string host = place.address.empty() ? rendezvous.coordinator_address() : place.address;
      connections[at] = connect_rank(place, host, job_id, rank, peer, deadline);
    }
  }
  accept_ranks(listener, job_id, rank, deadline, expected, connections);
  if (!expected.empty()) {
    fail(ErrorKind::kRuntime, "{} {} connected to rank {} within {} s", rank_list(expected),
         expected.size() == 1 ? "hasn't" : "haven't", rank,
         static_cast<double>(options.connect.count()) / 1000);
  }
  return Mesh(rank, std::move(connections), options.stall);
}

}  // namespace orrery::launch
