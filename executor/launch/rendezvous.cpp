#include "executor/launch/rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMagic = 0x59524552'524f2121;  // "!!ORRERY" as bytes on the wire.
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kControl = 0, kWatch = 1;

constexpr std::size_t kMostHelloBytes = 4096;
constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;
// Who connects says at once who he is.
constexpr auto kHello = 5s;
// Between rank 0's deadline and the others', so that what rank 0 says arrives before.
constexpr auto kSlack = 5s;
constexpr int kTurn_ms = 20;

struct Hello {
  std::int64_t purpose = kControl;
  std::int64_t rank = 0;
  std::int64_t world_size = 0;
  std::string job_id;
};

std::string to_bytes(const Hello& hello) {
  Writer writer;
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(hello.purpose);
  writer.number(hello.rank);
  writer.number(hello.world_size);
  writer.text(hello.job_id);
  return writer.bytes();
}

// Nothing, with `why` set: a stranger.
std::optional<Hello> hello_from(const std::string& bytes, std::string& why) {
  try {
    Reader reader(bytes);
    why = "not orrery";
    if (reader.number() != kMagic) return std::nullopt;
    const std::int64_t version = reader.number();
    why = fmt::format("speaks version {} of the protocol rather than {}", version, kVersion);
    if (version != kVersion) return std::nullopt;
    Hello hello;
    hello.purpose = reader.number();
    hello.rank = reader.number();
    hello.world_size = reader.number();
    hello.job_id = reader.text();
    return hello;
  } catch (const Error&) {
    why = "not orrery";
    return std::nullopt;
  }
}

// How rank 0 answers a hello: "" is welcome, and how long it still waits for the others.
std::string answer_bytes(const std::string& refusal, std::chrono::milliseconds left) {
  Writer writer;
  writer.text(refusal);
  writer.number(left.count());
  return writer.bytes();
}

std::string seconds(std::chrono::milliseconds duration) {
  return fmt::format("{} s", static_cast<double>(duration.count()) / 1000);
}

std::chrono::milliseconds until(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(left));
}

// Rank 0's door: takes connections in, and sorts ranks from strangers.
class Door {
 public:
  Door(const Membership& membership, std::vector<Connection>& control, std::vector<Connection>& watch,
       Deadline deadline, Listener listener)
      : membership_(membership),
        control_(control),
        watch_(watch),
        deadline_(deadline),
        listener_(std::move(listener)) {
    if (listener_.socket.valid()) return;
    const std::string& host = membership.coordinator_host;
    listener_ = listen_at(is_loopback(host) ? host : "", membership.coordinator_port);
  }

  // Until everybody is here or the deadline; returns who is missing.
  std::vector<int> let_in() {
    while (true) {
      std::vector<int> missing;
      for (int rank = 1; rank < membership_.world_size; ++rank) {
        if (!here(rank)) missing.push_back(rank);
      }
      if (missing.empty() || until(deadline_) == 0ms) return missing;
      turn();
    }
  }

  bool here(int rank) const { return control_[place(rank)].valid() && watch_[place(rank)].valid(); }
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  struct Guest {
    Connection connection;
    Inbox inbox;
    Deadline deadline;
  };

  static std::size_t place(int rank) { return static_cast<std::size_t>(rank); }

  void turn() {
    std::vector<pollfd> fds = {{listener_.socket.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) fds.push_back({guest.connection.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), kTurn_ms);
    keep_waiting();
    for (Connection next = listener_.accept(); next.valid(); next = listener_.accept()) {
      guests_.push_back({std::move(next), {}, after(kHello)});
    }
    std::erase_if(guests_, [this](Guest& guest) { return !waits_on(guest); });
  }

  // False: let in, refused or gone; the guest can be forgotten.
  bool waits_on(Guest& guest) {
    std::string bytes;
    const Inbox::State state = guest.inbox.read(guest.connection, kMostHelloBytes, bytes);
    if (state == Inbox::State::kMore && std::chrono::steady_clock::now() < guest.deadline) return true;
    if (state != Inbox::State::kWhole) {
      note_refused(guest, "not orrery");
      return false;
    }
    std::string why;
    const std::optional<Hello> hello = hello_from(bytes, why);
    if (hello) why = refusal(*hello);
    guest.connection.send_message(answer_bytes(why, until(deadline_)), after(kHello));
    if (why.empty()) {
      seat(*hello) = std::move(guest.connection);
    } else {
      note_refused(guest, why);
    }
    return false;
  }

  Connection& seat(const Hello& hello) {
    return (hello.purpose == kControl ? control_ : watch_)[static_cast<std::size_t>(hello.rank)];
  }

  std::string refusal(const Hello& hello) {
    if (hello.job_id != membership_.job_id) return fmt::format("is of another run, \"{}\"", hello.job_id);
    if (hello.world_size != membership_.world_size) {
      return fmt::format("has a world size of {} rather than {}", hello.world_size, membership_.world_size);
    }
    if (hello.rank < 1 || hello.rank >= membership_.world_size || hello.purpose < kControl ||
        hello.purpose > kWatch) {
      return fmt::format("says it is rank {}, which can't come to rank 0 of {}", hello.rank,
                         membership_.world_size);
    }
    if (seat(hello).valid()) {
      return fmt::format("says it is rank {}, which has come already from {}", hello.rank,
                         seat(hello).peer_address());
    }
    return "";
  }

  void note_refused(const Guest& guest, const std::string& why) {
    constexpr std::size_t kMost = 5;
    if (refused_.size() < kMost)
      refused_.push_back(fmt::format("{} {}", guest.connection.peer_address(), why));
  }

  const Membership& membership_;
  std::vector<Connection>& control_;
  std::vector<Connection>& watch_;
  Deadline deadline_;
  Listener listener_;
  std::vector<Guest> guests_;
  std::vector<std::string> refused_;
};

// What rank 0 says to all: an error, or the texts of all ranks.
std::string outcome_bytes(const std::string& fault, const std::vector<std::string>& texts) {
  Writer writer;
  writer.text(fault);
  for (const std::string& text : texts) writer.text(text);
  return writer.bytes();
}

}  // namespace

Rendezvous::Rendezvous(const Membership& membership, const RendezvousOptions& options, Listener listener)
    : membership_(membership), options_(options) {
  if (membership.rank == 0) {
    control_.resize(static_cast<std::size_t>(membership.world_size));
    watch_.resize(static_cast<std::size_t>(membership.world_size));
    if (membership.world_size > 1) welcome_all(std::move(listener));
  } else {
    come();
  }
}

void Rendezvous::welcome_all(Listener listener) {
  allow_many_files();
  Door door(membership_, control_, watch_, after(options_.arrival), std::move(listener));
  const std::vector<int> missing = door.let_in();
  if (!missing.empty()) {
    std::vector<int> here;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (rank == 0 || door.here(rank)) here.push_back(rank);
    }
    const bool one = missing.size() == 1;
    std::string why =
        fmt::format("{} {} come within {}; {} {} here", rank_list(missing), one ? "hasn't" : "haven't",
                    seconds(options_.arrival), rank_list(here), here.size() == 1 ? "is" : "are");
    if (!door.refused().empty()) why += fmt::format("; refused: {}", fmt::join(door.refused(), "; "));
    fail_everywhere(why);
  }
  answer_others(outcome_bytes("", {}), after(options_.exchange));
}

Connection Rendezvous::introduce(std::int64_t purpose, Deadline deadline, std::chrono::milliseconds& left) {
  const Membership& me = membership_;
  Connection connection = connect_to(me.coordinator_host, me.coordinator_port, deadline);
  const Hello hello = {purpose, me.rank, me.world_size, me.job_id};
  std::string answer;
  if (connection.send_message(to_bytes(hello), deadline) != Moved::kAll ||
      connection.receive_message(answer, kMostHelloBytes, std::max(deadline, after(kSlack))) != Moved::kAll) {
    fail(ErrorKind::kRuntime, "whoever listens at {} port {} didn't answer as rank 0 of this run would",
         me.coordinator_host, me.coordinator_port);
  }
  Reader reader(answer);
  const std::string refusal = reader.text();
  left = std::chrono::milliseconds(reader.number());
  if (refusal.empty()) return connection;
  fail(ErrorKind::kRuntime, "rank 0 at {} port {} has refused rank {}: it {}", me.coordinator_host,
       me.coordinator_port, me.rank, refusal);
}

void Rendezvous::come() {
  const Deadline deadline = after(options_.arrival);
  std::chrono::milliseconds left{};
  try {
    control_.push_back(introduce(kControl, deadline, left));
    watch_.push_back(introduce(kWatch, deadline, left));
  } catch (const Error& error) {
    fail(ErrorKind::kRuntime, "rank {} hasn't met rank 0 within {}: {}", rank(), seconds(options_.arrival),
         error.what());
  }
  std::string outcome;
  const Moved moved = control_[0].receive_message(outcome, kMostTextBytes, after(left + kSlack));
  if (moved == Moved::kClosed) fail(ErrorKind::kRuntime, "rank 0 has gone while ranks were still coming");
  if (moved == Moved::kTimeout)
    fail(ErrorKind::kRuntime, "rank 0 hasn't said in time that all ranks have come");
  const std::string fault = Reader(outcome).text();
  if (!fault.empty()) throw Error(ErrorKind::kRuntime, fault);
}

std::vector<std::string> Rendezvous::all_gather(std::string_view own) {
  if (own.size() > kMostTextBytes)
    fail(ErrorKind::kRuntime, "{} bytes are too many for an exchange", own.size());
  ++exchanges_;
  return rank() == 0 ? gather_as_first(own) : gather_as_other(own);
}

std::vector<std::string> Rendezvous::gather_as_first(std::string_view own) {
  const auto count = static_cast<std::size_t>(world_size());
  const Deadline deadline = after(options_.exchange);
  std::vector<std::string> texts(count);
  std::vector<Inbox> inboxes(count);
  std::vector<int> missing;
  texts[0] = own;
  for (int rank = 1; rank < world_size(); ++rank) missing.push_back(rank);
  while (true) {
    std::vector<pollfd> fds;
    std::vector<int> still_missing;
    for (const int rank : missing) {
      const auto at = static_cast<std::size_t>(rank);
      std::string message;
      const Inbox::State state = inboxes[at].read(control_[at], kMostTextBytes + 64, message);
      if (state == Inbox::State::kClosed) {
        await_run_end(kVerdict);
        fail_everywhere(fmt::format("rank {} has gone", rank));
      }
      if (state == Inbox::State::kMore) {
        still_missing.push_back(rank);
        fds.push_back({control_[at].fd(), POLLIN, 0});
        continue;
      }
      Reader reader(message);
      const std::int64_t exchange = reader.number();
      if (exchange != exchanges_) {
        fail_everywhere(
            fmt::format("rank {} is at exchange {}, rank 0 at {}: all ranks have to call the same ones", rank,
                        exchange, exchanges_));
      }
      texts[at] = reader.text();
    }
    missing = std::move(still_missing);
    if (missing.empty()) break;
    if (until(deadline) == 0ms) {
      fail_everywhere(fmt::format("{} {} taken part in an exchange within {}; the others have",
                                  rank_list(missing), missing.size() == 1 ? "hasn't" : "haven't",
                                  seconds(options_.exchange)));
    }
    poll(fds.data(), fds.size(), kTurn_ms);
    keep_waiting();
  }
  answer_others(outcome_bytes("", texts), deadline + kSlack);
  return texts;
}

std::vector<std::string> Rendezvous::gather_as_other(std::string_view own) {
  Writer writer;
  writer.number(exchanges_);
  writer.text(own);
  const Deadline deadline = after(2 * options_.exchange + kSlack);
  std::string outcome;
  // Where rank 0 has refused to go on it has said so before it went, and its word can still be read.
  control_[0].send_message(writer.bytes(), deadline);
  const std::size_t most_bytes = static_cast<std::size_t>(world_size()) * (kMostTextBytes + 8) + 4096;
  const Moved moved = control_[0].receive_message(outcome, most_bytes, deadline);
  if (moved == Moved::kClosed) {
    await_run_end(kVerdict);
    fail(ErrorKind::kRuntime, "rank 0 has gone");
  }
  if (moved == Moved::kTimeout) {
    fail(ErrorKind::kRuntime, "rank 0 hasn't taken part in an exchange within {}",
         seconds(2 * options_.exchange));
  }
  Reader reader(outcome);
  const std::string fault = reader.text();
  if (!fault.empty()) throw Error(ErrorKind::kRuntime, fault);
  std::vector<std::string> texts(static_cast<std::size_t>(world_size()));
  for (std::string& text : texts) text = reader.text();
  return texts;
}

void Rendezvous::answer_others(const std::string& answer, Deadline deadline) {
  for (int rank = 1; rank < world_size(); ++rank) {
    const Moved moved = control_[static_cast<std::size_t>(rank)].send_message(answer, deadline);
    if (moved == Moved::kAll) continue;
    await_run_end(kVerdict);
    fail_everywhere(
        fmt::format("rank {} {}", rank, moved == Moved::kClosed ? "has gone" : "doesn't read any more"));
  }
}

void Rendezvous::fail_everywhere(const std::string& why) {
  for (int rank = 1; rank < world_size(); ++rank) {
    Connection& connection = control_[static_cast<std::size_t>(rank)];
    if (!connection.valid()) continue;
    connection.send_message(outcome_bytes(why, {}), after(0ms));
    // Closing with something unread would take the message from the other end again.
    std::array<std::byte, 4096> unread;
    while (connection.try_receive(unread) > 0) {
    }
  }
  throw Error(ErrorKind::kRuntime, why);
}

std::string Rendezvous::own_address() const { return rank() == 0 ? "" : control_[0].local_address(); }

std::string Rendezvous::coordinator_address() const { return rank() == 0 ? "" : control_[0].peer_address(); }

}  // namespace orrery::launch
