#pragma once
// "did you mean": the known word nearest to what was written.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orrery {

// Nothing when no word is within a third of its length in edits (insert, delete, replace, swap).
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

// "; did you mean 'vocab_size'?" or "", ready to append to a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace orrery
