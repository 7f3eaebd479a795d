#pragma once
// Layer splits as people write them: Megatron-LM's layout strings (docs/user-guide/features/
// pipeline_parallel_layout.md there), e.g. "Et*3|(tt|)*29,m|L".

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// What one virtual stage holds; nothing is allowed.
struct StageContent {
  bool embedding = false;
  std::int32_t layers = 0;      // Transformer layers.
  std::int32_t prediction = 0;  // Multi-token prediction layers.
  bool loss = false;            // The head with its loss.
  bool operator==(const StageContent&) const = default;
};

// One entry per virtual stage. E embedding, t layer, m multi-token prediction layer, L head with loss; '|'
// ends a stage; '*n' repeats the symbol or the bracketed group before it n ≥ 1 times; commas and blanks mean
// nothing. The model must come out whole and in order: one E, first; layers; m; one L, last. THROWS
// Error(kInput) with the column (from 1) and what was expected there.
std::vector<StageContent> parse_layout(std::string_view text);

// The same as text, shortened where symbols repeat within a stage: "Et*3|t*2|m|L". parse_layout reads it
// back.
std::string to_text(std::span<const StageContent> stages);

}  // namespace orrery
