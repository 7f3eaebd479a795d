#pragma once
// A small scenario that is right, and the means to spoil it.

#include <string>

#include "base/error.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

inline const std::string kSmall = R"(name: small
model: {hidden: 1024, layers: 8, heads: 8, ffn: 4096, vocab: 32000}
sequence: 2048
global_batch: 32
cluster: {node: dgx-h100, nodes: 1}
plan: {dp: 2, tp: 4}
)";

// The small scenario with its first `from` replaced.
inline std::string small_with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  return text.replace(text.find(from), from.size(), to);
}

inline Scenario parse_small(const Overrides& overrides = {}) {
  return parse_scenario(kSmall, "small.yaml", overrides);
}

// What reading says; "" when it says nothing. Anything but an input Error passes through.
inline std::string message_of(const std::string& yaml, const Overrides& overrides = {}) {
  try {
    parse_scenario(yaml, "small.yaml", overrides);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return error.what();
  }
  return "";
}

}  // namespace orrery
