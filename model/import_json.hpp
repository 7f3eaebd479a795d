#pragma once
// Guards the reading of large JSON files of other tools. Part of the readers of FX graphs and Chakra traces.

#include <string_view>

namespace orrery {

// THROWS Error(kInput) "place:line:column: …" for what isn't JSON or is nested deeper than 64; afterwards a
// parser can't fail.
void expect_json(std::string_view text, std::string_view place);

}  // namespace orrery
