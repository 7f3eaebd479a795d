#pragma once
// What the probe measures, each on the current device and as JSON. Times are seconds, rates per second, and
// every figure is the median of several runs unless its key says otherwise.

#include <string>
#include <vector>

#include "executor/cuda/probe/json.hpp"

namespace orrery::cuda {

// Copies on the device (bytes read and written both counted) and between pinned host memory and it.
JsonObject measure_copies();

// Host time of a plain launch; device time of a node in a replayed graph; the shortest kernel.
JsonObject measure_launches();

// Y[tokens, outputs] = X[tokens, inputs] · W[outputs, inputs]ᵀ in bf16 with fp32 sums, as the layers of a
// transformer run it: in a burst after a pause, and sustained, when the clock has settled at what power and
// heat allow. Empty, with the reason in `left_out`, when the probe was built without cuBLASLt.
std::vector<JsonObject> measure_matmuls(std::string& left_out);

// NCCL's collectives over the first `gpus` devices, a thread each. Empty with the reason in `left_out` when
// they can't be measured here.
std::vector<JsonObject> measure_collectives(int gpus, std::string& left_out);

// "2.28.9", "" without NCCL.
std::string nccl_version();

}  // namespace orrery::cuda
