#pragma once
// Imports written down for tests.

#include <string>

#include "base/error.hpp"
#include "scenarios/framework_import.hpp"

namespace orrery {

// The value of a key; "" when it isn't there.
inline std::string value_of(const ImportedPlan& plan, std::string_view key) {
  const ImportedKey* found = plan.find(key);
  return found == nullptr ? "" : found->value;
}

// All of them as one line of "key value" pairs, sections left away where they are `section`'s.
inline std::string values_of(const ImportedPlan& plan, std::string_view section) {
  std::string text;
  for (const ImportedKey& key : plan.keys) {
    if (!key.key.starts_with(section)) continue;
    text += (text.empty() ? "" : ", ") + key.key.substr(section.size()) + " " + key.value;
  }
  return text;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// What importing says; "" when it says nothing.
inline std::string import_message(std::string_view text, std::string_view place,
                                  const FrameworkImportOptions& options = {}) {
  try {
    import_plan(text, place, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace orrery
