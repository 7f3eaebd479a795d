#include "topology/nccl/nccl_graph.hpp"

#include <algorithm>
#include <array>

namespace orrery::nccl {
namespace {

constexpr std::array<std::string_view, 12> kPathClasses{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                        "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

}  // namespace

std::string_view to_string(PathClass path) { return kPathClasses[static_cast<std::size_t>(path)]; }

std::optional<PathClass> parse_path_class(std::string_view text) {
  const auto* const found = std::ranges::find(kPathClasses, text);
  if (found == kPathClasses.end()) return std::nullopt;
  return static_cast<PathClass>(found - kPathClasses.begin());
}

}  // namespace orrery::nccl
