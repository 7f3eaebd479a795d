#include "base/dtype.hpp"

#include <array>
#include <utility>

namespace orrery {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, kDTypeCount> kWords{{
    {"fp32", DType::kFp32},
    {"tf32", DType::kTf32},
    {"bf16", DType::kBf16},
    {"fp16", DType::kFp16},
    {"fp8", DType::kFp8},
    {"int64", DType::kInt64},
    {"int32", DType::kInt32},
    {"uint8", DType::kUint8},
}};

}  // namespace

std::string_view to_string(DType type) { return kWords[static_cast<std::size_t>(type)].first; }

std::optional<DType> parse_dtype(std::string_view word) {
  for (const auto& [name, type] : kWords) {
    if (name == word) return type;
  }
  return std::nullopt;
}

}  // namespace orrery
