#pragma once
// Products of instructions that are to run in FP8.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "executor/device/launch.hpp"
#include "model/program.hpp"

namespace orrery::device {

struct Fp8Memory {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};
// What an instruction has for copies of its operands. What is kept begins with largest elements; where there
// is more room, copies with tokens innermost follow.
struct Fp8Buffers {
  Fp8Memory own;                  // While it runs.
  BufferId keeps;                 // Left for later instructions; invalid: nothing is.
  Fp8Memory kept;                 // Where that lies.
  std::vector<BufferId> earlier;  // Left by earlier ones.
};
// Where operands begin that aren't weights.
struct Fp8Operands {
  std::set<const std::byte*> gradients, inputs;
};

// Of a step's instructions, in the order of the Program.
class Fp8Products {
 public:
  // Every product of bf16 matrices becomes one of FP8 copies, which are made before it: with k innermost, as
  // Hopper's FP8 units take them, and an operand of several products once. What earlier instructions have
  // left isn't made again. THROWS Error(kRuntime) where the copies don't fit into memory. REQUIRES: no launch
  // but products writes what products read.
  std::vector<Launch> quantize(const std::vector<Launch>& launches, const Fp8Arithmetic& arithmetic,
                               const Fp8Buffers& buffers, const Fp8Operands& operands);

  // Of launches that aren't products: the last norm or gate leaves the largest element of what it makes, if
  // it is one dense matrix.
  void leave_largest(std::vector<Launch>& launches, BufferId buffer, const Fp8Memory& memory);

 private:
  std::map<BufferId, std::vector<Quantize>> kept_;
};

}  // namespace orrery::device
