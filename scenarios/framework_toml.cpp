// TOML settings as a flat list.

#include <algorithm>
#include <sstream>
#include <toml.hpp>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"

namespace orrery {
namespace {

constexpr int kDeepest = 32;

// toml11 descends with every bracket; its own limit is the stack.
void check_depth(std::string_view text, const std::string& place) {
  int depth = 0, line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (depth > kDeepest) fail(ErrorKind::kInput, "{}:{}: nested too deeply for settings", place, line);
  }
}

std::string text_of(const toml::value& value) {
  if (value.is_string()) return value.as_string().str;
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  if (value.is_integer()) return std::to_string(value.as_integer());
  if (value.is_floating()) return fmt::format("{}", value.as_floating());
  if (value.is_array()) {
    std::string text = "[";
    for (const toml::value& item : value.as_array()) text += (text.size() > 1 ? ", " : "") + text_of(item);
    return text + "]";
  }
  return "…";
}

void walk(const toml::value& node, const std::string& path, FrameworkSettings& settings) {
  if (node.is_table()) {
    // toml11's tables have no order of their own; lines put them back into the file's.
    std::vector<std::pair<std::string, const toml::value*>> entries;
    for (const auto& [key, value] : node.as_table()) entries.emplace_back(key, &value);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second->location().line(), a.first) <
             std::pair(b.second->location().line(), b.first);
    });
    for (const auto& [key, value] : entries) walk(*value, path.empty() ? key : path + "." + key, settings);
    return;
  }
  FrameworkSetting setting;
  setting.name = canonical_name(path);
  setting.written = path;
  setting.value = text_of(node);
  setting.line = static_cast<int>(node.location().line());
  settings.add(std::move(setting));
}

// The first line of toml11's message, and the line of the file that it points at.
std::string reason(const toml::exception& error, const std::string& place) {
  std::string what = error.what();
  if (what.starts_with("[error] ")) what.erase(0, 8);
  return fmt::format("{}:{}: not valid TOML: {}", place, error.location().line(),
                     what.substr(0, what.find('\n')));
}

}  // namespace

void read_toml_settings(std::string_view text, FrameworkSettings& settings) {
  check_depth(text, settings.place());
  std::istringstream stream{std::string(text)};
  try {
    walk(toml::parse(stream, settings.place()), "", settings);
  } catch (const toml::exception& error) {
    fail(ErrorKind::kInput, "{}", reason(error, settings.place()));
  } catch (const std::exception& error) {
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    fail(ErrorKind::kInput, "{}: not valid TOML: {}", settings.place(), error.what());
  }
}

}  // namespace orrery
