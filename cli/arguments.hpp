#pragma once
// Arguments that many commands have.

#include <string>

#include "scenarios/scenario.hpp"

namespace CLI {
class App;
}

namespace orrery {

// --set KEY=VALUE, as often as wanted.
void add_overrides(CLI::App& command, Overrides& overrides);

// --json FILE. `what` is written: "the figures".
void add_json(CLI::App& command, std::string& file, const std::string& what = "the figures");

}  // namespace orrery
