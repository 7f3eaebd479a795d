#pragma once
// TCP connections on which nothing is waited for without a deadline. All sockets are non-blocking and closed
// in programs that are started. While they wait, calls move the thread's heart-beat and end when the run is
// ended (status_page.hpp).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace orrery::launch {

using Deadline = std::chrono::steady_clock::time_point;
Deadline after(std::chrono::milliseconds duration);

// A file descriptor that is closed with its owner.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// What came of moving bytes.
enum class Moved { kAll, kTimeout, kClosed };

// One end of a TCP connection, with TCP_NODELAY.
class Connection {
 public:
  Connection() = default;
  explicit Connection(FileDescriptor socket);

  bool valid() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }
  void close() { socket_ = FileDescriptor(); }

  // As many bytes as go without waiting; −1: the other end has closed.
  std::ptrdiff_t try_send(std::span<const std::byte> bytes);
  std::ptrdiff_t try_receive(std::span<std::byte> bytes);

  Moved send(std::span<const std::byte> bytes, Deadline deadline);
  Moved receive(std::span<std::byte> bytes, Deadline deadline);

  // A message is its length (8 bytes, little-endian) and its bytes. One announced as longer than `most_bytes`
  // counts as closed: whoever sends that isn't one of us.
  Moved send_message(std::string_view message, Deadline deadline);
  Moved receive_message(std::string& message, std::size_t most_bytes, Deadline deadline);

  std::string local_address() const;  // Without the port: "10.0.0.7", "fe80::1%eth0".
  std::string peer_address() const;

 private:
  FileDescriptor socket_;
};

// A message that comes in pieces, for who reads many connections at once.
class Inbox {
 public:
  enum class State { kMore, kWhole, kClosed };
  // Takes what is there without waiting. kWhole: `message` is it, and the next call begins the next one.
  State read(Connection& connection, std::size_t most_bytes, std::string& message);

 private:
  std::string bytes_;  // Its length's 8 bytes first.
};

struct Listener {
  FileDescriptor socket;
  std::uint16_t port = 0;

  Connection accept();  // Invalid: nobody is waiting.
};

// Port 0: any. Without a host, listens for IPv6 and IPv4 on all interfaces; with one, only at that address of
// this host. THROWS Error(kRuntime) naming the port and why it can't be had.
Listener listen_at(const std::string& host, std::uint16_t port);

// Tries again, from resolving the name on, until somebody accepts: rank 0 may come later than the others.
// (Resolving a name takes as long as the system's resolver lets it, whatever the deadline.) THROWS
// Error(kRuntime) naming host, port and the last reason.
Connection connect_to(const std::string& host, std::uint16_t port, Deadline deadline);

// Lifts this process' limit on open files to what it may have: rank 0 has two connections to each rank.
void allow_many_files();

// "127.0.0.1", "::1", "localhost".
bool is_loopback(std::string_view host);

// Waits until the connection can be read (or written), at most until the deadline; false: it passed.
bool wait_for(int fd, short poll_events, Deadline deadline);

}  // namespace orrery::launch
