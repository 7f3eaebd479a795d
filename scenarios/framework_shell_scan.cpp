#include "scenarios/framework_shell_scan.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace orrery {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr int kDeepest = 64;

// A longer one comes before the one that it begins with.
constexpr auto kSeparators = std::to_array<std::pair<std::string_view, ShellToken::Kind>>({
    {";;", ShellToken::Kind::kCaseEnd},
    {"&&", ShellToken::Kind::kAnd},
    {"||", ShellToken::Kind::kOr},
    {"|", ShellToken::Kind::kPipe},
    {"(", ShellToken::Kind::kOpen},
    {")", ShellToken::Kind::kClose},
    {";", ShellToken::Kind::kSeparator},
});

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool ends_word(char c) { return std::string_view(" \t\n;&|()<>").find(c) != kNone; }

// After the closing character; what is quoted or nested inside doesn't count.
std::size_t skip_until(std::string_view text, std::size_t at, char open, char close, int depth) {
  int level = 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == close) {
      if (--level == 0) return at + 1;
      ++at;
    } else if (c == open) {
      ++level;
      ++at;
    } else {
      at = skip_shell_piece(text, at, depth + 1);
      if (at == kNone) return kNone;
    }
  }
  return kNone;
}

std::size_t skip_double_quoted(std::string_view text, std::size_t at, int depth) {
  while (at < text.size() && text[at] != '"') {
    if (text[at] == '\\') {
      at += 2;
    } else if (text[at] == '$' || text[at] == '`') {
      at = skip_shell_piece(text, at, depth + 1);
      if (at == kNone) return kNone;
    } else {
      ++at;
    }
  }
  return at < text.size() ? at + 1 : kNone;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

std::string_view shell_name(std::string_view text) {
  if (text.empty() || !is_name_start(text.front())) return {};
  std::size_t end = 1;
  while (end < text.size() && is_name(text[end])) ++end;
  return text.substr(0, end);
}

std::size_t skip_shell_piece(std::string_view text, std::size_t at, int depth) {
  if (depth > kDeepest) return kNone;
  const char c = text[at];
  const char after = at + 1 < text.size() ? text[at + 1] : '\0';
  if (c == '\\') return std::min(at + 2, text.size());
  if (c == '\'') {
    const std::size_t end = text.find('\'', at + 1);
    return end == kNone ? kNone : end + 1;
  }
  if (c == '"') return skip_double_quoted(text, at + 1, depth);
  if (c == '`') {
    for (std::size_t end = at + 1; end < text.size(); ++end) {
      if (text[end] == '\\') {
        ++end;
      } else if (text[end] == '`') {
        return end + 1;
      }
    }
    return kNone;
  }
  if (c == '$' && after == '(') return skip_until(text, at + 2, '(', ')', depth);
  if (c == '$' && after == '{') return skip_until(text, at + 2, '{', '}', depth);
  return at + 1;
}

void ShellScanner::unended(int line) const {
  fail(ErrorKind::kInput, "{}:{}: a quote or bracket begins here that doesn't end", place_, line);
}

void ShellScanner::advance(std::size_t to) {
  line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                       text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
  at_ = to;
}

bool ShellScanner::at_blank() const { return text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'; }

// Past the newline, and past the here-documents that begin after it.
void ShellScanner::end_line() {
  advance(at_ + 1);
  for (const auto& [delimiter, tabs] : documents_) {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view content = trim(text_.substr(at_, end - at_));
      while (tabs && content.starts_with('\t')) content.remove_prefix(1);
      advance(std::min(end + 1, text_.size()));
      if (content == delimiter) break;
    }
  }
  documents_.clear();
}

void ShellScanner::skip_blanks_and_comments(bool newlines) {
  while (at_ < text_.size()) {
    if (at_blank()) {
      ++at_;
    } else if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      advance(at_ + 2);
    } else if (text_.substr(at_, 3) == "\\\r\n") {
      advance(at_ + 3);
    } else if (text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (newlines && text_[at_] == '\n') {
      end_line();
    } else {
      return;
    }
  }
}

std::string ShellScanner::raw_word() {
  std::string raw;
  const int line = line_;
  while (at_ < text_.size() && !ends_word(text_[at_])) {
    if (text_.substr(at_, 2) == "\\\n") {
      advance(at_ + 2);
      continue;
    }
    const std::size_t end = skip_shell_piece(text_, at_);
    if (end == kNone) unended(line);
    raw += text_.substr(at_, end - at_);
    advance(end);
  }
  return raw;
}

void ShellScanner::skip_redirection() {
  const bool substitution = at_ + 1 < text_.size() && text_[at_ + 1] == '(';
  if (substitution) {  // <(…)
    const std::size_t end = skip_until(text_, at_ + 2, '(', ')', 0);
    if (end == kNone) unended(line_);
    advance(end);
    return;
  }
  const bool document = text_.substr(at_, 2) == "<<" && text_.substr(at_, 3) != "<<<";
  const bool tabs = text_.substr(at_, 3) == "<<-";
  while (at_ < text_.size() && std::string_view("<>&-|").find(text_[at_]) != kNone) ++at_;
  skip_blanks_and_comments(false);
  std::string target = raw_word();
  if (!document) return;
  std::erase_if(target, [](char c) { return c == '"' || c == '\'' || c == '\\'; });
  documents_.emplace_back(target, tabs);
}

ShellToken ShellScanner::array(std::string raw) {
  ShellToken token{ShellToken::Kind::kArray, std::move(raw), {}, line_};
  ++at_;
  for (;;) {
    skip_blanks_and_comments(true);
    if (at_ == text_.size()) unended(token.line);
    if (text_[at_] == ')') break;
    const int line = line_;
    std::string item = raw_word();
    if (item.empty()) {
      ++at_;  // A bare operator, e.g. the '<' of a placeholder.
    } else {
      token.items.emplace_back(std::move(item), line);
    }
  }
  ++at_;
  return token;
}

ShellToken ShellScanner::next() {
  using Kind = ShellToken::Kind;
  for (;;) {
    skip_blanks_and_comments(false);
    if (at_ == text_.size()) return {Kind::kEnd, "", {}, line_};
    const int line = line_;
    const std::string_view rest = text_.substr(at_);
    if (rest.front() == '\n') {
      end_line();
      return {Kind::kSeparator, "", {}, line};
    }
    for (const auto& [text, kind] : kSeparators) {
      if (!rest.starts_with(text)) continue;
      at_ += text.size();
      return {kind, "", {}, line};
    }
    if (rest.starts_with("&>")) {
      ++at_;
      skip_redirection();
      continue;
    }
    if (rest.front() == '&') {
      ++at_;
      return {Kind::kSeparator, "", {}, line};
    }
    if (rest.front() == '<' || rest.front() == '>') {
      skip_redirection();
      continue;
    }
    std::string raw = raw_word();
    const bool redirects = at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>') &&
                           raw.find_first_not_of("0123456789") == kNone;
    if (redirects) continue;  // The 2 of "2>&1".
    const std::string_view name = shell_name(raw);
    const bool assigns = !name.empty() && (raw.substr(name.size()) == "=" || raw.substr(name.size()) == "+=");
    if (assigns && at_ < text_.size() && text_[at_] == '(') return array(std::move(raw));
    return {Kind::kWord, std::move(raw), {}, line};
  }
}

}  // namespace orrery
