#pragma once
// Choices that were found by timing, kept in a file for the next run on the same GPU with the same library.

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace orrery::device {

struct CachedAlgorithm {
  std::array<std::uint64_t, 8> words{};  // What the library calls it; its own business.
  double microseconds = 0;
  double first_microseconds = 0;  // Of what the library offers first; 0: that wasn't timed.
  bool operator==(const CachedAlgorithm&) const = default;
};

class AlgorithmCache {
 public:
  // `library` with its version, and the GPU's name: choices are no good for others. An empty folder: nothing
  // is read or written.
  AlgorithmCache(const std::string& folder, const std::string& library, const std::string& gpu);

  // What a file holds that is no such file, or is damaged, is left out; then the warning isn't empty.
  std::string load();
  // The file holds what other processes wrote meanwhile too. It is there as a whole or not at all.
  std::string save() const;

  const CachedAlgorithm* find(const std::string& key) const;
  // REQUIRES: no line breaks or tabulators in the key.
  void put(const std::string& key, const CachedAlgorithm& algorithm);

  const std::string& path() const { return path_; }

 private:
  using Entries = std::map<std::string, CachedAlgorithm>;
  std::string read(Entries& into) const;

  std::string path_, header_;
  Entries entries_;
};

}  // namespace orrery::device
