#pragma once
// Lists of whole numbers and lists of groups in few characters: 16,384 ranks or 2,048 groups are nearly
// always a few nested arithmetic progressions.
//
//   0-7              0, 1, … 7
//   0-120/8          0, 8, … 120
//   0-7 x 4 step 16  0-7, 16-23, 32-39, 48-55; repeats nest: the rightmost one is the outermost
//   [0-3] x 4 step 4  the groups [0-3] [4-7] [8-11] [12-15]

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"

namespace orrery {

// "0-7 x 4 step 16, 99". The same values always give the same text, and reading it gives the same order.
// "none" for an empty list.
std::string format_numbers(std::span<const std::int64_t> values);

// format_numbers of rank numbers.
std::string format_ranks(std::span<const RankId> ranks);

// "[0-7] x 2048 step 8". Empty for no groups.
std::string format_groups(std::span<const std::vector<RankId>> groups);

// A text of a few characters can ask for any number of ranks; nothing larger than this is believed. The
// largest clusters have some 200,000 GPUs.
inline constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;

class Lexer;

// Reads what format_numbers writes. Values lie in [low, kMaxRanks), and there are at most kMaxRanks of them.
std::vector<std::int64_t> read_numbers(Lexer& in, std::string_view what, std::int64_t low);

// Reads what format_groups writes. Together the groups have at most kMaxRanks members.
std::vector<std::vector<RankId>> read_groups(Lexer& in);

}  // namespace orrery
