#pragma once
// Reads mappings of a scenario file key by key. A fault doesn't stop the reading: it is noted with its place,
// the default stays, and the caller learns of all of them at once.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "scenarios/yaml.hpp"

namespace orrery {

// What is wrong with one file, in the order of its lines.
class Faults {
 public:
  explicit Faults(std::filesystem::path file) : file_(std::move(file)) {}

  // "file:line:column: path: problem".
  void add(const YamlNode& at, std::string_view path, std::string_view problem);
  void add_at(int line, int column, std::string_view origin, std::string_view path, std::string_view problem);

  bool empty() const { return faults_.empty(); }
  std::size_t count() const { return faults_.size(); }
  // THROWS Error(kInput) with every fault when there is one.
  void throw_if_any() const;

  // A path as the file means it: relative to the file; one from an override is relative to the working
  // folder.
  std::filesystem::path resolve(const YamlNode& at, const std::string& path) const;

 private:
  struct Fault {
    int line, column;
    std::string message;
  };
  std::filesystem::path file_;
  std::vector<Fault> faults_;
};

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

// One mapping. Each reading function changes its target only when the key is there and its value is right.
class Section {
 public:
  // `name` is the section's entry in scenario_sections(); keys that it doesn't have are faults.
  Section(const YamlNode& node, std::string path, std::string_view name, Faults& faults);

  bool has(std::string_view key) const;
  const YamlNode* node(std::string_view key) const;  // Null when absent.
  std::string path(std::string_view key) const;
  Faults& faults() const { return faults_; }

  // Notes a fault at the key's value, or at the section when the key is absent.
  void fault(std::string_view key, std::string_view problem) const;
  // Notes a fault when the key is absent; says what it is for.
  bool require(std::string_view key, std::string_view what) const;

  template <class Integer>
  void integer(std::string_view key, Integer& target, std::int64_t min, std::int64_t max) const {
    static_assert(sizeof(Integer) >= 4);
    if (const auto value = integer_value(key, min, max)) target = static_cast<Integer>(*value);
  }
  void number(std::string_view key, double& target, double min, double max) const;
  void boolean(std::string_view key, bool& target) const;
  void text(std::string_view key, std::string& target) const;
  void bytes(std::string_view key, std::int64_t& target, std::int64_t min, std::int64_t max) const;
  void seconds(std::string_view key, double& target, double max) const;
  void bandwidth(std::string_view key, double& bytes_per_s) const;
  void flops_rate(std::string_view key, double& flops_per_s) const;
  // A path that isn't checked for being there.
  void file(std::string_view key, std::filesystem::path& target) const;

  template <class E>
  void choice(std::string_view key, E& target, const Choices<E>& choices) const {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    if (const auto index = choice_index(key, words)) target = choices[*index].second;
  }

  // Lists of such values. One wrong item, or none at all, is a fault and leaves the target as it was.
  void integers(std::string_view key, std::vector<std::int32_t>& target, std::int64_t min,
                std::int64_t max) const;
  void sizes(std::string_view key, std::vector<std::int64_t>& target, std::int64_t min,
             std::int64_t max) const;

  // The items of a list; empty (with a fault) when the value isn't one.
  std::vector<const YamlNode*> items(std::string_view key) const;

 private:
  const YamlNode* scalar(std::string_view key, std::string_view expected) const;
  std::optional<std::int64_t> integer_value(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::optional<std::size_t> choice_index(std::string_view key, const std::vector<std::string>& words) const;
  void wrong(const YamlNode& value, std::string_view key, std::string_view expected) const;
  // The values of a list as `read` has them, which says nothing of a wrong one.
  template <class T, class Read>
  void list(std::string_view key, std::vector<T>& target, std::string_view expected, const Read& read) const;

  const YamlNode& node_;
  std::string path_;
  std::vector<std::string> known_;
  Faults& faults_;
};

// What a value is, for messages: "a list", "text \"x\"".
std::string describe(const YamlNode& node);

// Exactly one plain whole number.
std::optional<std::int64_t> parse_integer(std::string_view text);
// Exactly one finite decimal number.
std::optional<double> parse_number(std::string_view text);
// "989T", "989 TFLOP/s", "1.9P", "989e12".
std::optional<double> parse_flops_rate(std::string_view text);

}  // namespace orrery
