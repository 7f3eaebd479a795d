#include "executor/cuda/random_operands.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/random.hpp"
#include "executor/cuda/checks.hpp"

namespace orrery::cuda {
namespace {

constexpr std::int64_t kPatternBytes = std::int64_t{4} << 20;

// The sum of four uniform numbers: nearly normal, at most 4 off 0.
std::uint16_t random_bf16(std::uint64_t index) {
  const std::uint64_t bits = mix64(index + 1);
  float sum = 0;
  for (int part = 0; part < 4; ++part)
    sum += static_cast<float>(bits >> (16 * part) & 0xffff) / 32768.0F - 1.0F;
  if (sum == 0) sum = 1;
  std::uint32_t word = 0;
  std::memcpy(&word, &sum, sizeof word);
  word >>= 16;
  // As E5M2 or E4M3 a byte of such bits may be infinite or no number.
  constexpr std::uint32_t kHighExponent = 0x7c;
  if ((word & kHighExponent) == kHighExponent) word ^= 0x40;
  return static_cast<std::uint16_t>(word);
}

}  // namespace

RandomOperands::RandomOperands() : pattern_(kPatternBytes, "random numbers", MemoryPlace::kPinnedHost) {
  for (std::int64_t i = 0; i < kPatternBytes / 2; ++i) {
    const std::uint16_t number = random_bf16(static_cast<std::uint64_t>(i));
    std::memcpy(pattern_.data() + 2 * i, &number, sizeof number);
  }
}

void RandomOperands::fill(std::span<std::byte> memory, cudaStream_t stream) const {
  const std::size_t bytes = memory.size() / 2 * 2;
  std::size_t done = std::min(bytes, static_cast<std::size_t>(kPatternBytes));
  if (done == 0) return;
  check(cudaMemcpyAsync(memory.data(), pattern_.data(), done, cudaMemcpyHostToDevice, stream),
        "writing random numbers");
  while (done < bytes) {
    const std::size_t part = std::min(done, bytes - done);
    check(cudaMemcpyAsync(memory.data() + done, memory.data(), part, cudaMemcpyDeviceToDevice, stream),
          "copying random numbers");
    done += part;
  }
}

}  // namespace orrery::cuda
