#include "planner/lowering_pass.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
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

void apply_word(std::string_view word, bool first, LoweringPasses& passes) {
  if (word == "all" || word == "none") return set_all(passes, word == "all");
  if (word == "default") {
    passes = LoweringPasses();
    return;
  }
  const bool on = !word.starts_with('-');
  const std::string_view name = on ? word : word.substr(1);
  for (const LoweringPass pass : all_lowering_passes()) {
    if (name != to_string(pass)) continue;
    if (first && on) set_all(passes, false);
    passes.set(pass, on);
    return;
  }
  const std::vector<std::string> known = known_words();
  fail(ErrorKind::kUsage, "--passes: \"{}\" is no pass{}; known are {}", name, did_you_mean(name, known),
       fmt::join(known, ", "));
}

}  // namespace

std::string_view to_string(LoweringPass pass) {
  switch (pass) {
    case LoweringPass::kMergeCollectives: return "merge-collectives";
    case LoweringPass::kAsyncCollectives: return "async-collectives";
    case LoweringPass::kSplitOptimizer: return "split-optimizer";
  }
  return "?";
}

std::string_view description(LoweringPass pass) {
  switch (pass) {
    case LoweringPass::kMergeCollectives:
      return "move a tensor once for all its readers in a layer, sum partial sums before they are reduced";
    case LoweringPass::kAsyncCollectives:
      return "start collectives when their data is there, wait for them where it is read";
    case LoweringPass::kSplitOptimizer:
      return "update bucket by bucket, so that updates overlap with reductions and gathers";
  }
  return "";
}

const std::vector<LoweringPass>& all_lowering_passes() {
  static const std::vector<LoweringPass> kAll = {
      LoweringPass::kMergeCollectives, LoweringPass::kAsyncCollectives, LoweringPass::kSplitOptimizer};
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

LoweringPasses parse_lowering_passes(std::string_view text) {
  LoweringPasses passes;
  for (bool first = true; first || !text.empty(); first = false) {
    const std::size_t comma = text.find(',');
    apply_word(text.substr(0, comma), first, passes);
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
