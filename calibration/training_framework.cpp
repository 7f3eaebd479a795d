#include "calibration/training_framework.hpp"

#include <array>
#include <string_view>

namespace orrery {
namespace {

// PyTorch's interpreter with its tape takes 40 us for a kernel on the host of our H200 (36 to 44 in three
// runs with recompute, 28 to 47 without: tools/gpu-launches, docs/results/launches-h200.json). Its layer,
// Megatron-LM's of 2021, launches 83 kernels forward, again and backward, for which a Program has 50
// instructions: attention's are one.
constexpr double kInterpretedLaunch = 40e-6 * 83 / 50;

// Megatron-LM until 2022 (Narayanan et al. 2021; its arguments.py of that time): fused scale, mask and
// softmax but no FlashAttention; gradients reduced after the last backward, nothing gathered (the distributed
// optimizer came later); activation checkpointing in every published benchmark.
FrameworkHabits megatron_2021(const TrainingRow& row) {
  FrameworkHabits habits;
  habits.name = "Megatron-LM before FlashAttention";
  habits.launch_s = kInterpretedLaunch;
  habits.kernel_set = "megatron";
  habits.flash_attention = false;
  // fp16 gradients are reduced as they are; bf16 ones are accumulated in fp32
  // (--accumulate-allreduce-grads-in-fp32 is switched on by --bf16).
  habits.gradient_dtype = row.precision == "FP16" ? DType::kFp16 : DType::kFp32;
  habits.recompute_full = true;
  return habits;
}

// NeMo and Megatron-Bridge recipes: Transformer Engine's attention, distributed optimizer with both overlaps,
// sequence parallelism wherever there is tensor parallelism, gradients reduced in bf16.
FrameworkHabits nemo() {
  FrameworkHabits habits;
  habits.name = "NeMo recipe";
  habits.launch_s = kInterpretedLaunch;
  habits.kernel_set = "megatron";
  habits.zero_stage = 1;
  habits.overlap_gradient_reduce = true;
  habits.overlap_parameter_gather = true;
  habits.sequence_parallel = true;
  habits.gradient_dtype = DType::kBf16;
  return habits;
}

// Megatron-LM's own defaults since Transformer Engine: the overlaps are flags that are off unless given.
FrameworkHabits megatron_core() {
  FrameworkHabits habits;
  habits.name = "Megatron-Core defaults";
  habits.launch_s = kInterpretedLaunch;
  habits.kernel_set = "megatron";
  return habits;
}

// InternEvo's configs/7B_sft.py: overlap_sync_grad on, overlap_sync_param off; bf16 gradients; separate
// kernels for the residual additions.
FrameworkHabits internevo() {
  FrameworkHabits habits;
  habits.name = "InternEvo defaults";
  habits.launch_s = kInterpretedLaunch;
  habits.kernel_set = "reference";
  habits.zero_stage = 1;
  habits.overlap_gradient_reduce = true;
  habits.gradient_dtype = DType::kBf16;
  return habits;
}

// llmq and llm.c are hand-written CUDA: residual additions join the norm, cuDNN attention, gradients in the
// compute type, reduced as the backward goes.
FrameworkHabits hand_written() {
  FrameworkHabits habits;
  habits.name = "hand-written CUDA";
  habits.kernel_set = "orrery-cuda";
  habits.overlap_gradient_reduce = true;
  habits.gradient_dtype = DType::kBf16;
  return habits;
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  for (const std::string_view beginning : beginnings) {
    if (text.starts_with(beginning)) return true;
  }
  return false;
}

}  // namespace

std::optional<FrameworkHabits> framework_habits(const TrainingRow& row) {
  const std::string_view name = row.framework;
  if (begins_with_any(
          name, {"Megatron-LM 202", "Megatron-LM Jan 2021", "Megatron-DeepSpeed", "Megatron + DeepSpeed"}))
    return megatron_2021(row);
  if (begins_with_any(name, {"NeMo", "Megatron-Bridge"})) return nemo();
  if (begins_with_any(name, {"Megatron-LM 0.", "Megatron-Core"})) return megatron_core();
  if (name == "InternEvo") return internevo();
  if (begins_with_any(name, {"llmq", "llm.c"})) return hand_written();
  return std::nullopt;
}

}  // namespace orrery
