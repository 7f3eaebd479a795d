#pragma once
// The kernel figures of default_profile.

#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

enum class AttentionKernels : std::uint8_t {
  kNative,  // Written for the GPU's own tensor core instructions: cuDNN and FlashAttention 3 on Hopper.
  kLegacy,  // FlashAttention 2: Ampere's instructions on every GPU since.
};

// Fills the kernel figures, their errors and their provenance: as fitted on H200, or carried over to another
// GPU by what is known of its architecture.
void set_kernel_costs(const GpuType& gpu, Profile& profile);

// Attention of the given implementation instead of the one that the GPU's own software would choose.
void set_attention_kernels(const GpuType& gpu, AttentionKernels kernels, Profile& profile);

}  // namespace orrery
