#include "executor/launch/watchdog.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <thread>
#include <tuple>

#include "base/error.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace {

constexpr std::int64_t kTable = 0, kEnd = 1, kDone = 2;
constexpr std::size_t kMostMessageBytes = std::size_t{64} << 20;
// For the last words of a process that goes.
constexpr std::chrono::milliseconds kFarewell{1000};

std::int64_t ns(std::chrono::milliseconds duration) { return std::chrono::nanoseconds(duration).count(); }

std::string seconds(std::int64_t duration_ns) {
  return fmt::format("{:.1f} s", static_cast<double>(duration_ns) / 1e9);
}

bool counts(const RankStatus& status) { return status.state == RankState::kRunning && status.step >= 0; }

void write_entry(Writer& writer, const RankStatus& status, int rank, std::int64_t now_ns) {
  writer.number(rank);
  writer.number(static_cast<std::int64_t>(status.state.load()));
  writer.number(status.step);
  writer.number(status.instruction);
  writer.number(now_ns - status.moved_ns);
  writer.number(now_ns - status.heartbeat_ns);
}

// Takes over what is told of ranks on other hosts; those of this one write into the page themselves.
void read_entry(Reader& reader, const StatusPage& page, std::int64_t now_ns) {
  const std::int64_t rank = reader.number();
  const std::int64_t state = reader.number();
  const std::int64_t step = reader.number();
  const std::int64_t instruction = reader.number();
  const std::int64_t moved_ns = now_ns - reader.number();
  const std::int64_t heartbeat_ns = now_ns - reader.number();
  if (rank < 0 || rank >= page.world_size()) fail(ErrorKind::kRuntime, "a heart-beat of rank {}", rank);
  RankStatus& status = page.rank(static_cast<int>(rank));
  if (status.pid != 0 || state == static_cast<std::int64_t>(RankState::kAbsent)) return;
  status.step = step;
  status.instruction = static_cast<std::int32_t>(instruction);
  status.moved_ns = moved_ns;
  status.heartbeat_ns = heartbeat_ns;
  status.state =
      state == static_cast<std::int64_t>(RankState::kDone) ? RankState::kDone : RankState::kRunning;
}

// One connection of the watchdog's: to rank 0, or on rank 0 to one of the others.
struct Peer {
  int rank = 0;
  Connection connection;
  Inbox inbox;
  std::string unsent;
  std::int64_t heard_ns = 0;
  bool done = false;

  void say(const Writer& message) {
    Writer framed;
    framed.text(message.bytes());
    unsent += framed.bytes();
  }

  void flush() {
    if (!connection.valid() || unsent.empty()) return;
    const std::ptrdiff_t sent = connection.try_send(std::as_bytes(std::span(unsent)));
    // A connection that has closed is found where it is read.
    if (sent > 0) unsent.erase(0, static_cast<std::size_t>(sent));
  }
};

}  // namespace

std::optional<RunEnd> find_gone(const StatusPage& page, const WatchdogOptions& options) {
  const std::int64_t own_space = own_pid_space();
  for (int rank = 0; rank < page.world_size(); ++rank) {
    const RankStatus& status = page.rank(rank);
    if (status.state != RankState::kRunning || status.pid == 0 || status.pid_space != own_space) continue;
    if (process_start(status.pid) == status.pid_start) continue;
    if (status.state != RankState::kRunning) continue;  // Done in between.
    return RunEnd{rank, fmt::format("rank {} has gone: its process {} ended {}", rank, status.pid.load(),
                                    where_is(status, rank, options.instruction_name))};
  }
  return std::nullopt;
}

std::optional<RunEnd> find_stuck(const StatusPage& page, std::int64_t now_ns, std::int64_t heard_ns,
                                 const WatchdogOptions& options) {
  const std::int64_t limit_ns = ns(options.limit);
  int oldest = -1, last = -1;
  std::int64_t oldest_age_ns = -1, least_still_ns = INT64_MAX;
  std::tuple<std::int64_t, std::int32_t> last_place;
  for (int rank = 0; rank < page.world_size(); ++rank) {
    const RankStatus& status = page.rank(rank);
    if (!counts(status)) {
      // Still loading or something of the kind: the others may wait for it.
      if (status.state == RankState::kRunning) least_still_ns = 0;
      continue;
    }
    const std::int64_t until_ns = status.pid != 0 ? now_ns : heard_ns;
    const std::int64_t age_ns = until_ns - status.heartbeat_ns;
    if (age_ns > oldest_age_ns) std::tie(oldest, oldest_age_ns) = std::tie(rank, age_ns);
    least_still_ns = std::min(least_still_ns, until_ns - status.moved_ns);
    const std::tuple<std::int64_t, std::int32_t> place = {status.step, status.instruction};
    if (last < 0 || place < last_place) std::tie(last, last_place) = std::tie(rank, place);
  }
  const auto where = [&](int rank) { return where_is(page.rank(rank), rank, options.instruction_name); };
  const bool none_moves = last >= 0 && least_still_ns > limit_ns;
  // A rank that waits has a heart-beat many times a second: where none moves, one without it for half of the
  // limit is whom the others wait for.
  if (oldest_age_ns > (none_moves ? limit_ns / 2 : limit_ns)) {
    return RunEnd{oldest, fmt::format("rank {} is stuck {}: no sign of life for {}, the limit is {}", oldest,
                                      where(oldest), seconds(oldest_age_ns), seconds(limit_ns))};
  }
  if (none_moves) {
    return RunEnd{
        last, fmt::format("all ranks wait and none has moved for {}, the limit is {}: rank {} is furthest "
                          "behind, {}",
                          seconds(least_still_ns), seconds(limit_ns), last, where(last))};
  }
  return std::nullopt;
}

struct Watchdog::State {
  State(const StatusPage& status_page, int own_rank, WatchdogOptions given)
      : page(status_page), rank(own_rank), options(std::move(given)) {}

  const StatusPage& page;
  int rank;
  WatchdogOptions options;
  std::vector<Peer> peers;
  FileDescriptor stop{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int exceptions = std::uncaught_exceptions();
  bool told = false;          // The run's end, to the peers.
  std::int64_t ended_ns = 0;  // When the run's end was seen here.
  std::thread thread;

  void run();
  void wait();
  void listen(std::int64_t now_ns);
  void take(Peer& peer, const std::string& message, std::int64_t now_ns);
  void judge(std::int64_t now_ns);
  void tell(std::int64_t now_ns);
  void say_farewell();
  void leave_by_force();
  bool stopped() const;
};

bool Watchdog::State::stopped() const {
  pollfd one = {stop.get(), POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

void Watchdog::State::wait() {
  std::vector<pollfd> fds = {{stop.get(), POLLIN, 0}};
  for (const Peer& peer : peers) {
    // poll leaves out entries with a negative descriptor.
    fds.push_back(
        {peer.connection.fd(), static_cast<short>(peer.unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  }
  poll(fds.data(), fds.size(), static_cast<int>(options.interval.count()));
}

void Watchdog::State::run() {
  std::int64_t next_beat_ns = 0;
  while (!stopped()) {
    const std::int64_t now_ns = monotonic_ns();
    listen(now_ns);
    const bool beats = now_ns >= next_beat_ns;
    if (beats) next_beat_ns = now_ns + ns(options.interval);
    if (beats && !run_end(page)) judge(now_ns);
    if (run_end(page) && ended_ns == 0) ended_ns = now_ns;
    if (ended_ns != 0 && options.exit_after.count() > 0 && now_ns - ended_ns > ns(options.exit_after))
      leave_by_force();
    if (beats || (ended_ns != 0 && !told)) tell(now_ns);
    wait();
  }
  say_farewell();
}

void Watchdog::State::listen(std::int64_t now_ns) {
  for (Peer& peer : peers) {
    std::string message;
    while (peer.connection.valid()) {
      const Inbox::State state = peer.inbox.read(peer.connection, kMostMessageBytes, message);
      if (state == Inbox::State::kMore) break;
      if (state == Inbox::State::kWhole) {
        take(peer, message, now_ns);
        continue;
      }
      peer.connection.close();
      if (peer.done) continue;
      const std::string where = where_is(page.rank(peer.rank), peer.rank, options.instruction_name);
      end_run(page, {peer.rank, fmt::format("rank {} has gone: its connection closed {}", peer.rank, where)});
    }
  }
}

void Watchdog::State::take(Peer& peer, const std::string& message, std::int64_t now_ns) {
  peer.heard_ns = now_ns;
  try {
    Reader reader(message);
    const std::int64_t kind = reader.number();
    if (kind == kDone) peer.done = true;
    if (kind == kEnd) {
      const auto culprit = static_cast<int>(reader.number());
      end_run(page, {culprit, reader.text()});
    }
    while (kind == kTable && !reader.at_end()) read_entry(reader, page, now_ns);
  } catch (const Error& error) {
    end_run(page,
            {peer.rank, fmt::format("rank {} sends heart-beats that aren't: {}", peer.rank, error.what())});
  }
}

void Watchdog::State::judge(std::int64_t now_ns) {
  std::int64_t heard_ns = now_ns;
  for (const Peer& peer : peers) {
    if (rank != 0) heard_ns = peer.heard_ns;
    if (peer.done || now_ns - peer.heard_ns <= ns(options.limit)) continue;
    const std::string where = where_is(page.rank(peer.rank), peer.rank, options.instruction_name);
    end_run(page,
            {peer.rank,
             fmt::format("rank {} hasn't been heard of for {}, the limit is {}; it was last {}", peer.rank,
                         seconds(now_ns - peer.heard_ns), seconds(ns(options.limit)), where)});
  }
  std::optional<RunEnd> fault = find_gone(page, options);
  if (!fault) fault = find_stuck(page, now_ns, heard_ns, options);
  if (fault) end_run(page, *fault);
}

void Watchdog::State::tell(std::int64_t now_ns) {
  Writer table;
  table.number(kTable);
  for (int one = 0; one < page.world_size(); ++one) {
    if (rank == 0 || one == rank) write_entry(table, page.rank(one), one, now_ns);
  }
  const std::optional<RunEnd> end = run_end(page);
  for (Peer& peer : peers) {
    if (peer.unsent.empty())
      peer.say(table);  // Else it is slow, and an old table needn't wait behind an older one.
    if (end && !told) {
      Writer message;
      message.number(kEnd);
      message.number(end->rank);
      message.text(end->message);
      peer.say(message);
    }
    peer.flush();
  }
  told = told || end.has_value();
}

void Watchdog::State::say_farewell() {
  listen(monotonic_ns());
  tell(monotonic_ns());
  Writer done;
  done.number(kDone);
  for (Peer& peer : peers) peer.say(done);
  const Deadline deadline = after(kFarewell);
  const auto waits = [](const Peer& peer) { return peer.connection.valid() && !peer.unsent.empty(); };
  while (std::chrono::steady_clock::now() < deadline) {
    for (Peer& peer : peers) peer.flush();
    if (std::ranges::none_of(peers, waits)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Watchdog::State::leave_by_force() {
  tell(monotonic_ns());
  if (claim_report(page)) {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");  // Where a line of progress may stand.
    fmt::print(stderr, "orrery: {}\n", run_end(page)->message);
  }
  std::fflush(stderr);
  _exit(static_cast<int>(ErrorKind::kRuntime));
}

Watchdog::Watchdog(const StatusPage& page, int rank, WatchdogOptions options,
                   std::vector<Connection> connections)
    : state_(std::make_unique<State>(page, rank, std::move(options))) {
  for (std::size_t at = 0; at < connections.size(); ++at) {
    if (!connections[at].valid()) continue;
    Peer& peer = state_->peers.emplace_back();
    peer.rank = rank == 0 ? static_cast<int>(at) : 0;
    peer.connection = std::move(connections[at]);
    peer.heard_ns = monotonic_ns();
  }
  // Signals are for the threads that work.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  if (std::uncaught_exceptions() > state_->exceptions) {
    end_run(state_->page, {state_->rank, fmt::format("rank {} has failed", state_->rank)});
  }
  eventfd_write(state_->stop.get(), 1);
  state_->thread.join();
}

}  // namespace orrery::launch
