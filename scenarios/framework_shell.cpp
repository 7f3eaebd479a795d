#include "scenarios/framework_shell.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.hpp"
#include "scenarios/framework_shell_expand.hpp"
#include "scenarios/framework_shell_scan.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr std::size_t kDeepest = 64;

enum class Truth : std::uint8_t { kNo, kMaybe, kYes };

Truth negated(Truth truth) {
  return truth == Truth::kMaybe ? truth : truth == Truth::kYes ? Truth::kNo : Truth::kYes;
}
Truth truth(bool value) { return value ? Truth::kYes : Truth::kNo; }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What a test of one, two or three words says.
Truth test(std::vector<std::string> words) {
  if (words.empty()) return Truth::kMaybe;
  if (words.front() == "!") {
    words.erase(words.begin());
    return negated(test(std::move(words)));
  }
  for (const std::string& word : words) {
    if (!unknown_names(word).empty() || word.find('*') != std::string::npos) return Truth::kMaybe;
  }
  if (words.size() == 1) return truth(!words[0].empty());
  if (words.size() == 2 && words[0] == "-z") return truth(words[1].empty());
  if (words.size() == 2 && words[0] == "-n") return truth(!words[1].empty());
  if (words.size() != 3) return Truth::kMaybe;
  const std::string& action = words[1];
  if (action == "=" || action == "==") return truth(words[0] == words[2]);
  if (action == "!=") return truth(words[0] != words[2]);
  const auto left = parse_integer(words[0]), right = parse_integer(words[2]);
  if (!left || !right) return Truth::kMaybe;
  if (action == "-eq") return truth(*left == *right);
  if (action == "-ne") return truth(*left != *right);
  if (action == "-lt") return truth(*left < *right);
  if (action == "-le") return truth(*left <= *right);
  if (action == "-gt") return truth(*left > *right);
  if (action == "-ge") return truth(*left >= *right);
  return Truth::kMaybe;
}

// What a batch script asks SLURM for, which SLURM tells it back in variables.
FrameworkVariables slurm_variables(std::string_view text) {
  FrameworkVariables found;
  for (std::size_t at = text.find("#SBATCH"); at != std::string_view::npos;
       at = text.find("#SBATCH", at + 1)) {
    const std::string_view line = text.substr(at + 7, text.find('\n', at) - at - 7);
    const std::size_t name_at = line.find_first_not_of(" \t");
    if (name_at == std::string_view::npos) continue;
    const std::string_view option = line.substr(name_at);
    const std::size_t end = std::min(option.find_first_of("= \t"), option.size());
    const std::string_view name = option.substr(0, end);
    const std::size_t value_at = option.find_first_not_of("= \t", end);
    if (value_at == std::string_view::npos) continue;
    const std::string_view rest = option.substr(value_at);
    const std::string_view value = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (value.empty()) continue;
    if (name == "--nodes" || name == "-N") {
      for (const char* variable : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
        found.emplace_back(variable, value);
    } else if (name == "--gpus-per-node") {
      for (const char* variable : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"})
        found.emplace_back(variable, value);
    }
  }
  return found;
}

class ShellReader {
 public:
  ShellReader(std::string_view text, std::string_view place, const FrameworkVariables& given)
      : scanner_(text, place), place_(place), variables_(place, given) {
    for (const auto& [name, value] : slurm_variables(text)) variables_.assign(name, {{value, 0, false}});
  }

  ShellScript read() {
    for (;;) {
      const ShellToken token = scanner_.next();
      step(token);
      if (token.kind == ShellToken::Kind::kEnd) break;
    }
    for (const auto& [name, words] : variables_.all()) script_.variables.push_back(words);
    return std::move(script_);
  }

 private:
  using Kind = ShellToken::Kind;
  enum class BlockKind : std::uint8_t { kIf, kLoop, kCase, kGroup };
  struct Block {
    BlockKind kind;
    Truth active;            // Whether what stands here is done.
    Truth taken;             // kIf, kCase: whether an earlier branch was.
    std::string subject;     // kCase.
    bool in_header = false;  // Before then, do, or the end of a pattern.
    Truth condition = Truth::kYes;
  };

  Truth active() const {
    Truth all = Truth::kYes;
    for (const Block& block : blocks_) all = std::min(all, block.in_header ? Truth::kYes : block.active);
    return all;
  }

  Block* top(BlockKind kind) {
    return !blocks_.empty() && blocks_.back().kind == kind ? &blocks_.back() : nullptr;
  }

  void open(BlockKind kind, Truth state, int line) {
    if (blocks_.size() == kDeepest) fail(ErrorKind::kInput, "{}:{}: nested too deeply", place_, line);
    blocks_.push_back({kind, state, Truth::kNo, "", kind != BlockKind::kGroup, Truth::kYes});
  }

  void step(const ShellToken& token) {
    if (Block* block = top(BlockKind::kCase); block != nullptr && block->in_header)
      return pattern(token, *block);
    const bool in_double_test = !parts_.empty() && parts_.front().raw == "[[" && parts_.back().raw != "]]";
    if (in_double_test && token.kind != Kind::kEnd && token.kind != Kind::kSeparator) {
      parts_.push_back(token);
      if (token.kind != Kind::kWord) parts_.back().raw = "&&";  // More than one test; see truth_of().
      return;
    }
    if (token.kind == Kind::kWord || token.kind == Kind::kArray) {
      if (parts_.empty() && token.kind == Kind::kWord && keyword(token)) return;
      parts_.push_back(token);
      return;
    }
    if (token.kind == Kind::kOpen && parts_.size() == 1) {  // NAME () {
      parts_.clear();
      function_ = true;
      return;
    }
    finish_command(token.kind);
    if (token.kind == Kind::kCaseEnd && top(BlockKind::kCase) != nullptr)
      top(BlockKind::kCase)->in_header = true;
  }

  // Words that mean something at the beginning of a command. Returns whether the word was one.
  bool keyword(const ShellToken& token) {
    const std::string& word = token.raw;
    if (is_one_of(word, {"if", "while", "until", "for", "select"})) {
      const bool conditional = word == "if";
      open(conditional ? BlockKind::kIf : BlockKind::kLoop, Truth::kMaybe, token.line);
      return conditional ||
             word != "for";  // The names after "for" are read as a command; see finish_command.
    }
    if (word == "case") {
      open(BlockKind::kCase, Truth::kNo, token.line);
      return true;
    }
    if (is_one_of(word, {"then", "do"})) {
      if (!blocks_.empty()) begin_body(blocks_.back());
      return true;
    }
    if (word == "elif" || word == "else") {
      if (Block* block = top(BlockKind::kIf)) {
        next_branch(*block);
        block->in_header = word == "elif";
        if (word == "else") block->active = negated(block->taken);
      }
      return true;
    }
    if (is_one_of(word, {"fi", "done", "esac", "}"})) {
      const BlockKind kind = word == "fi"     ? BlockKind::kIf
                             : word == "done" ? BlockKind::kLoop
                             : word == "esac" ? BlockKind::kCase
                                              : BlockKind::kGroup;
      if (top(kind) != nullptr) blocks_.pop_back();
      return true;
    }
    if (word == "{") {
      open(BlockKind::kGroup, function_ ? Truth::kMaybe : Truth::kYes, token.line);
      function_ = false;
      return true;
    }
    if (word == "function") {
      function_ = true;
      return true;
    }
    return word == "time";
  }

  static void begin_body(Block& block) {
    if (block.kind == BlockKind::kIf && block.in_header) {
      block.active = std::min(negated(block.taken), block.condition);
    }
    block.in_header = false;
  }

  static void next_branch(Block& block) {
    block.taken = std::max(block.taken, block.active);
    block.condition = Truth::kYes;
  }

  // Between "case" and the end of a pattern.
  void pattern(const ShellToken& token, Block& block) {
    if (token.kind == Kind::kEnd || token.raw == "esac") {
      blocks_.pop_back();
      pattern_.clear();
      return;
    }
    if (token.kind == Kind::kWord) pattern_.push_back(token.raw);
    if (pattern_.size() == 2 && pattern_[1] == "in" && block.subject.empty()) {
      block.subject = variables_.expand_text(pattern_[0], token.line) + "\n";  // Not empty once it is read.
      pattern_.clear();
    }
    if (token.kind != Kind::kClose) return;
    next_branch(block);
    Truth matches = Truth::kNo;
    for (const std::string& raw : pattern_) {
      const std::string text = variables_.expand_text(raw, token.line);
      if (text == "*") {
        matches = Truth::kYes;
      } else if (!unknown_names(text + block.subject).empty() ||
                 text.find_first_of("*?[") != std::string::npos) {
        matches = std::max(matches, Truth::kMaybe);
      } else if (text + "\n" == block.subject) {
        matches = Truth::kYes;
      }
    }
    pattern_.clear();
    block.active = std::min(negated(block.taken), matches);
    block.in_header = false;
  }

  // What a command says about the one after && or ||; of other programs, that they succeed.
  Truth truth_of(const std::vector<ShellToken>& parts) {
    const std::string& first = parts.front().raw;
    const bool brackets = first == "[" || first == "[[";
    if (first == "!") return Truth::kMaybe;
    if (!brackets && first != "test") return first == "false" ? Truth::kNo : Truth::kYes;
    std::vector<std::string> words;
    for (std::size_t i = 1; i < parts.size() - (brackets ? 1 : 0); ++i) {
      if (parts[i].raw == "&&" || parts[i].raw == "-a" || parts[i].raw == "-o") return Truth::kMaybe;
      words.push_back(variables_.expand_text(parts[i].raw, parts[i].line));
    }
    return test(std::move(words));
  }

  void finish_command(Kind separator) {
    Truth result = Truth::kYes;
    if (!parts_.empty()) {
      const Truth here = std::min(active(), list_);
      const bool header = !blocks_.empty() && blocks_.back().in_header;
      if (header) {
        header_command(blocks_.back());
      } else if (here != Truth::kNo) {
        execute(here);
      }
      result = truth_of(parts_);
      parts_.clear();
    }
    if (separator == Kind::kAnd) {
      list_ = std::min(list_, result);
    } else if (separator == Kind::kOr) {
      list_ = list_ == Truth::kNo ? Truth::kYes : negated(result);
    } else {
      list_ = Truth::kYes;
    }
    joined_by_ = separator;
  }

  // A condition, or the names that a loop runs through.
  void header_command(Block& block) {
    if (block.kind == BlockKind::kLoop) {
      if (parts_.size() >= 2 && parts_[0].raw == "for" && !shell_name(parts_[1].raw).empty()) {
        variables_.forget(shell_name(parts_[1].raw), parts_[1].line);
      }
      return;
    }
    const std::string& first = parts_.front().raw;
    const bool is_test = is_one_of(first, {"[", "[[", "test", "true", "false"});
    const Truth result = is_test ? truth_of(parts_) : Truth::kMaybe;
    if (joined_by_ == Kind::kAnd) {
      block.condition = std::min(block.condition, result);
    } else if (joined_by_ == Kind::kOr) {
      block.condition = std::max(block.condition, result);
    } else {
      block.condition = result;
    }
  }

  void execute(Truth here) {
    std::size_t first = 0;
    while (first < parts_.size() && assignment(parts_[first])) ++first;
    if (first == parts_.size()) {
      for (const ShellToken& part : parts_) assign(part, here);
      return;
    }
    const std::string name = variables_.expand_text(parts_[first].raw, parts_[first].line);
    const std::vector<ShellToken> arguments(parts_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                            parts_.end());
    if (is_one_of(name, {"export", "declare", "local", "readonly", "typeset"})) {
      for (const ShellToken& part : arguments) {
        if (assignment(part)) assign(part, here);
      }
      return;
    }
    if (name == "read" || name == "unset" || name == "mapfile" || name == "getopts") {
      for (const ShellToken& part : arguments) {
        if (!shell_name(part.raw).empty()) variables_.forget(shell_name(part.raw), part.line);
      }
      return;
    }
    if (name == "source" || name == ".") {
      script_.notes.push_back(fmt::format("line {}: {} isn't read", parts_[first].line,
                                          arguments.empty() ? name : quote(arguments.front().raw)));
      return;
    }
    ShellCommand command{{{name, parts_[first].line, false}}, parts_[first].line, here == Truth::kYes};
    for (const ShellToken& part : arguments) {
      const std::vector<ShellWord> words = variables_.expand(part.raw, part.line);
      command.words.insert(command.words.end(), words.begin(), words.end());
    }
    if (!is_one_of(name, {"echo", "printf", "cat", "[", "[[", "test", ":"})) {
      script_.commands.push_back(std::move(command));
    }
  }

  static bool assignment(const ShellToken& token) {
    if (token.kind == Kind::kArray) return true;
    const std::string_view name = shell_name(token.raw);
    const std::string_view rest = std::string_view(token.raw).substr(name.size());
    return !name.empty() && (rest.starts_with('=') || rest.starts_with("+="));
  }

  void assign(const ShellToken& token, Truth here) {
    const std::string_view name = shell_name(token.raw);
    std::string_view rest = std::string_view(token.raw).substr(name.size());
    bool appends = rest.starts_with('+');
    rest.remove_prefix(appends ? 2 : 1);
    std::vector<ShellWord> words;
    if (token.kind == Kind::kArray) {
      for (const auto& [raw, line] : token.items) {
        const std::vector<ShellWord> item = variables_.expand(raw, line);
        words.insert(words.end(), item.begin(), item.end());
      }
    } else {
      words.push_back({variables_.expand_text(rest, token.line), token.line, false});
    }
    if (here == Truth::kYes) {
      if (appends) {
        variables_.append(name, words, token.kind == Kind::kArray);
      } else {
        variables_.assign(name, std::move(words));
      }
      return;
    }
    if (variables_.given(name)) return;
    // It may happen: what is only added is left away with a note, anything else makes the value unknown.
    const auto before = variables_.all().find(name);
    if (before != variables_.all().end() && !appends) {
      const std::size_t known = before->second.size();
      const auto same = [](const ShellWord& a, const ShellWord& b) { return a.text == b.text; };
      const bool longer = token.kind == Kind::kArray && words.size() >= known &&
                          std::equal(before->second.begin(), before->second.end(), words.begin(), same);
      if (longer) {
        words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(known));
        appends = true;
      } else if (token.kind == Kind::kWord && known == 1 &&
                 words[0].text.starts_with(before->second[0].text)) {
        words[0].text.erase(0, before->second[0].text.size());
        appends = true;
      }
    }
    if (!appends) return variables_.forget(name, token.line);
    std::string added;
    for (const ShellWord& word : words) added += (added.empty() ? "" : " ") + show_unknown(word.text);
    if (added.find_first_not_of(' ') == std::string::npos) return;
    script_.notes.push_back(fmt::format("line {}: {} is added to {} under a condition that isn't known",
                                        token.line, quote(added), name));
  }

  ShellScanner scanner_;
  std::string_view place_;
  ShellVariables variables_;
  ShellScript script_;
  std::vector<Block> blocks_;
  std::vector<ShellToken> parts_;     // Of the command that is being read.
  std::vector<std::string> pattern_;  // Of the case that is being read.
  Truth list_ = Truth::kYes;          // Whether the next command of an && or || list is done.
  Kind joined_by_ = Kind::kSeparator;
  bool function_ = false;  // The next group is one's body.
};

}  // namespace

ShellScript read_shell(std::string_view text, std::string_view place, const FrameworkVariables& given) {
  return ShellReader(text, place, given).read();
}

}  // namespace orrery
