#pragma once
// The words and separators of a shell script, quotes and expansions still in place.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

struct ShellToken {
  enum class Kind : std::uint8_t {
    kWord,
    kArray,
    kSeparator,
    kCaseEnd,
    kAnd,
    kOr,
    kPipe,
    kOpen,
    kClose,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string raw;                                 // kWord; kArray: "NAME=" or "NAME+=".
  std::vector<std::pair<std::string, int>> items;  // kArray: its words with their lines.
  int line = 0;
};

// The end of what begins at `at`: one character, a quote with all that is in it, or an expansion $(…), ${…},
// `…`. npos when it doesn't end.
std::size_t skip_shell_piece(std::string_view text, std::size_t at, int depth = 0);

// A variable's name at the beginning of the text; "" when there is none.
std::string_view shell_name(std::string_view text);

class ShellScanner {
 public:
  ShellScanner(std::string_view text, std::string_view place) : text_(text), place_(place) {}

  // Comments, redirections and here-documents are passed over. THROWS Error(kInput).
  ShellToken next();

 private:
  bool at_blank() const;
  void skip_blanks_and_comments(bool newlines);
  void end_line();
  void skip_redirection();
  std::string raw_word();
  ShellToken array(std::string raw);
  void advance(std::size_t to);
  [[noreturn]] void unended(int line) const;

  std::string_view text_, place_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<std::pair<std::string, bool>> documents_;  // Delimiter, whether tabs before it are dropped.
};

}  // namespace orrery
