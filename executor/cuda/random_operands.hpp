#pragma once
// What kernels are timed on.

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "executor/cuda/memory.hpp"

namespace orrery::cuda {

// bf16 numbers around 0, none of them 0; read as fp16, fp32 or fp8 they are finite too. The same ones every
// 4 MiB.
class RandomOperands {
 public:
  RandomOperands();
  // Fills device memory in the stream's order. REQUIRES: this outlives that.
  void fill(std::span<std::byte> memory, cudaStream_t stream) const;

 private:
  Memory pattern_;
};

}  // namespace orrery::cuda
