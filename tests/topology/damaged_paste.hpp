#pragma once
// What happens to a table between a terminal and a bug report, at random but repeatable.

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery {

// `text` after one to three kinds of damage drawn by `seed`: cut at a byte, lines dropped, doubled, shuffled
// or cut, cells glued, a column dropped, blanks for tabs, blanks collapsed, indented, prefixed, coloured,
// CRLF.
std::string damaged_paste(std::string_view text, std::uint64_t seed);

}  // namespace orrery
