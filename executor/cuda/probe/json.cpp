#include "executor/cuda/probe/json.hpp"

#include <charconv>
#include <cmath>

namespace orrery::cuda {
namespace {

std::string quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += "\\u00";
      result += kHex[(c >> 4) & 15];
      result += kHex[c & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

JsonObject& JsonObject::add(std::string_view key, double value) {
  char digits[32];
  // Six digits: more than any of these measurements repeats to.
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr;
  members_.emplace_back(quoted(key), std::isfinite(value) ? std::string(digits, end) : "null");
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::int64_t value) {
  members_.emplace_back(quoted(key), std::to_string(value));
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view value) {
  members_.emplace_back(quoted(key), quoted(value));
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, const JsonObject& value) {
  members_.emplace_back(quoted(key), value.line());
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<JsonObject>& values) {
  std::string text = "[";
  for (const JsonObject& value : values) {
    text += text.size() > 1 ? ",\n    " : "\n    ";
    text += value.line();
  }
  members_.emplace_back(quoted(key), text + (values.empty() ? "]" : "\n  ]"));
  return *this;
}

std::string JsonObject::line() const {
  std::string text = "{";
  for (const auto& [key, value] : members_) {
    if (text.size() > 1) text += ", ";
    text += key + ": " + value;
  }
  return text + "}";
}

std::string JsonObject::lines() const {
  std::string text = "{";
  for (const auto& [key, value] : members_) {
    text += text.size() > 1 ? ",\n  " : "\n  ";
    text += key + ": " + value;
  }
  return text + "\n}\n";
}

}  // namespace orrery::cuda
