#include "topology/import/log_text.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace orrery::log_text {
namespace {

template <class Number, class... Base>
std::optional<Number> take(std::string_view& rest, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base...);
  if (error != std::errc{}) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string plain(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') continue;
    if (text[i] != '\x1b') {
      result += text[i];
      continue;
    }
    if (i + 1 >= text.size() || text[i + 1] != '[') continue;
    // A control sequence: parameters, then one letter.
    std::size_t end = i + 2;
    while (end < text.size() && text[end] >= 0x20 && text[end] < 0x40) ++end;
    i = end < text.size() && text[end] >= 0x40 ? end : end - 1;
  }
  return result;
}

std::string_view untagged(std::string_view line) {
  line = trimmed(line);
  std::size_t begin = 0;
  if (line.starts_with("[")) {
    const std::size_t end = line.find("]<std");
    const std::size_t colon = end == std::string_view::npos ? end : line.find(':', end);
    if (colon != std::string_view::npos) begin = colon + 1;
  } else {
    std::size_t digits = 0;
    while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits])) != 0) ++digits;
    if (digits > 0 && digits < line.size() && line[digits] == ':') begin = digits + 1;
  }
  return trimmed(line.substr(begin));
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    result.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return result;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  Cursor cursor(text);
  for (cursor.blanks(); !cursor.empty(); cursor.blanks()) result.push_back(cursor.word());
  return result;
}

std::optional<std::int64_t> whole_integer(std::string_view text) {
  const auto value = take<std::int64_t>(text, 10);
  return text.empty() ? value : std::nullopt;
}

std::optional<double> whole_number(std::string_view text) {
  const auto value = take<double>(text);
  return text.empty() && value && std::isfinite(*value) ? value : std::nullopt;
}

void Cursor::blanks() {
  while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
}

bool Cursor::skip(std::string_view literal) {
  const std::string_view before = rest_;
  for (const char c : literal) {
    if (c == ' ') {
      blanks();
    } else if (rest_.starts_with(c)) {
      rest_.remove_prefix(1);
    } else {
      rest_ = before;
      return false;
    }
  }
  return true;
}

bool Cursor::seek(std::string_view literal) {
  const std::size_t at = rest_.find(literal);
  if (at == std::string_view::npos) return false;
  rest_.remove_prefix(at + literal.size());
  return true;
}

std::optional<std::int64_t> Cursor::long_integer() { return take<std::int64_t>(rest_, 10); }

std::optional<std::int32_t> Cursor::integer() {
  const std::string_view before = rest_;
  const auto value = long_integer();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value && *value <= kMost && *value >= -kMost) return static_cast<std::int32_t>(*value);
  rest_ = before;
  return std::nullopt;
}

std::optional<std::uint64_t> Cursor::hex() { return take<std::uint64_t>(rest_, 16); }

std::optional<double> Cursor::number() {
  const std::string_view before = rest_;
  const auto value = take<double>(rest_);
  if (value && std::isfinite(*value)) return value;
  rest_ = before;
  return std::nullopt;
}

std::string_view Cursor::word() { return until(" \t"); }

std::string_view Cursor::until(std::string_view stops) {
  const std::string_view taken = rest_.substr(0, rest_.find_first_of(stops));
  rest_.remove_prefix(taken.size());
  return taken;
}

}  // namespace orrery::log_text
