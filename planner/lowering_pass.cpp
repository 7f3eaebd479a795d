#include "planner/lowering_pass.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.hpp"

namespace orrery {
namespace {

std::vector<std::string> known_words() {
  std::vector<std::string> words = {"all", "none", "default"};
  for (const LoweringPass pass : all_lowering_passes()) words.emplace_back(to_string(pass));
  return words;
}

void set_all(LoweringPasses& passes, bool on) {
  for (const LoweringPass pass : all_lowering_passes()) passes.set(pass, on);
}

// Whether the word is known.
bool apply_word(std::string_view word, bool first, LoweringPasses& passes) {
  if (word == "all" || word == "none") {
    set_all(passes, word == "all");
    return true;
  }
  if (word == "default") {
    passes = LoweringPasses();
    return true;
  }
  const bool on = !word.starts_with('-');
  const std::string_view name = on ? word : word.substr(1);
  for (const LoweringPass pass : all_lowering_passes()) {
    if (name != to_string(pass)) continue;
    if (first && on) set_all(passes, false);
    passes.set(pass, on);
    return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(LoweringPass pass) {
  switch (pass) {
    case LoweringPass::kMergeCollectives: return "merge-collectives";
    case LoweringPass::kSplitCollectives: return "split-collectives";
    case LoweringPass::kAsyncCollectives: return "async-collectives";
    case LoweringPass::kSplitOptimizer: return "split-optimizer";
  }
  return "?";
}

std::string_view description(LoweringPass pass) {
  switch (pass) {
    case LoweringPass::kMergeCollectives:
      return "move a tensor once for all its readers in a layer, sum partial sums before they are reduced";
    case LoweringPass::kSplitCollectives:
      return "cut products and the tensor-parallel gathers and scatters beside them in four, to overlap them";
    case LoweringPass::kAsyncCollectives:
      return "start collectives when their data is there, wait for them where it is read";
    case LoweringPass::kSplitOptimizer:
      return "update bucket by bucket, so that updates overlap with reductions and gathers";
  }
  return "";
}

const std::vector<LoweringPass>& all_lowering_passes() {
  static const std::vector<LoweringPass> kAll = {
      LoweringPass::kMergeCollectives, LoweringPass::kSplitCollectives, LoweringPass::kAsyncCollectives,
      LoweringPass::kSplitOptimizer};
  return kAll;
}

LoweringPasses::LoweringPasses() {
  set(LoweringPass::kMergeCollectives, true);
  set(LoweringPass::kAsyncCollectives, true);
}

void LoweringPasses::set(LoweringPass pass, bool on) {
  const std::uint32_t bit = 1U << static_cast<unsigned>(pass);
  on_ = on ? on_ | bit : on_ & ~bit;
}

std::optional<LoweringPasses> parse_lowering_passes(std::string_view text, std::string& fault) {
  LoweringPasses passes;
  for (bool first = true; first || !text.empty(); first = false) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (!apply_word(word, first, passes)) {
      const std::vector<std::string> known = known_words();
      fault = fmt::format("names no pass with \"{}\"{}; known are {}", word, did_you_mean(word, known),
                          fmt::join(known, ", "));
      return std::nullopt;
    }
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return passes;
}

std::string to_string(const LoweringPasses& passes) {
  std::vector<std::string_view> names;
  for (const LoweringPass pass : all_lowering_passes()) {
    if (passes.contains(pass)) names.push_back(to_string(pass));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

}  // namespace orrery
