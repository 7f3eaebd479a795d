#pragma once
// What the software of a published run does that its table doesn't say: which kernels it launches, what it
// overlaps, in which type it sums gradients. Defaults of the code at that time, by name; none of them was
// chosen by looking at a measured time.

#include <optional>
#include <string>

#include "base/dtype.hpp"
#include "calibration/training_row.hpp"

namespace orrery {

struct FrameworkHabits {
  std::string name;             // For notes: "Megatron-LM before FlashAttention".
  std::string kernel_set;       // See planner/kernel_set.hpp.
  bool flash_attention = true;  // One kernel for the whole of attention; otherwise scores go through memory.
  int zero_stage = 0;           // Where the row doesn't say.
  bool overlap_gradient_reduce = false;
  bool overlap_parameter_gather = false;
  bool sequence_parallel = false;  // With tensor parallelism, where the row doesn't say.
  DType gradient_dtype = DType::kFp32;
  bool recompute_full = false;  // Where the row doesn't say.
  bool cuda_graphs = false;
  double launch_s =
      0;  // Of the host, per instruction of a Program; 0: as the Profile has it, measured from C++.
};

// Nothing for software whose habits aren't known here.
std::optional<FrameworkHabits> framework_habits(const TrainingRow& row);

}  // namespace orrery
