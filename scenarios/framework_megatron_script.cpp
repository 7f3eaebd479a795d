// Which of a script's commands has Megatron-LM's arguments, and those as settings.

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/framework_shell.hpp"

namespace orrery {
namespace {

// One of these makes a command Megatron-LM's.
constexpr auto kTelling = std::to_array<std::string_view>(
    {"tensor-model-parallel-size", "pipeline-model-parallel-size", "model-parallel-size", "micro-batch-size",
     "global-batch-size", "context-parallel-size", "expert-model-parallel-size"});

struct Arguments {
  std::vector<FrameworkSetting> settings;
  std::vector<std::string> unknown_words;
  int line = 0;

  bool tell() const {
    return std::any_of(settings.begin(), settings.end(), [](const FrameworkSetting& setting) {
      return std::find(kTelling.begin(), kTelling.end(), setting.name) != kTelling.end();
    });
  }
  bool same_as(const Arguments& other) const {
    return std::equal(settings.begin(), settings.end(), other.settings.begin(), other.settings.end(),
                      [](const FrameworkSetting& a, const FrameworkSetting& b) {
                        return a.name == b.name && a.value == b.value;
                      });
  }
};

bool is_flag(const ShellWord& word) { return word.text.size() > 2 && word.text.starts_with("--"); }

// A command in quotes (bash -c "…") is words as well.
std::vector<ShellWord> split_quoted(const std::vector<ShellWord>& words) {
  std::vector<ShellWord> result;
  for (const ShellWord& word : words) {
    const bool holds_flags = word.text.find(" --") != std::string::npos ||
                             word.text.find("\t--") != std::string::npos ||
                             word.text.find("\n--") != std::string::npos;
    if (!holds_flags) {
      result.push_back(word);
      continue;
    }
    std::string_view rest = word.text;
    while (!rest.empty()) {
      const std::size_t begin = rest.find_first_not_of(" \t\n\r");
      if (begin == std::string_view::npos) break;
      rest.remove_prefix(begin);
      std::size_t end = std::min(rest.find_first_of(" \t\n\r"), rest.size());
      const char quote = rest.front();
      if ((quote == '\'' || quote == '"') && rest.find(quote, 1) != std::string_view::npos) {
        end = rest.find(quote, 1) + 1;
        result.push_back({std::string(rest.substr(1, end - 2)), word.line, false});
      } else {
        // A mark's own blanks don't end the word.
        std::size_t mark = rest.find('\x01');
        while (mark < end) {
          const std::size_t after = std::min(rest.find('\x02', mark), rest.size() - 1) + 1;
          end = std::min(rest.find_first_of(" \t\n\r", after), rest.size());
          mark = rest.find('\x01', after);
        }
        const std::string_view text = rest.substr(0, end);
        const bool unsure = text.front() == '\x01' && text.find('\x02') + 1 == text.size();
        result.push_back({std::string(text), word.line, unsure});
      }
      rest.remove_prefix(end);
    }
  }
  return result;
}

Arguments arguments_of(const std::vector<ShellWord>& written, int line) {
  const std::vector<ShellWord> words = split_quoted(written);
  Arguments result;
  result.line = line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(words[i])) {
      if (words[i].unsure) result.unknown_words.push_back(show_unknown(words[i].text));
      continue;
    }
    FrameworkSetting setting;
    const std::size_t equals = words[i].text.find('=');
    setting.written = words[i].text.substr(0, equals);
    setting.name = canonical_name(setting.written);
    setting.line = words[i].line;
    setting.bare = equals == std::string::npos;
    if (!setting.bare) setting.value = words[i].text.substr(equals + 1);
    while (equals == std::string::npos && i + 1 < words.size() && !is_flag(words[i + 1]) &&
           !words[i + 1].text.ends_with(".py")) {
      // An unknown word after the first value is something else.
      if (words[i + 1].unsure && !setting.bare) break;
      setting.unsure = setting.unsure || words[i + 1].unsure;
      setting.value += (setting.bare ? "" : " ") + words[i + 1].text;
      setting.bare = false;
      ++i;
    }
    result.settings.push_back(std::move(setting));
  }
  return result;
}

// Scripts that the script calls: the arguments may stand there.
std::string called(const ShellScript& script) {
  std::vector<std::string> names;
  for (const ShellCommand& command : script.commands) {
    for (const ShellWord& word : command.words) {
      const bool is_script = word.text.ends_with(".sh") || word.text.ends_with(".py");
      const std::string shown = show_unknown(word.text);
      if (is_script && std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
    }
  }
  if (names.empty()) return "";
  if (names.size() > 3) names.resize(3);
  return fmt::format("; they may stand in what it calls ({})", fmt::join(names, ", "));
}

std::vector<Arguments> candidates(const ShellScript& script, bool certain) {
  std::vector<Arguments> found;
  for (const ShellCommand& command : script.commands) {
    if (command.certain != certain) continue;
    Arguments arguments = arguments_of(command.words, command.line);
    if (!arguments.tell()) continue;
    const bool again = std::any_of(found.begin(), found.end(),
                                   [&](const Arguments& other) { return other.same_as(arguments); });
    if (!again) found.push_back(std::move(arguments));
  }
  return found;
}

// A file that only sets variables for another: all the arguments in them together.
Arguments from_variables(const ShellScript& script) {
  Arguments all;
  for (const std::vector<ShellWord>& words : script.variables) {
    Arguments arguments = arguments_of(words, words.empty() ? 0 : words.front().line);
    all.settings.insert(all.settings.end(), arguments.settings.begin(), arguments.settings.end());
  }
  return all;
}

}  // namespace

void read_megatron_script(std::string_view text, const FrameworkImportOptions& options,
                          FrameworkSettings& settings) {
  std::string unix_text(text);
  std::erase(unix_text, '\r');  // Of lines that end as on Windows.
  const ShellScript script = read_shell(unix_text, settings.place(), options.variables);
  std::vector<Arguments> found = candidates(script, true);
  if (found.empty()) found = candidates(script, false);
  if (found.empty()) {
    found = {from_variables(script)};
    if (!found.front().tell()) {
      fail(ErrorKind::kInput,
           "{}: no command has Megatron-LM's arguments (--tensor-model-parallel-size, --micro-batch-size, "
           "…){}",
           settings.place(), called(script));
    }
  }
  const auto runs = static_cast<std::int64_t>(found.size());
  if (options.run > runs || (runs > 1 && options.run == 0)) {
    std::vector<int> lines;
    for (const Arguments& arguments : found) lines.push_back(arguments.line);
    fail(ErrorKind::kInput, "{}: has {} different {} of Megatron-LM (line {}); say which with --run 1 … {}",
         settings.place(), runs, runs == 1 ? "run" : "runs", fmt::join(lines, ", "), runs);
  }
  const Arguments& chosen = found[static_cast<std::size_t>(std::max<std::int64_t>(options.run, 1) - 1)];
  for (const FrameworkSetting& setting : chosen.settings) settings.add(setting);
  for (const std::string& note : script.notes) settings.notes().push_back(note);
  for (const std::string& word : chosen.unknown_words) {
    settings.notes().push_back(fmt::format("{} isn't set in the file", word));
  }
}

}  // namespace orrery
