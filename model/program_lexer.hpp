#pragma once
// Tokens of Program text, read on demand: a program of 200,000 instructions has millions of them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace orrery {

enum class TokenKind : std::uint8_t {
  kWord,         // send, all-reduce, qkv.l3.m0
  kQuoted,       // "any text", with a suffix such as .l3.m0 right behind it
  kNumber,       // 7, 10us, 1.5MB, 1e+21
  kPunctuation,  // One character.
  kNewline,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;   // As written, quotes included.
  std::size_t offset = 0;  // Into the whole text.
};

// A name as written: the label, and what its suffixes .l3 and .m0 say.
struct Name {
  std::string label;
  std::int32_t layer = -1;
  std::int32_t microbatch = -1;
  bool operator==(const Name&) const = default;
};

// Whether a label has to be quoted in Program text: it isn't a word, or ends in what would read as a suffix.
bool needs_quotes(std::string_view label);

// "a \"quoted\" label": printable ASCII and UTF-8 stay, control characters become \xNN.
std::string quoted(std::string_view label);

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view place);

  const Token& peek() const { return token_; }
  const Token& peek_second() const { return second_; }
  Token take();

  bool at_word(std::string_view word) const { return token_.kind == TokenKind::kWord && token_.text == word; }
  bool at_punctuation(char c) const {
    return token_.kind == TokenKind::kPunctuation && token_.text.front() == c;
  }
  bool at_line_end() const {
    return token_.kind == TokenKind::kNewline || token_.kind == TokenKind::kEnd || at_punctuation(';');
  }
  // Takes the token if it is this one.
  bool accept_word(std::string_view word);
  bool accept_punctuation(char c);
  void skip_line_ends();

  void expect_word(std::string_view word);
  void expect_punctuation(char c);
  // Any whole number from `low` to `high`. `what` names it in messages: "a rank".
  std::int64_t expect_integer(std::string_view what, std::int64_t low, std::int64_t high);
  // A word or a quoted text, its suffixes split off.
  Name expect_name(std::string_view what);
  // The same where suffixes mean nothing: streams, axes, roles.
  std::string expect_plain_name(std::string_view what);

  // THROWS Error(kInput): "place:line:column: " and the message.
  [[noreturn]] void fail_at(std::size_t offset, std::string_view message) const;
  // "expected WHAT, found 'send'" at the current token.
  [[noreturn]] void fail_expected(std::string_view what) const;
  // "unknown WHAT 'x'; expected one of …; did you mean …".
  [[noreturn]] void fail_unknown(const Token& token, std::string_view what, std::string_view word,
                                 std::span<const std::string> known) const;

 private:
  Token scan();
  Token scan_quoted(std::size_t begin);
  std::size_t end_of_number(std::size_t begin) const;

  std::string_view text_;
  std::string_view place_;
  std::size_t next_ = 0;
  Token token_;
  Token second_;
};

}  // namespace orrery
