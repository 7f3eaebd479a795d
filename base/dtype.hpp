#pragma once
// Number formats and their sizes.

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery {

enum class DType : std::uint8_t { kFp32, kTf32, kBf16, kFp16, kFp8, kInt64, kInt32, kUint8 };
inline constexpr int kDTypeCount = 8;

// Bytes of one element in memory (TF32 is stored as FP32).
constexpr std::int64_t size_bytes(DType type) {
  switch (type) {
    case DType::kInt64: return 8;
    case DType::kFp32:
    case DType::kTf32:
    case DType::kInt32: return 4;
    case DType::kBf16:
    case DType::kFp16: return 2;
    case DType::kFp8:
    case DType::kUint8: return 1;
  }
  return 0;
}

// "bf16", "fp32", …: the words used in scenario files and Program text.
std::string_view to_string(DType type);
std::optional<DType> parse_dtype(std::string_view word);

}  // namespace orrery
