#include "executor/launch/control.hpp"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;

// How often waits look whether the run was ended.
constexpr auto kTurn = 20ms;
// One of several addresses of a host may swallow what is sent to it.
constexpr auto kOneAttempt = 3s;
constexpr auto kBetweenAttempts = 50ms;
constexpr std::size_t kHeadBytes = 8;
// Memory is taken as bytes come, not as they are announced.
constexpr std::size_t kPieceBytes = 1 << 16;

std::string error_text(int code) { return std::generic_category().message(code); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Empty, with `why` set, where the name has none.
Addresses resolve(const std::string& host, std::uint16_t port, std::string& why) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int fault = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (fault != 0) why = gai_strerror(fault);
  return Addresses(fault == 0 ? found : nullptr, &freeaddrinfo);
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> text = {};
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  if (getnameinfo(plain, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string_view result = text.data();
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 seen through an IPv6 socket.
  const bool mapped = result.starts_with(kMapped) && result.find('.') != std::string_view::npos;
  return std::string(mapped ? result.substr(kMapped.size()) : result);
}

FileDescriptor new_socket(int family) {
  return FileDescriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

// 0, or why not.
int bind_and_listen(const FileDescriptor& socket, const sockaddr* address, socklen_t length) {
  if (!socket.valid()) return errno;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), address, length) != 0) return errno;
  return listen(socket.get(), SOMAXCONN) == 0 ? 0 : errno;
}

int listen_everywhere(std::uint16_t port, FileDescriptor& socket) {
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  socket = new_socket(AF_INET6);
  if (socket.valid()) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const int fault = bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (fault != EAFNOSUPPORT && fault != EADDRNOTAVAIL) return fault;
  sockaddr_in four = {};  // A host without IPv6.
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  socket = new_socket(AF_INET);
  return bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  const bool six = address.ss_family == AF_INET6;
  return ntohs(six ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Linux connects a socket to itself where a port without a listener is asked for and happens to be its own.
bool is_own_end(int fd) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_length = sizeof own, peer_length = sizeof peer;
  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length);
  getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length);
  return own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

// One attempt at one address. Invalid, with `why` set, where it failed.
FileDescriptor attempt(const addrinfo& address, Deadline deadline, std::string& why) {
  FileDescriptor socket = new_socket(address.ai_family);
  if (!socket.valid()) {
    why = error_text(errno);
    return {};
  }
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    why = error_text(errno);
    return {};
  }
  if (!wait_for(socket.get(), POLLOUT, std::min(deadline, after(kOneAttempt)))) {
    why = "no answer";
    return {};
  }
  int fault = 0;
  socklen_t length = sizeof fault;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &fault, &length);
  if (fault == 0 && is_own_end(socket.get())) fault = ECONNREFUSED;
  if (fault == 0) return socket;
  why = error_text(fault);
  return {};
}

}  // namespace

Deadline after(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Connection::Connection(FileDescriptor socket) : socket_(std::move(socket)) {
  if (socket_.valid()) set_option(socket_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
}

std::ptrdiff_t Connection::try_send(std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -1;
}

std::ptrdiff_t Connection::try_receive(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  const ssize_t received = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (received > 0) return received;
  return received < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

Moved Connection::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::ptrdiff_t sent = try_send(bytes);
    if (sent < 0) return Moved::kClosed;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (sent == 0 && !wait_for(fd(), POLLOUT, deadline)) return Moved::kTimeout;
  }
  return Moved::kAll;
}

Moved Connection::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::ptrdiff_t received = try_receive(bytes);
    if (received < 0) return Moved::kClosed;
    bytes = bytes.subspan(static_cast<std::size_t>(received));
    if (received == 0 && !wait_for(fd(), POLLIN, deadline)) return Moved::kTimeout;
  }
  return Moved::kAll;
}

Moved Connection::send_message(std::string_view message, Deadline deadline) {
  Writer framed;
  framed.text(message);
  return send(std::as_bytes(std::span(framed.bytes())), deadline);
}

Moved Connection::receive_message(std::string& message, std::size_t most_bytes, Deadline deadline) {
  Inbox inbox;
  while (true) {
    const Inbox::State state = inbox.read(*this, most_bytes, message);
    if (state == Inbox::State::kWhole) return Moved::kAll;
    if (state == Inbox::State::kClosed) return Moved::kClosed;
    if (!wait_for(fd(), POLLIN, deadline)) return Moved::kTimeout;
  }
}

Inbox::State Inbox::read(Connection& connection, std::size_t most_bytes, std::string& message) {
  while (true) {
    std::size_t wanted = kHeadBytes;
    if (bytes_.size() >= kHeadBytes) {
      const auto size = static_cast<std::uint64_t>(Reader(bytes_).number());
      if (size > most_bytes) return State::kClosed;
      wanted += size;
      if (bytes_.size() == wanted) {
        message.assign(bytes_, kHeadBytes);
        bytes_.clear();
        return State::kWhole;
      }
    }
    const std::size_t had = bytes_.size();
    bytes_.resize(had + std::min(wanted - had, kPieceBytes));
    const std::ptrdiff_t received =
        connection.try_receive(std::as_writable_bytes(std::span(bytes_).subspan(had)));
    bytes_.resize(had + static_cast<std::size_t>(std::max<std::ptrdiff_t>(received, 0)));
    if (received <= 0) return received < 0 ? State::kClosed : State::kMore;
  }
}

std::string Connection::local_address() const {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  return numeric(address, length);
}

std::string Connection::peer_address() const {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getpeername(fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  return numeric(address, length);
}

Connection Listener::accept() {
  return Connection(FileDescriptor(::accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

Listener listen_at(const std::string& host, std::uint16_t port) {
  Listener result;
  std::string why;
  if (host.empty()) {
    const int fault = listen_everywhere(port, result.socket);
    if (fault != 0) why = error_text(fault);
  } else if (const Addresses addresses = resolve(host, port, why)) {
    result.socket = new_socket(addresses->ai_family);
    const int fault = bind_and_listen(result.socket, addresses->ai_addr, addresses->ai_addrlen);
    if (fault != 0) why = error_text(fault);
  }
  if (!why.empty()) {
    fail(ErrorKind::kRuntime,
         "rank 0 can't listen at port {}{}: {}; expected a free port, choose another one with MASTER_PORT or "
         "ORRERY_COORDINATOR",
         port, host.empty() ? "" : " of " + host, why);
  }
  result.port = port_of(result.socket.get());
  return result;
}

Connection connect_to(const std::string& host, std::uint16_t port, Deadline deadline) {
  std::string why = "no time left";
  while (std::chrono::steady_clock::now() < deadline) {
    const Addresses addresses = resolve(host, port, why);
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      FileDescriptor socket = attempt(*address, deadline, why);
      if (socket.valid()) return Connection(std::move(socket));
    }
    keep_waiting();
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  fail(ErrorKind::kRuntime, "{} port {} can't be reached: {}", host, port, why);
}

void allow_many_files() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

bool wait_for(int fd, short poll_events, Deadline deadline) {
  while (true) {
    keep_waiting();
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto turn = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(left),
                                 std::chrono::milliseconds(0), std::chrono::milliseconds(kTurn));
    pollfd one = {fd, poll_events, 0};
    if (poll(&one, 1, static_cast<int>(turn.count())) > 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace orrery::launch
