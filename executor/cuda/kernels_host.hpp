#pragma once
// What launchers need on the host, without CUDA's headers.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/dtype.hpp"

struct CUstream_st;

namespace orrery::cuda {

using Stream = CUstream_st*;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Tables and parts of workspaces begin at multiples of this.
inline constexpr std::int64_t kPartAlignment = 256;
constexpr std::int64_t align_part(std::int64_t bytes) {
  return divide_up(bytes, kPartAlignment) * kPartAlignment;
}

// Whether 16-byte accesses may begin at all of these; null counts as aligned.
inline bool all_aligned(std::initializer_list<const void*> addresses, std::uintptr_t bytes = 16) {
  for (const void* const address : addresses) {
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) return false;
  }
  return true;
}

// Multiprocessors of the current device.
int multiprocessors();

// THROWS Error(kRuntime) where the launch before it was refused.
void check_launch(const char* kernel);
[[noreturn]] void refuse_type(const char* kernel, DType type);
[[noreturn]] void refuse(const char* kernel, const char* what);

}  // namespace orrery::cuda
