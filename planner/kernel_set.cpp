#include "planner/kernel_set.hpp"

#include <algorithm>
#include <array>

namespace orrery {
namespace {

const std::array<KernelSet, 5>& kernel_sets() {
  static const std::array<KernelSet, 5> sets{{
      {"reference", {}},
      {"orrery-host", {}},
      {"orrery-cuda",
       {{OpKind::kDropout, OpKind::kAdd},
        {OpKind::kAdd, OpKind::kNorm},
        {OpKind::kNormGrad, OpKind::kAdd},
        {OpKind::kAdd, OpKind::kDropoutGrad}}},
      {"orrery-cuda-packed",
       {{OpKind::kDropout, OpKind::kAdd},
        {OpKind::kAdd, OpKind::kNorm},
        {OpKind::kNormGrad, OpKind::kAdd},
        {OpKind::kAdd, OpKind::kDropoutGrad},
        {OpKind::kMatmul, OpKind::kRope},
        {OpKind::kAttentionGrad, OpKind::kRopeGrad}},
       false,
       true},
      {"megatron", {{OpKind::kDropout, OpKind::kAdd}}, true},
  }};
  return sets;
}

}  // namespace

bool KernelSet::fuses(OpKind first, OpKind second) const {
  return std::any_of(fusions.begin(), fusions.end(),
                     [&](const Fusion& fusion) { return fusion.first == first && fusion.second == second; });
}

const KernelSet* find_kernel_set(std::string_view name) {
  for (const KernelSet& set : kernel_sets()) {
    if (set.name == name) return &set;
  }
  return nullptr;
}

std::vector<std::string> kernel_set_names() {
  std::vector<std::string> names;
  for (const KernelSet& set : kernel_sets()) names.push_back(set.name);
  return names;
}

}  // namespace orrery
