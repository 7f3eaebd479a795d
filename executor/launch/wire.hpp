#pragma once
// Values as bytes between processes: whole numbers of 8 bytes, little-endian, and texts with their length
// before them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::launch {

class Writer {
 public:
  void number(std::int64_t value);
  void text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// THROWS Error(kRuntime) where the bytes end before the value does. What is read from others may be anything.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::int64_t number();
  std::string text();
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

// FNV-1a, 64 bits: the same on every host and in every build.
std::uint64_t hash_of(std::string_view bytes);

// "rank 3", "ranks 0-2, 5".
std::string rank_list(const std::vector<int>& ascending_ranks);

}  // namespace orrery::launch
