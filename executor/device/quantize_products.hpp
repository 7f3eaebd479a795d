#pragma once
// Products of an instruction that is to run in FP8.

#include <cstdint>
#include <set>
#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::device {

// Where copies of operands lie while the instruction runs.
struct Fp8Memory {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// Every product of bf16 matrices becomes one of FP8 copies, which are made before it: with k innermost, as
// Hopper's FP8 units take them, and an operand of several products once. `gradients`: where operands begin
// that are gradients, which become E5M2. THROWS Error(kRuntime) where the copies don't fit into memory.
// REQUIRES: no launch but products writes what products read.
std::vector<Launch> quantize_products(const std::vector<Launch>& launches, const Fp8Memory& memory,
                                      const std::set<const std::byte*>& gradients);

}  // namespace orrery::device
