#pragma once
// Attention as a graph of cuDNN's operations, which its engines run as one kernel or a few, never holding the
// scores. q[b,s,heads,d], k[b,s,kv_heads,d], v[b,s,kv_heads,e], o[b,s,heads,e] are arrays of their own, or
// the first three columns of one (AttentionShape::strides); cuDNN's dimensions are [b, heads, s, d], with
// strides that say so.

#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/cudnn_descriptor.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// kBackward adds the gradients of queries up in an fp32 array with atomics, in any order.
// kBackwardDeterministic holds the scores' gradients, heads · s² of them, and adds in order.
enum class AttentionPass : std::uint8_t { kForward, kBackward, kBackwardDeterministic };

struct AttentionForm {
  device::AttentionShape shape;
  DType dtype = DType::kBf16;
  AttentionPass pass = AttentionPass::kForward;
  bool operator==(const AttentionForm&) const = default;
};
std::string describe(const AttentionForm& form);

// What an address in a variant pack is for. The last three are numbers in the host's memory.
enum class AttentionOperand : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDo,
  kDq,
  kDk,
  kDv,
  kDqSum,   // fp32 [b,heads,s,d], zeros before: kBackward only.
  kRowSum,  // fp32 [b,heads,s]: of dO · O.
  kScale,
  kMinusInfinity,
  kOne,
};

// The graph of operations; a null handle makes one that only the heuristic with a device's description takes.
Descriptor attention_graph(const Cudnn& library, cudnnHandle_t handle, const AttentionForm& form);

// Engine configurations that cuDNN offers, its best guess first. `device`: a description instead of a GPU, or
// null.
std::vector<Descriptor> attention_engines(const Cudnn& library, const Descriptor& graph,
                                          const Descriptor* device);

// The engine's number, for messages.
std::int64_t engine_number(const Descriptor& configuration);

// How many engines would run a form on the GPU that `device_json` describes. Needs no GPU, but a
// libcuda.so.1: the toolkit's stub will do.
std::size_t check_engines(const Cudnn& library, const std::string& device_json, const AttentionForm& form);
// Such a description of the current GPU.
std::string dump_device_json(const Cudnn& library, int device);

}  // namespace orrery::cuda
