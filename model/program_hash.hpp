#pragma once
// A short name for a Program, by which ranks, predictions and measurements know that they speak of the same.

#include <string>
#include <string_view>

#include "model/program.hpp"

namespace orrery {

// 32 hexadecimal digits: XXH3.
std::string text_hash(std::string_view text);

// 32 hexadecimal digits: XXH3 of to_text(program), wherever its buffers lie. REQUIRES: as to_text.
std::string program_hash(const Program& program);

}  // namespace orrery
