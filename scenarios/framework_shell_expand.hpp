#pragma once
// Variables of a shell script and the expansion of its words.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/framework_shell.hpp"

namespace orrery {

class ShellVariables {
 public:
  ShellVariables(std::string_view place, const FrameworkVariables& given);

  // Does nothing to a given one.
  void assign(std::string_view name, std::vector<ShellWord> words);
  void append(std::string_view name, const std::vector<ShellWord>& words, bool array);
  void forget(std::string_view name, int line);  // Its value isn't known from now on.
  bool given(std::string_view name) const;

  const std::map<std::string, std::vector<ShellWord>, std::less<>>& all() const { return values_; }

  // One raw word as the words that it becomes.
  std::vector<ShellWord> expand(std::string_view raw, int line);
  // The same without splitting, as on the right of '='.
  std::string expand_text(std::string_view raw, int line);

 private:
  struct Sink;
  struct Value {
    std::vector<ShellWord> words;
    bool set = false;
  };
  void walk(std::string_view raw, bool quoted, Sink& sink);
  std::size_t dollar(std::string_view raw, std::size_t at, bool quoted, Sink& sink);
  void braces(std::string_view inside, bool quoted, Sink& sink);
  void put(const Value& value, bool list, bool quoted, Sink& sink);
  Value value_of(std::string_view name, int line) const;
  std::string arithmetic(std::string_view text, int line);

  std::string_view place_;
  std::map<std::string, std::vector<ShellWord>, std::less<>> values_;
  std::vector<std::string> given_;
  int depth_ = 0;
};

// Whole numbers with + - * / % and brackets; nothing where it isn't that, or a variable isn't known. Names
// are those of variables.
std::optional<std::int64_t> shell_arithmetic(std::string_view text, const ShellVariables& variables);

}  // namespace orrery
