#pragma once
// Attention as software without FlashAttention runs it: the scores of every head go through memory.

#include "calibration/training_case.hpp"
#include "simulator/job.hpp"
#include "topology/profile.hpp"

namespace orrery {

// Replaces the work of each attention kernel by the sum of what is launched instead: two batched products,
// the masked softmax and the dropout of its result; in the backward pass four products, dropout and softmax,
// after the forward again if `recompute_attention`. Products count all pairs: nothing skips the masked half.
void unfuse_attention(Job& job, const TrainingCase& row, const Profile& profile);

}  // namespace orrery
