#pragma once
// The rewrites that lowering does on what each stage does for a micro-batch and on what a rank does in a
// step. Each leaves the plan's mathematics as it is, can be switched off, and is verified after it has run
// (split-optimizer with the whole Program).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class LoweringPass : std::uint8_t {
  kMergeCollectives,
  kSplitCollectives,
  kAsyncCollectives,
  kSplitOptimizer,
};
std::string_view to_string(LoweringPass pass);  // "merge-collectives", …
// One line on what it does.
std::string_view description(LoweringPass pass);
const std::vector<LoweringPass>& all_lowering_passes();  // In the order in which they run.

// Which of them run; to begin with those that every framework's program has: merge-collectives and
// async-collectives.
class LoweringPasses {
 public:
  LoweringPasses();
  bool contains(LoweringPass pass) const { return (on_ >> static_cast<int>(pass) & 1U) != 0; }
  void set(LoweringPass pass, bool on);
  bool operator==(const LoweringPasses&) const = default;

 private:
  std::uint32_t on_ = 0;
};

// "all", "none", "default", or names separated by commas, which switch passes on, or off with a minus before
// the name, from what the list began with; one that begins with a name begins with none, one that begins with
// a minus with the default. Nothing where a name isn't known; `fault` then says which, and what is.
std::optional<LoweringPasses> parse_lowering_passes(std::string_view text, std::string& fault);
std::string to_string(const LoweringPasses& passes);

// What a pass did to a Program, over all roles.
struct PassReport {
  LoweringPass pass = LoweringPass::kMergeCollectives;
  bool on = true;
  // Over all roles: instructions dropped, moved or added per micro-batch; of split-optimizer, updates added
  // to a step.
  std::int64_t changes = 0;
  // Of this run: not part of any answer. split-optimizer is part of writing the step and has no time of its
  // own.
  double seconds = 0;
};

}  // namespace orrery
