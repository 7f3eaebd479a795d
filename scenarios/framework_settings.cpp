#include "scenarios/framework_settings.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/units.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr char kMarkBegin = '\x01';
constexpr char kMarkEnd = '\x02';

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

// Python's digits may have underscores between them: 220_000_000.
std::string without_underscores(std::string text) {
  std::erase(text, '_');
  return text;
}

// Whole numbers are also written as 5e8 and 1.0.
std::optional<std::int64_t> whole_number(const std::string& text) {
  if (const auto plain = parse_integer(text)) return plain;
  const auto number = parse_number(text);
  if (!number || std::abs(*number) > 9e15 || *number != std::floor(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::string place_of(const std::string& file, const FrameworkSetting& setting) {
  return setting.line > 0 ? fmt::format("{}:{}: {}", file, setting.line, setting.written)
                          : fmt::format("{}: {}", file, setting.written);
}

}  // namespace

std::string unknown_mark(std::string_view name) { return kMarkBegin + std::string(name) + kMarkEnd; }

std::vector<std::string> unknown_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(kMarkBegin); at != std::string_view::npos;
       at = text.find(kMarkBegin, at + 1)) {
    const std::size_t end = text.find(kMarkEnd, at);
    if (end == std::string_view::npos) break;
    names.emplace_back(text.substr(at + 1, end - at - 1));
  }
  return names;
}

std::string show_unknown(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == kMarkBegin) {
      shown += "${";
    } else if (c == kMarkEnd) {
      shown += '}';
    } else {
      shown += c;
    }
  }
  return shown;
}

std::string canonical_name(std::string_view written) {
  while (written.starts_with('-')) written.remove_prefix(1);
  std::string name(written);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  pattern.remove_suffix(1);
  return name.starts_with(pattern);
}

void FrameworkSettings::add(FrameworkSetting setting) {
  const auto same = std::find_if(settings_.begin(), settings_.end(),
                                 [&](const FrameworkSetting& s) { return s.name == setting.name; });
  if (same == settings_.end()) {
    settings_.push_back(std::move(setting));
    return;
  }
  if (same->value != setting.value) {
    notes_.push_back(fmt::format("{} is given twice ({} and {}); the last one counts", setting.written,
                                 quote(show_unknown(same->value)), quote(show_unknown(setting.value))));
  }
  *same = std::move(setting);
}

void FrameworkSettings::rename(std::string_view from, std::string_view to) {
  if (has(to)) return;
  for (FrameworkSetting& setting : settings_) {
    if (setting.name == from) setting.name = to;
  }
}

void FrameworkSettings::strip(std::span<const std::string_view> sections,
                              std::span<const std::pair<std::string_view, std::string_view>> whole) {
  std::vector<FrameworkSetting> before;
  std::swap(before, settings_);
  for (FrameworkSetting& setting : before) {
    const auto other = std::find_if(whole.begin(), whole.end(),
                                    [&](const auto& entry) { return entry.first == setting.name; });
    if (other != whole.end()) {
      setting.name = other->second;
    } else {
      const auto section = std::find_if(sections.begin(), sections.end(), [&](std::string_view prefix) {
        return setting.name.starts_with(prefix);
      });
      if (section != sections.end()) setting.name.erase(0, section->size());
    }
    add(std::move(setting));
  }
}

void FrameworkSettings::set(std::string_view name, std::string value, std::string_view written) {
  const FrameworkSetting* source = find(written);
  FrameworkSetting setting;
  setting.name = name;
  setting.written = source != nullptr ? source->written : std::string(written);
  setting.line = source != nullptr ? source->line : 0;
  setting.value = std::move(value);
  add(std::move(setting));
}

const FrameworkSetting* FrameworkSettings::find(std::string_view name) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const FrameworkSetting& setting) { return setting.name == name; });
  return found == settings_.end() ? nullptr : &*found;
}

std::string FrameworkSettings::written(std::string_view name) const {
  const FrameworkSetting* setting = find(name);
  return setting != nullptr ? setting->written : std::string(name);
}

FrameworkSetting* FrameworkSettings::take(std::string_view name) {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const FrameworkSetting& setting) { return setting.name == name; });
  if (found == settings_.end()) return nullptr;
  found->used = true;
  return &*found;
}

void FrameworkSettings::use(std::string_view name) {
  for (FrameworkSetting& setting : settings_) {
    if (name_matches(name, setting.name)) setting.used = true;
  }
}

void FrameworkSettings::fault(std::string_view name, std::string_view problem) {
  FrameworkSetting nowhere;
  nowhere.written = name;
  const FrameworkSetting* setting = find(name);
  faults_.push_back(
      fmt::format("{}: {}", place_of(place_, setting != nullptr ? *setting : nowhere), problem));
}

bool FrameworkSettings::known(const FrameworkSetting& setting) {
  const std::vector<std::string> names = unknown_names(setting.value);
  for (const std::string& name : names) {
    const bool listed =
        std::any_of(missing_.begin(), missing_.end(), [&](const auto& entry) { return entry.first == name; });
    if (!listed) {
      missing_.emplace_back(name, setting.line > 0 ? fmt::format("{}, line {}", setting.written, setting.line)
                                                   : setting.written);
    }
  }
  return names.empty();
}

std::optional<std::int64_t> FrameworkSettings::integer(std::string_view name, std::int64_t min,
                                                       std::int64_t max) {
  const FrameworkSetting* setting = take(name);
  if (setting == nullptr || !known(*setting)) return std::nullopt;
  const auto value = whole_number(without_underscores(setting->value));
  if (value && *value >= min && *value <= max) return value;
  fault(name, fmt::format("is {}; expected a whole number from {} to {}", quote(setting->value),
                          format_count(min), format_count(max)));
  return std::nullopt;
}

std::optional<double> FrameworkSettings::number(std::string_view name) {
  const FrameworkSetting* setting = take(name);
  if (setting == nullptr || !known(*setting)) return std::nullopt;
  const auto value = parse_number(without_underscores(setting->value));
  if (!value) fault(name, fmt::format("is {}; expected a number", quote(setting->value)));
  return value;
}

std::optional<bool> FrameworkSettings::boolean(std::string_view name) {
  const FrameworkSetting* setting = take(name);
  if (setting == nullptr) return std::nullopt;
  if (setting->bare || setting->unsure) return true;
  if (!known(*setting)) return std::nullopt;
  const std::string text = lower(setting->value);
  constexpr std::array<std::string_view, 4> kYes = {"true", "yes", "on", "1"};
  constexpr std::array<std::string_view, 4> kNo = {"false", "no", "off", "0"};
  if (std::find(kYes.begin(), kYes.end(), text) != kYes.end()) return true;
  if (std::find(kNo.begin(), kNo.end(), text) != kNo.end()) return false;
  fault(name, fmt::format("is {}; expected true or false", quote(setting->value)));
  return std::nullopt;
}

std::optional<std::string> FrameworkSettings::word(std::string_view name) {
  const FrameworkSetting* setting = take(name);
  if (setting == nullptr || !known(*setting)) return std::nullopt;
  return setting->value;
}

void FrameworkSettings::throw_if_any() const {
  std::vector<std::string> lines = faults_;
  if (!missing_.empty()) {
    std::vector<std::string> wanted, options;
    for (const auto& [name, where] : missing_) {
      wanted.push_back(fmt::format("{} ({})", name, where));
      options.push_back(fmt::format("--var {}=…", name));
    }
    lines.push_back(fmt::format("{}: leaves values open: {}; give them with {}", place_,
                                fmt::join(wanted, ", "), fmt::join(options, " ")));
  }
  if (!lines.empty()) fail(ErrorKind::kInput, "{}", fmt::join(lines, "\n"));
}

}  // namespace orrery
