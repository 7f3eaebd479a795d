#include "executor/launch/wire.hpp"

#include "base/error.hpp"

namespace orrery::launch {

void Writer::number(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (int byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>(bits >> (8 * byte) & 0xff);
}

void Writer::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_ += value;
}

std::int64_t Reader::number() {
  if (bytes_.size() < 8)
    fail(ErrorKind::kRuntime, "a message from another rank ends in the middle of a number");
  std::uint64_t bits = 0;
  for (std::size_t byte = 0; byte < 8; ++byte) {
    bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[byte])) << (8 * byte);
  }
  bytes_.remove_prefix(8);
  return static_cast<std::int64_t>(bits);
}

std::string Reader::text() {
  const std::int64_t size = number();
  if (size < 0 || static_cast<std::size_t>(size) > bytes_.size()) {
    fail(ErrorKind::kRuntime, "a message from another rank announces {} bytes and has {}", size,
         bytes_.size());
  }
  std::string value(bytes_.substr(0, static_cast<std::size_t>(size)));
  bytes_.remove_prefix(value.size());
  return value;
}

std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string rank_list(const std::vector<int>& ascending_ranks) {
  std::string result = ascending_ranks.size() == 1 ? "rank" : "ranks";
  const char* separator = " ";
  for (std::size_t first = 0; first < ascending_ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ascending_ranks.size() && ascending_ranks[last + 1] == ascending_ranks[last] + 1)
      ++last;
    result += fmt::format("{}{}", separator, ascending_ranks[first]);
    if (last > first) result += fmt::format("-{}", ascending_ranks[last]);
    separator = ", ";
    first = last + 1;
  }
  return result;
}

}  // namespace orrery::launch
