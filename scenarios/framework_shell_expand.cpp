#include "scenarios/framework_shell_expand.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "scenarios/framework_shell_scan.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kMostText = std::size_t{1} << 20;  // A script that doubles a variable line by line.
constexpr int kDeepest = 32;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

// What a word has become so far.
struct ShellVariables::Sink {
  std::vector<ShellWord> words;
  int line = 0;
  bool open = false;  // The last word may still grow.
  bool split = true;
  std::size_t size = 0;

  void text(std::string_view piece, int from_line) {
    if (!open) words.push_back({"", from_line, false});
    open = true;
    words.back().text += piece;
    size += piece.size();
  }
};

ShellVariables::ShellVariables(std::string_view place, const FrameworkVariables& given) : place_(place) {
  for (const auto& [name, value] : given) {
    values_[name] = {{value, 0, false}};
    given_.push_back(name);
  }
}

bool ShellVariables::given(std::string_view name) const {
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

void ShellVariables::assign(std::string_view name, std::vector<ShellWord> words) {
  if (!given(name)) values_[std::string(name)] = std::move(words);
}

void ShellVariables::append(std::string_view name, const std::vector<ShellWord>& words, bool array) {
  if (given(name)) return;
  std::vector<ShellWord>& value = values_[std::string(name)];
  if (array || value.empty()) {
    value.insert(value.end(), words.begin(), words.end());
  } else {
    for (const ShellWord& word : words) value.back().text += word.text;
  }
  std::size_t size = 0;
  for (const ShellWord& word : value) size += word.text.size() + 1;
  if (size > kMostText) fail(ErrorKind::kInput, "{}: {} grows beyond 1 MiB", place_, name);
}

void ShellVariables::forget(std::string_view name, int line) {
  assign(name, {{unknown_mark(name), line, false}});
}

ShellVariables::Value ShellVariables::value_of(std::string_view name, int line) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return {found->second, true};
  return {{{unknown_mark(name), line, false}}, false};
}

void ShellVariables::put(const Value& value, bool list, bool quoted, Sink& sink) {
  const std::size_t count = list ? value.words.size() : std::min<std::size_t>(value.words.size(), 1);
  for (std::size_t i = 0; i < count; ++i) {
    const ShellWord& word = value.words[i];
    if (i > 0 && sink.split) sink.open = false;
    if (i > 0 && !sink.split) sink.text(" ", word.line);
    if (quoted || !sink.split) {
      sink.text(word.text, word.line > 0 ? word.line : sink.line);
      continue;
    }
    // Unquoted: blanks separate words.
    std::string_view rest = word.text;
    while (!rest.empty()) {
      if (is_blank(rest.front())) {
        sink.open = false;
        rest.remove_prefix(1);
        continue;
      }
      std::size_t length = 0;
      while (length < rest.size() && !is_blank(rest[length])) {  // Blanks in a mark are the mark's.
        const std::size_t mark_end = rest[length] == '\x01' ? rest.find('\x02', length) : kNone;
        length = mark_end == kNone ? length + 1 : mark_end + 1;
      }
      const bool fresh = !sink.open;
      sink.text(rest.substr(0, length), word.line > 0 ? word.line : sink.line);
      // Whole word, one unknown: it may come to nothing.
      sink.words.back().unsure = fresh && rest.front() == '\x01' && rest.find('\x02') + 1 == length;
      rest.remove_prefix(length);
    }
  }
  if (quoted && count == 0 && !list) sink.text("", sink.line);
  if (sink.size > kMostText) fail(ErrorKind::kInput, "{}:{}: expands to more than 1 MiB", place_, sink.line);
}

// What stands in ${…}.
void ShellVariables::braces(std::string_view inside, bool quoted, Sink& sink) {
  const std::string_view plain = shell_name(inside);
  std::string_view name = plain;
  if (name.empty() && !inside.empty() && inside.find_first_not_of("0123456789@*") != 0) {
    name = inside.substr(0, inside.find_first_not_of("0123456789@*"));
  }
  const Value unknown = {{{unknown_mark(plain.empty() ? inside : plain), sink.line, false}}, false};
  if (name.empty()) return put(unknown, false, quoted, sink);
  std::string_view rest = inside.substr(name.size());
  Value value = value_of(name, sink.line);
  bool list = name == "@" || name == "*";
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == kNone) return put(unknown, false, quoted, sink);
    const std::string_view index = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    list = index == "@" || index == "*";
    const auto number = parse_integer(index);
    if (!list) {
      if (!number || *number < 0 || *number >= std::ssize(value.words)) {
        return put(unknown, false, quoted, sink);
      }
      value.words = {value.words[static_cast<std::size_t>(*number)]};
    }
  }
  if (rest.empty()) return put(value, list, quoted, sink);
  const bool colon = rest.starts_with(':');
  if (colon) rest.remove_prefix(1);
  const char action = rest.empty() ? '\0' : rest.front();
  if (std::string_view("-=+?").find(action) == kNone) return put(unknown, false, quoted, sink);
  rest.remove_prefix(1);
  const bool empty = value.words.empty() || (value.words.size() == 1 && value.words[0].text.empty());
  const bool there = value.set && !(colon && empty);
  if (action == '+') {
    if (there) walk(rest, quoted, sink);
    return;
  }
  if (there || action == '?') return put(value, list, quoted, sink);
  if (action == '=') assign(name, {{expand_text(rest, sink.line), sink.line, false}});
  walk(rest, quoted, sink);
}

std::string ShellVariables::arithmetic(std::string_view text, int line) {
  const std::string expanded = expand_text(text, line);
  const auto value = shell_arithmetic(expanded, *this);
  if (value) return std::to_string(*value);
  std::vector<std::string> names = unknown_names(expanded);
  // In arithmetic a variable may stand without its dollar sign.
  for (std::string_view rest = expanded; names.empty() && !rest.empty();) {
    const std::string_view name = shell_name(rest);
    if (!name.empty() && !values_.contains(name)) names.emplace_back(name);
    rest.remove_prefix(std::max<std::size_t>(name.size(), 1));
  }
  return unknown_mark(names.empty() ? "((" + std::string(text) + "))" : names.front());
}

// The expansion at a '$'; returns where the text goes on.
std::size_t ShellVariables::dollar(std::string_view raw, std::size_t at, bool quoted, Sink& sink) {
  const std::string_view rest = raw.substr(at + 1);
  const std::size_t end = skip_shell_piece(raw, at);
  if (end == kNone) return raw.size();
  if (rest.starts_with("((") && end >= at + 5 && raw.substr(end - 2, 2) == "))") {
    const std::string value = arithmetic(raw.substr(at + 3, end - at - 5), sink.line);
    put({{{value, sink.line, false}}, true}, false, quoted, sink);
    return end;
  }
  if (rest.starts_with('(')) {
    put({{{unknown_mark(raw.substr(at + 1, end - at - 1)), sink.line, false}}, false}, false, quoted, sink);
    return end;
  }
  if (rest.starts_with('{')) {
    braces(raw.substr(at + 2, end - at - 3), quoted, sink);
    return end;
  }
  const std::string_view name = shell_name(rest);
  if (!name.empty()) {
    put(value_of(name, sink.line), false, quoted, sink);
    return at + 1 + name.size();
  }
  if (!rest.empty() && std::string_view("0123456789@*#?$!-").find(rest.front()) != kNone) {
    put(value_of(rest.substr(0, 1), sink.line), false, quoted, sink);
    return at + 2;
  }
  sink.text("$", sink.line);
  return at + 1;
}

void ShellVariables::walk(std::string_view raw, bool quoted, Sink& sink) {
  if (++depth_ > kDeepest) fail(ErrorKind::kInput, "{}:{}: expansions nested too deeply", place_, sink.line);
  for (std::size_t at = 0; at < raw.size();) {
    const char c = raw[at];
    if (c == '$') {
      at = dollar(raw, at, quoted, sink);
    } else if (c == '`') {
      const std::size_t end = std::min(skip_shell_piece(raw, at), raw.size());
      put({{{unknown_mark(raw.substr(at, end - at)), sink.line, false}}, false}, false, quoted, sink);
      at = end;
    } else if (c == '\\' && at + 1 < raw.size()) {
      if (raw[at + 1] != '\n') {
        const bool stays = quoted && std::string_view("$`\"\\").find(raw[at + 1]) == kNone;
        sink.text(raw.substr(stays ? at : at + 1, stays ? 2 : 1), sink.line);
      } else {
        // A continued line within quotes.
      }
      at += 2;
    } else if (c == '\'' && !quoted) {
      const std::size_t end = std::min(skip_shell_piece(raw, at), raw.size());
      sink.text(raw.substr(at + 1, end - at - 2), sink.line);
      at = end;
    } else if (c == '"') {
      const std::size_t end = std::min(skip_shell_piece(raw, at), raw.size());
      if (quoted) {  // The quotes of a default inside quotes: ${X:-"8"}.
        walk(raw.substr(at + 1, end - at - 2), true, sink);
      } else {
        const std::string_view inside = raw.substr(at + 1, end - at - 2);
        if (inside.empty()) sink.text("", sink.line);
        walk(inside, true, sink);
      }
      at = end;
    } else {
      const std::size_t end = std::min(raw.find_first_of("$`\\'\"", at + 1), raw.size());
      sink.text(raw.substr(at, end - at), sink.line);
      at = end;
    }
  }
  --depth_;
}

std::vector<ShellWord> ShellVariables::expand(std::string_view raw, int line) {
  Sink sink;
  sink.line = line;
  walk(raw, false, sink);
  return std::move(sink.words);
}

std::string ShellVariables::expand_text(std::string_view raw, int line) {
  Sink sink;
  sink.line = line;
  sink.split = false;
  walk(raw, false, sink);
  std::string text;
  for (const ShellWord& word : sink.words) text += word.text;
  return text;
}

}  // namespace orrery
