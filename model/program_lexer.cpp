#include "model/program_lexer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/suggest.hpp"

namespace orrery {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '/' || c == '+'; }

struct Suffix {
  char letter = 0;  // 'l' or 'm'; 0: there is none.
  std::string_view digits;
};

// A trailing ".l3" or ".m0".
Suffix trailing_suffix(std::string_view word) {
  std::size_t begin = word.size();
  while (begin > 0 && is_digit(word[begin - 1])) --begin;
  if (begin == word.size() || begin < 2 || word[begin - 2] != '.') return {};
  const char letter = word[begin - 1];
  if (letter != 'l' && letter != 'm') return {};
  return {letter, word.substr(begin)};
}

std::optional<std::int32_t> parse_int32(std::string_view digits) {
  std::int32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Takes suffixes off the end of `word` into `name`, each kind at most once. False: a number is too large.
bool split_suffixes(std::string_view& word, Name& name) {
  while (true) {
    const Suffix suffix = trailing_suffix(word);
    if (suffix.letter == 0) return true;
    std::int32_t& field = suffix.letter == 'l' ? name.layer : name.microbatch;
    if (field >= 0) return true;
    const auto value = parse_int32(suffix.digits);
    if (!value) return false;
    field = *value;
    word.remove_suffix(suffix.digits.size() + 2);
  }
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The text between the quotes, or nothing where an escape is unknown.
std::optional<std::string> unescape(std::string_view body) {
  std::string out;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out += body[i];
      continue;
    }
    if (++i == body.size()) return std::nullopt;
    if (body[i] == '"' || body[i] == '\\') {
      out += body[i];
    } else if (body[i] == 'x' && i + 2 < body.size() && hex_value(body[i + 1]) >= 0 &&
               hex_value(body[i + 2]) >= 0) {
      out += static_cast<char>(hex_value(body[i + 1]) * 16 + hex_value(body[i + 2]));
      i += 2;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// Where the closing quote of a quoted token stands.
std::size_t closing_quote(std::string_view token) {
  std::size_t i = 1;
  while (token[i] != '"') i += token[i] == '\\' ? 2 : 1;
  return i;
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "the end of the text";
  if (token.kind == TokenKind::kNewline) return "the end of the line";
  constexpr std::size_t kLongest = 40;  // A message stays readable whatever was written.
  const std::string_view text = token.text;
  return text.size() <= kLongest ? fmt::format("'{}'", text) : fmt::format("'{}…'", text.substr(0, kLongest));
}

}  // namespace

bool needs_quotes(std::string_view label) {
  if (label.empty() || !is_letter(label.front())) return true;
  for (const char c : label) {
    if (!is_word(c)) return true;
  }
  return trailing_suffix(label).letter != 0;
}

std::string quoted(std::string_view label) {
  std::string out = "\"";
  for (const char c : label) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

Lexer::Lexer(std::string_view text, std::string_view place) : text_(text), place_(place) {
  token_ = scan();
  second_ = scan();
}

Token Lexer::take() {
  const Token taken = token_;
  token_ = second_;
  second_ = scan();
  return taken;
}

std::size_t Lexer::end_of_number(std::size_t begin) const {
  std::size_t end = begin;
  bool plain = true;  // So far only digits and points: an exponent may follow.
  while (end < text_.size() && (is_digit(text_[end]) || is_letter(text_[end]) || text_[end] == '.')) {
    const bool exponent = plain && (text_[end] == 'e' || text_[end] == 'E');
    plain = plain && !is_letter(text_[end]);
    ++end;
    if (exponent && end + 1 < text_.size() && (text_[end] == '+' || text_[end] == '-') &&
        is_digit(text_[end + 1])) {
      ++end;
    }
  }
  return end;
}

Token Lexer::scan_quoted(std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') {
    end += text_[end] == '\\' ? 2 : 1;
  }
  if (end >= text_.size() || text_[end] != '"') fail_at(begin, "this quote isn't closed on its line");
  ++end;
  while (end < text_.size() && is_word(text_[end])) ++end;
  return {TokenKind::kQuoted, text_.substr(begin, end - begin), begin};
}

Token Lexer::scan() {
  while (next_ < text_.size() && (text_[next_] == ' ' || text_[next_] == '\t' || text_[next_] == '\r')) {
    ++next_;
  }
  if (next_ < text_.size() && text_[next_] == '#') {
    while (next_ < text_.size() && text_[next_] != '\n') ++next_;
  }
  const std::size_t begin = next_;
  if (begin == text_.size()) return {TokenKind::kEnd, {}, begin};
  const char c = text_[begin];
  Token token{TokenKind::kPunctuation, text_.substr(begin, 1), begin};
  if (c == '\n') {
    token.kind = TokenKind::kNewline;
  } else if (is_letter(c)) {
    std::size_t end = begin;
    while (end < text_.size() && is_word(text_[end])) ++end;
    token = {TokenKind::kWord, text_.substr(begin, end - begin), begin};
  } else if (is_digit(c)) {
    token = {TokenKind::kNumber, text_.substr(begin, end_of_number(begin) - begin), begin};
  } else if (c == '"') {
    token = scan_quoted(begin);
  }
  next_ = begin + token.text.size();
  return token;
}

bool Lexer::accept_word(std::string_view word) {
  if (!at_word(word)) return false;
  take();
  return true;
}

bool Lexer::accept_punctuation(char c) {
  if (!at_punctuation(c)) return false;
  take();
  return true;
}

void Lexer::skip_line_ends() {
  while (token_.kind == TokenKind::kNewline || at_punctuation(';')) take();
}

void Lexer::expect_word(std::string_view word) {
  if (!accept_word(word)) fail_expected(fmt::format("'{}'", word));
}

void Lexer::expect_punctuation(char c) {
  if (!accept_punctuation(c)) fail_expected(fmt::format("'{}'", c));
}

std::int64_t Lexer::expect_integer(std::string_view what, std::int64_t low, std::int64_t high) {
  const std::size_t begin = token_.offset;
  const bool negative = low < 0 && accept_punctuation('-');
  if (token_.kind != TokenKind::kNumber) fail_expected(what);
  const std::string_view digits = token_.text;
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (stop != digits.data() + digits.size()) fail_expected(fmt::format("{} (a whole number)", what));
  if (negative) value = -value;
  if (error != std::errc() || value < low || value > high) {
    fail_at(begin, fmt::format("'{}{}' is out of range; expected {} from {} to {}", negative ? "-" : "",
                               digits.substr(0, 40), what, low, high));
  }
  take();
  return value;
}

Name Lexer::expect_name(std::string_view what) {
  if (token_.kind != TokenKind::kWord && token_.kind != TokenKind::kQuoted) fail_expected(what);
  const Token token = take();
  Name name;
  std::string_view rest = token.text;
  if (token.kind == TokenKind::kQuoted) {
    const std::size_t close = closing_quote(token.text);
    const auto label = unescape(token.text.substr(1, close - 1));
    if (!label) fail_at(token.offset, "unknown escape; expected \\\", \\\\ or \\xNN");
    name.label = *label;
    rest = token.text.substr(close + 1);
  }
  if (!split_suffixes(rest, name)) {
    fail_at(token.offset, fmt::format("the suffix of {} is too large; expected at most {}", describe(token),
                                      std::numeric_limits<std::int32_t>::max()));
  }
  if (token.kind == TokenKind::kWord) {
    name.label = rest;
  } else if (!rest.empty()) {
    fail_at(token.offset, fmt::format("'{}' behind the quote; expected only suffixes such as .l3.m0", rest));
  }
  return name;
}

std::string Lexer::expect_plain_name(std::string_view what) {
  if (token_.kind == TokenKind::kWord) return std::string(take().text);
  const std::size_t offset = token_.offset;
  Name name = expect_name(what);
  if (name.layer >= 0 || name.microbatch >= 0) {
    fail_at(offset, fmt::format("{} takes no suffix behind the quote", what));
  }
  return std::move(name.label);
}

void Lexer::fail_at(std::size_t offset, std::string_view message) const {
  std::size_t line = 1;
  std::size_t line_begin = 0;
  for (std::size_t i = 0; i < offset && i < text_.size(); ++i) {
    if (text_[i] == '\n') {
      ++line;
      line_begin = i + 1;
    }
  }
  fail(ErrorKind::kInput, "{}:{}:{}: {}", place_, line, offset - line_begin + 1, message);
}

void Lexer::fail_expected(std::string_view what) const {
  fail_at(token_.offset, fmt::format("expected {}, found {}", what, describe(token_)));
}

void Lexer::fail_unknown(const Token& token, std::string_view what, std::string_view word,
                         std::span<const std::string> known) const {
  constexpr std::size_t kListed = 12;  // More would bury the message.
  std::string list;
  for (std::size_t i = 0; i < known.size() && i < kListed; ++i) {
    if (i > 0) list += ", ";
    list += known[i];
  }
  if (known.size() > kListed) list += fmt::format(", … ({} in all)", known.size());
  fail_at(token.offset,
          fmt::format("unknown {} '{}'; expected {}{}", what, word,
                      list.empty() ? "none: there are none" : "one of " + list, did_you_mean(word, known)));
}

}  // namespace orrery
