#include "executor/device/algorithm_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cassert>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace orrery::device {
namespace {

// One entry a line: key, eight words in hexadecimal, microseconds, those of the library's first; a tabulator
// between them. The header's version moves with the format and with how choices are found: older ones are
// found anew.
constexpr std::string_view kVersion = "orrery algorithms 2";
constexpr std::size_t kWordDigits = 16;

std::string file_name(const std::string& library, const std::string& gpu) {
  std::string name = library + " " + gpu;
  for (char& c : name) {
    const bool kept = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (!kept) c = '-';
  }
  return name + ".txt";
}

std::string to_line(const std::string& key, const CachedAlgorithm& algorithm) {
  std::string line = key + "\t";
  for (const std::uint64_t word : algorithm.words) line += fmt::format("{:016x}", word);
  return line + fmt::format("\t{:.3f}\t{:.3f}\n", algorithm.microseconds, algorithm.first_microseconds);
}

std::optional<double> parse_time(std::string_view text) {
  double time = 0;
  const char* const stop = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), stop, time);
  const bool sane = error == std::errc() && end == stop && std::isfinite(time) && time >= 0;
  return sane ? std::optional(time) : std::nullopt;
}

std::optional<CachedAlgorithm> parse_entry(std::string_view digits, std::string_view microseconds,
                                           std::string_view first_microseconds) {
  CachedAlgorithm algorithm;
  if (digits.size() != kWordDigits * algorithm.words.size()) return std::nullopt;
  for (std::size_t i = 0; i < algorithm.words.size(); ++i) {
    const char* const begin = digits.data() + i * kWordDigits;
    const auto [end, error] = std::from_chars(begin, begin + kWordDigits, algorithm.words[i], 16);
    if (error != std::errc() || end != begin + kWordDigits) return std::nullopt;
  }
  const auto own = parse_time(microseconds), first = parse_time(first_microseconds);
  if (!own || !first) return std::nullopt;
  algorithm.microseconds = *own;
  algorithm.first_microseconds = *first;
  return algorithm;
}

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& folder, const std::string& library, const std::string& gpu)
    : header_(fmt::format("{}\t{}\t{}", kVersion, library, gpu)) {
  if (!folder.empty()) path_ = (std::filesystem::path(folder) / file_name(library, gpu)).string();
}

std::string AlgorithmCache::read(Entries& into) const {
  std::error_code unreadable;
  if (path_.empty() || !std::filesystem::exists(path_, unreadable)) return "";
  std::ifstream file(path_);
  std::string line;
  if (!file || !std::getline(file, line) || line != header_) {
    return fmt::format(
        "{} isn't a list of algorithms of this version for this library and GPU: it is left out and written "
        "anew",
        path_);
  }
  int damaged = 0;
  while (std::getline(file, line)) {
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1),
                      third = line.find('\t', second + 1);
    std::optional<CachedAlgorithm> entry;
    if (first < second && second < third && third != std::string::npos) {
      const std::string_view all = line;
      entry = parse_entry(all.substr(first + 1, second - first - 1),
                          all.substr(second + 1, third - second - 1), all.substr(third + 1));
    }
    if (entry) {
      into[line.substr(0, first)] = *entry;
    } else {
      ++damaged;
    }
  }
  return damaged == 0 ? "" : fmt::format("{}: {} damaged lines are left out", path_, damaged);
}

std::string AlgorithmCache::load() { return read(entries_); }

std::string AlgorithmCache::save() const {
  if (path_.empty()) return "";
  Entries all;
  read(all);
  for (const auto& [key, algorithm] : entries_) all[key] = algorithm;

  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string unfinished =
      fmt::format("{}.{}.{}", path_, getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
  std::ofstream file(unfinished);
  file << header_ << '\n';
  for (const auto& [key, algorithm] : all) file << to_line(key, algorithm);
  file.close();
  if (file) std::filesystem::rename(unfinished, path_, error);
  if (file && !error) return "";
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  return fmt::format("can't write {}: timed choices aren't kept for the next run", path_);
}

const CachedAlgorithm* AlgorithmCache::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() ? &found->second : nullptr;
}

void AlgorithmCache::put(const std::string& key, const CachedAlgorithm& algorithm) {
  assert(key.find_first_of("\t\n") == std::string::npos);
  entries_[key] = algorithm;
}

}  // namespace orrery::device
