#include "scenarios/reader.hpp"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {
namespace {

constexpr std::size_t kShownFaults = 20;

// Wide enough for every machine to come, narrow enough that formulas stay far from overflow.
constexpr double kMinBandwidth = 1e6;
constexpr double kMaxBandwidth = 1e15;
constexpr double kMinFlops = 1e6;
constexpr double kMaxFlops = 1e19;

std::string join(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

const std::vector<std::string>& known_keys(std::string_view section) {
  for (const SectionKeys& entry : scenario_sections()) {
    if (entry.section == section) return entry.keys;
  }
  assert(false && "every section has its entry");
  return scenario_sections().front().keys;
}

}  // namespace

// ---- Faults.

void Faults::add(const YamlNode& at, std::string_view path, std::string_view problem) {
  add_at(at.line, at.column, at.origin, path, problem);
}

void Faults::add_at(int line, int column, std::string_view origin, std::string_view path,
                    std::string_view problem) {
  const std::string place =
      origin.empty() ? fmt::format("{}:{}:{}", file_.string(), line, column) : quote(origin);
  faults_.push_back({origin.empty() ? line : std::numeric_limits<int>::max(), column,
                     path.empty() ? fmt::format("{}: {}", place, problem)
                                  : fmt::format("{}: {}: {}", place, path, problem)});
}

void Faults::throw_if_any() const {
  if (faults_.empty()) return;
  std::vector<Fault> sorted = faults_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Fault& a, const Fault& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  std::string message;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShownFaults); ++i) {
    message += (i > 0 ? "\n" : "") + sorted[i].message;
  }
  if (sorted.size() > kShownFaults) message += fmt::format("\n… and {} more", sorted.size() - kShownFaults);
  throw Error(ErrorKind::kInput, message);
}

std::filesystem::path Faults::resolve(const YamlNode& at, const std::string& path) const {
  const std::filesystem::path written(path);
  return at.origin.empty() ? file_.parent_path() / written : written;
}

// ---- Section.

Section::Section(const YamlNode& node, std::string path, std::string_view name, Faults& faults)
    : node_(node), path_(std::move(path)), known_(known_keys(name)), faults_(faults) {
  if (node.kind != YamlNode::Kind::kMap) {
    faults_.add(node, path_,
                fmt::format("is {}; expected a mapping with the keys {}", describe(node), join(known_)));
    return;
  }
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    if (std::find(known_.begin(), known_.end(), node.keys[i]) != known_.end()) continue;
    const std::string suggestion = did_you_mean(node.keys[i], known_);
    faults_.add_at(node.key_positions[i].first, node.key_positions[i].second, node.children[i].origin, path_,
                   fmt::format("unknown key {}{}", quote(node.keys[i]),
                               suggestion.empty() ? "; expected one of " + join(known_) : suggestion));
  }
}

bool Section::has(std::string_view key) const { return node(key) != nullptr; }

const YamlNode* Section::node(std::string_view key) const {
  assert(std::find(known_.begin(), known_.end(), key) != known_.end());
  return node_.find(key);
}

std::string Section::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Section::fault(std::string_view key, std::string_view problem) const {
  const YamlNode* value = node(key);
  faults_.add(value != nullptr ? *value : node_, path(key), problem);
}

bool Section::require(std::string_view key, std::string_view what) const {
  if (has(key)) return true;
  if (node_.kind == YamlNode::Kind::kMap) fault(key, fmt::format("missing; expected {}", what));
  return false;
}

void Section::wrong(const YamlNode& value, std::string_view key, std::string_view expected) const {
  faults_.add(value, path(key), fmt::format("is {}; expected {}", describe(value), expected));
}

const YamlNode* Section::scalar(std::string_view key, std::string_view expected) const {
  const YamlNode* value = node(key);
  if (value != nullptr && value->kind != YamlNode::Kind::kScalar) {
    wrong(*value, key, expected);
    return nullptr;
  }
  return value;
}

std::optional<std::int64_t> Section::integer_value(std::string_view key, std::int64_t min,
                                                   std::int64_t max) const {
  const std::string expected =
      fmt::format("a whole number from {} to {}", format_count(min), format_count(max));
  const YamlNode* value = scalar(key, expected);
  if (value == nullptr) return std::nullopt;
  const auto read = value->quoted ? std::nullopt : parse_integer(value->text);
  if (read && *read >= min && *read <= max) return read;
  wrong(*value, key, expected);
  return std::nullopt;
}

void Section::number(std::string_view key, double& target, double min, double max) const {
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  const YamlNode* value = scalar(key, expected);
  if (value == nullptr) return;
  const auto read = value->quoted ? std::nullopt : parse_number(value->text);
  if (read && *read >= min && *read <= max) {
    target = *read;
  } else {
    wrong(*value, key, expected);
  }
}

void Section::boolean(std::string_view key, bool& target) const {
  const YamlNode* value = scalar(key, "true or false");
  if (value == nullptr) return;
  if (!value->quoted && (value->text == "true" || value->text == "false")) {
    target = value->text == "true";
  } else {
    wrong(*value, key, "true or false");
  }
}

void Section::text(std::string_view key, std::string& target) const {
  const YamlNode* value = scalar(key, "text");
  if (value == nullptr) return;
  const bool printable = std::none_of(value->text.begin(), value->text.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (value->text.empty() || !printable) {
    wrong(*value, key, "text on one line, not empty");
  } else {
    target = value->text;
  }
}

void Section::bytes(std::string_view key, std::int64_t& target, std::int64_t min, std::int64_t max) const {
  const std::string expected =
      fmt::format("a size from {} to {}, e.g. 80GiB or 100MB", exact_bytes(min), exact_bytes(max));
  const YamlNode* value = scalar(key, expected);
  if (value == nullptr) return;
  const auto read = parse_bytes(value->text);
  if (read && *read >= min && *read <= max) {
    target = *read;
  } else {
    wrong(*value, key, expected);
  }
}

void Section::seconds(std::string_view key, double& target, double max) const {
  const std::string expected =
      fmt::format("a time with its unit, from 0us to {}, e.g. 300ns or 3.8us", exact_time(from_seconds(max)));
  const YamlNode* value = scalar(key, expected);
  if (value == nullptr) return;
  const auto read = parse_time(value->text);
  if (read && read->picoseconds >= 0 && read->seconds() <= max) {
    target = read->seconds();
  } else {
    wrong(*value, key, expected);
  }
}

void Section::bandwidth(std::string_view key, double& bytes_per_s) const {
  constexpr std::string_view kExpected =
      "a bandwidth with its unit, from 1 MB/s to 1000 TB/s, e.g. 450GB/s (bytes) or 400Gb/s (bits)";
  const YamlNode* value = scalar(key, kExpected);
  if (value == nullptr) return;
  const auto read = parse_bandwidth(value->text);
  if (read && *read >= kMinBandwidth && *read <= kMaxBandwidth) {
    bytes_per_s = *read;
  } else {
    wrong(*value, key, kExpected);
  }
}

void Section::flops_rate(std::string_view key, double& flops_per_s) const {
  constexpr std::string_view kExpected = "a dense peak rate from 1M to 10E, e.g. 989T or 989 TFLOP/s";
  const YamlNode* value = scalar(key, kExpected);
  if (value == nullptr) return;
  const auto read = parse_flops_rate(value->text);
  if (read && *read >= kMinFlops && *read <= kMaxFlops) {
    flops_per_s = *read;
  } else {
    wrong(*value, key, kExpected);
  }
}

void Section::file(std::string_view key, std::filesystem::path& target) const {
  std::string written;
  text(key, written);
  if (!written.empty()) target = faults_.resolve(*node(key), written);
}

std::optional<std::size_t> Section::choice_index(std::string_view key,
                                                 const std::vector<std::string>& words) const {
  const std::string expected = words.size() == 1 ? words.front() : "one of " + join(words);
  const YamlNode* value = scalar(key, expected);
  if (value == nullptr) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), value->text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  wrong(*value, key, expected + did_you_mean(value->text, words));
  return std::nullopt;
}

template <class T, class Read>
void Section::list(std::string_view key, std::vector<T>& target, std::string_view expected,
                   const Read& read) const {
  if (!has(key)) return;
  const std::size_t before = faults_.count();
  std::vector<T> values;
  for (const YamlNode* item : items(key)) {
    const auto value = item->kind == YamlNode::Kind::kScalar ? read(*item) : std::nullopt;
    if (value)
      values.push_back(static_cast<T>(*value));
    else
      wrong(*item, key, expected);
  }
  if (values.empty() && faults_.count() == before) fault(key, "is empty; leave it out for the default");
  if (faults_.count() == before) target = std::move(values);
}

void Section::integers(std::string_view key, std::vector<std::int32_t>& target, std::int64_t min,
                       std::int64_t max) const {
  list(key, target, fmt::format("whole numbers from {} to {}", format_count(min), format_count(max)),
       [&](const YamlNode& item) {
         const auto value = item.quoted ? std::nullopt : parse_integer(item.text);
         return value && *value >= min && *value <= max ? value : std::nullopt;
       });
}

void Section::sizes(std::string_view key, std::vector<std::int64_t>& target, std::int64_t min,
                    std::int64_t max) const {
  list(key, target,
       fmt::format("sizes from {} to {}, e.g. 80GiB or 100MB", exact_bytes(min), exact_bytes(max)),
       [&](const YamlNode& item) {
         const auto value = parse_bytes(item.text);
         return value && *value >= min && *value <= max ? value : std::nullopt;
       });
}

std::vector<const YamlNode*> Section::items(std::string_view key) const {
  std::vector<const YamlNode*> result;
  const YamlNode* value = node(key);
  if (value == nullptr) return result;
  if (value->kind != YamlNode::Kind::kList) {
    wrong(*value, key, "a list, e.g. [a, b]");
    return result;
  }
  for (const YamlNode& item : value->children) result.push_back(&item);
  return result;
}

// ---- Values.

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return "empty";
    case YamlNode::Kind::kList: return "a list";
    case YamlNode::Kind::kMap: return "a mapping";
    case YamlNode::Kind::kScalar: break;
  }
  return (node.quoted ? "the text " : "") + quote(node.text);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stopped, error] = std::from_chars(begin, end, value);
  const std::string_view digits = !text.empty() && text.front() == '-' ? text.substr(1) : text;
  // "010" is eight to YAML 1.1 and ten to everyone else.
  const bool leading_zero = digits.size() > 1 && digits.front() == '0';
  if (error != std::errc() || stopped != end || leading_zero) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stopped, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stopped != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> parse_flops_rate(std::string_view text) {
  for (const std::string_view unit : {"FLOP/s", "FLOPS"}) {
    if (text.ends_with(unit)) {
      text.remove_suffix(unit.size());
      break;
    }
  }
  constexpr std::string_view kPrefixes = "kMGTPE";
  double scale = 1;
  if (!text.empty() && kPrefixes.find(text.back()) != std::string_view::npos) {
    scale = std::pow(1000.0, static_cast<double>(kPrefixes.find(text.back()) + 1));
    text.remove_suffix(1);
  }
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  const auto value = parse_number(text);
  return value ? std::optional(*value * scale) : std::nullopt;
}

}  // namespace orrery
