#pragma once
// Memory that the ranks of one host share. Its bytes start as zeros, and are set aside at once: a full
// /dev/shm is an Error here and no SIGBUS later.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "executor/launch/rendezvous.hpp"

namespace orrery::launch {

class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();  // Unmaps it, and takes away its name if it still has one.

  // Without a name, for processes that are forked afterwards.
  static SharedSegment anonymous(std::size_t bytes);
  // /dev/shm/NAME, for processes that somebody else has launched. THROWS Error(kRuntime): the name is taken;
  // /dev/shm is full (with how much was wanted and how much is free).
  static SharedSegment create(const std::string& name, std::size_t bytes);
  // THROWS Error(kRuntime): there is none of that name, or it has another size.
  static SharedSegment open(const std::string& name, std::size_t bytes);

  // Takes the name away; who has mapped it keeps it. From then on nothing is left behind however processes
  // end.
  void unlink();

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  SharedSegment(std::byte* data, std::size_t size, std::string name)
      : data_(data), size_(size), name_(std::move(name)) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string name_;  // Only where this object created it and it still has its name.
};

struct HostSegment {
  SharedSegment segment;
  std::vector<int> ranks;  // Those that share it, ascending; this one is among them.
};

// One segment for the ranks that see the same /dev/shm (containers on one host may not). The lowest creates
// it, all map it, and it has lost its name when this returns or throws on any of them, also where the creator
// was killed. Names that runs have left behind whose ranks were all killed within these milliseconds are
// taken away when they are older than an hour. All ranks have to call it, with the same size. THROWS
// Error(kRuntime) on all ranks if one can't.
HostSegment share_on_host(Rendezvous& rendezvous, std::size_t bytes);

}  // namespace orrery::launch
