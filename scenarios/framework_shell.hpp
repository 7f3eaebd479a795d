#pragma once
// Launch scripts, read without running them: assignments, arrays, ${NAME:-default}, arithmetic, and
// conditions on values that are known. What a script takes from elsewhere (its arguments, the environment,
// other programs) stays marked as unknown, and what it does under a condition that isn't known isn't done but
// noted.

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/framework_settings.hpp"

namespace orrery {

struct ShellWord {
  std::string text;  // With unknown_mark() where a value isn't known.
  int line = 0;
  bool unsure = false;  // An unquoted unknown: may be no word, or several.
};

struct ShellCommand {
  std::vector<ShellWord> words;
  int line = 0;
  bool certain = true;  // Else it stands in a loop, a function or under a condition that isn't known.
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<std::vector<ShellWord>> variables;  // What each holds at the end, by name.
  std::vector<std::string> notes;
};

// Variables of `given` keep their value whatever the script says. THROWS Error(kInput) with the line of a
// quote or bracket that doesn't end.
ShellScript read_shell(std::string_view text, std::string_view place, const FrameworkVariables& given);

}  // namespace orrery
