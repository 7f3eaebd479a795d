#include "planner/launch.hpp"

#include <algorithm>
#include <cmath>

#include "planner/context_attention.hpp"
#include "planner/stage_template.hpp"

namespace orrery {
namespace {

bool reads_output_of(const Op& op, const Op& earlier) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
    return std::find(earlier.outputs.begin(), earlier.outputs.end(), input) != earlier.outputs.end();
  });
}

KernelKind kernel_kind(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight: return KernelKind::kMatmul;
    case OpKind::kAttention: return KernelKind::kAttention;
    case OpKind::kAttentionGrad: return KernelKind::kAttentionBackward;
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingGrad: return KernelKind::kEmbedding;
    case OpKind::kCrossEntropy:
    case OpKind::kCrossEntropyGrad: return KernelKind::kCrossEntropy;
    case OpKind::kAdamW: return KernelKind::kOptimizer;
    default: return KernelKind::kElementwise;
  }
}

void set_matmul_shape(const Graph& graph, const Op& op, const Sizes& sizes, Kernel& kernel) {
  // A packed projection is one product: its parts add up along the columns (along the contracted dimension
  // for the input's gradient).
  const bool sums_k = op.kind == OpKind::kMatmulGradInput;
  const std::size_t pairs = op.kind == OpKind::kMatmul            ? op.outputs.size()
                            : op.kind == OpKind::kMatmulGradInput ? op.inputs.size() / 2
                                                                  : op.inputs.size() - 1;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const Contraction part = contraction(graph, op, pair, sizes);
    kernel.batch = part.batch;
    kernel.m = part.m;
    kernel.n = sums_k ? part.n : kernel.n + part.n;
    kernel.k = sums_k ? kernel.k + part.k : part.k;
  }
}

// `keys`: how many there are, of which a query sees those that the mask leaves; `pairs`: of one sequence and
// head.
void set_attention_shape(const Graph& graph, const Op& op, const Sizes& sizes, std::int64_t keys,
                         double pairs, Kernel& kernel) {
  const std::vector<DimId>& query = graph[op.inputs[0]].shape;
  const std::int64_t sequence = sizes[query[1].index()];
  const std::int64_t value_dim = sizes[graph[op.inputs[2]].shape[3].index()];
  kernel.m = sequence;
  kernel.n = keys;
  // Latent attention has values of another size than keys: the mean does the same arithmetic.
  kernel.k = (sizes[query[3].index()] + value_dim) / 2;
  // The heads' dimension may be shared with keys and values (multi-head attention) or not (grouped).
  kernel.batch = sizes[query[0].index()] * sizes[query[2].index()];
  // Within a window, and of blocks that travel round a ring, every query sees about as many keys: a plain
  // product with the mean of them. What is left is a causal triangle.
  const double mean = pairs / static_cast<double>(sequence);
  if (std::abs(2 * mean - static_cast<double>(keys)) > 1e-9 * mean) kernel.n = std::llround(mean);
}

// What a rank's attention works on: all keys, or one block of them.
void add_attention(const Graph& graph, OpId id, const Sharding& sharding, std::int32_t ring_step,
                   Kernel& kernel) {
  const Op& op = graph[id];
  const Sizes& sizes = sharding.sizes(id);
  const std::int64_t local = sizes[graph[op.inputs[0]].shape[1].index()];
  const std::int32_t degree = sharding.context_parallel();
  const double pairs = ring_step >= 0 ? ring_step_pairs(op.attributes, local * degree, degree, ring_step)
                                      : context_pairs(op.attributes, local * degree, degree);
  kernel.flops += flops(graph, op, sizes) * (pairs / attention_pairs(op.attributes, local));
  set_attention_shape(graph, op, sizes, ring_step >= 0 ? local : local * degree, pairs, kernel);
}

struct LaunchTraffic {
  const Graph& graph;
  const GraphIndex& index;
  const Plan& plan;
  const Sharding& sharding;
  const Launch& launch;

  bool made_inside(TensorId tensor) const {
    return std::any_of(launch.ops.begin(), launch.ops.end(),
                       [&](OpId op) { return graph[tensor].producer == op; });
  }
  bool read_only_inside(TensorId tensor) const {
    const auto& readers = index.readers[tensor.index()];
    return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](OpId reader) {
      return std::find(launch.ops.begin(), launch.ops.end(), reader) != launch.ops.end();
    });
  }
  std::int64_t input_bytes(OpId op, TensorId tensor) const {
    return sharding.bytes(tensor, sharding.needed(op, tensor));
  }
  std::int64_t output_bytes(OpId op, TensorId tensor) const {
    return sharding.bytes(tensor, sharding.made(op, tensor));
  }

  void add_embedding(OpId id, Kernel& kernel) const {
    const Op& op = graph[id];
    if (op.kind == OpKind::kEmbedding) {  // Only the rows that are looked up.
      const std::int64_t rows = output_bytes(id, op.outputs[0]);
      kernel.read_bytes += rows;
      kernel.written_bytes += rows;
      return;
    }
    const std::int64_t incoming = input_bytes(id, op.inputs[1]);
    const std::int64_t rows =
        incoming / size_bytes(graph[op.inputs[1]].dtype) * size_bytes(plan.gradient_dtype);
    kernel.read_bytes += incoming + rows;
    kernel.written_bytes += rows;
  }

  void add(OpId id, Kernel& kernel, std::vector<TensorId>& seen) const {
    const Op& op = graph[id];
    for (const TensorId input : op.inputs) {
      if (made_inside(input) || std::find(seen.begin(), seen.end(), input) != seen.end()) continue;
      seen.push_back(input);
      kernel.read_bytes += input_bytes(id, input);
    }
    for (const TensorId output : op.outputs) {
      if (graph[output].kind == TensorKind::kParameterGradient) {
        const std::int64_t bytes = sharding.stored_elements(output) * size_bytes(plan.gradient_dtype);
        kernel.read_bytes += bytes;
        kernel.written_bytes += bytes;
      } else if (!read_only_inside(output)) {
        kernel.written_bytes += output_bytes(id, output);
      }
    }
  }
};

bool rotates(OpKind kind) { return kind == OpKind::kRope || kind == OpKind::kRopeGrad; }

// Whether something has to happen to what the earlier op makes before the op can read it: a sum over ranks, a
// move, or steps of a ring.
bool apart(const Sharding& sharding, const Graph& graph, OpId earlier, OpId op) {
  if (sharding.rings(earlier)) return true;
  for (const TensorId input : graph[op].inputs) {
    if (graph[input].producer != earlier) continue;
    const bool partial = sharding.partial_over(earlier, input).valid();
    const PlacementId made = sharding.made(earlier, input);
    if (partial || made != sharding.stored(input) || made != sharding.needed(op, input)) return true;
  }
  return false;
}

}  // namespace

std::vector<Launch> cut_launches(const Graph& graph, const Sharding& sharding, const std::vector<OpId>& ops,
                                 const KernelSet& kernels, bool across_blocks) {
  std::vector<Launch> launches;
  for (const OpId id : ops) {
    const Op& op = graph[id];
    if (!launches.empty()) {
      const OpId last_id = launches.back().ops.back();
      const Op& last = graph[last_id];
      const bool partial =
          (last.kind == OpKind::kAdd && sharding.partial_over(last_id, last.outputs[0]).valid()) ||
          (rotates(op.kind) && apart(sharding, graph, last_id, id));
      if (!partial && kernels.fuses(last.kind, op.kind) && reads_output_of(op, last) &&
          (across_blocks || last.block == op.block)) {
        launches.back().ops.push_back(id);
        continue;
      }
    }
    launches.push_back({{id}});
  }
  return launches;
}

Kernel launch_kernel(const Graph& graph, const GraphIndex& index, const Plan& plan, const Sharding& sharding,
                     const Launch& launch) {
  Kernel kernel;
  kernel.kind = kernel_kind(graph[launch.ops.front()].kind);
  kernel.dtype = plan.compute_dtype;
  const LaunchTraffic traffic{graph, index, plan, sharding, launch};
  std::vector<TensorId> seen;
  for (const OpId id : launch.ops) {
    const Op& op = graph[id];
    const Sizes& sizes = sharding.sizes(id);
    if (op.kind == OpKind::kAttention || op.kind == OpKind::kAttentionGrad) {
      add_attention(graph, id, sharding, launch.ring_step, kernel);
    } else {
      kernel.flops += flops(graph, op, sizes);
    }
    if (kernel_kind(op.kind) == KernelKind::kMatmul) set_matmul_shape(graph, op, sizes, kernel);
    if (kernel.kind == KernelKind::kEmbedding) {
      traffic.add_embedding(id, kernel);
    } else {
      traffic.add(id, kernel, seen);
    }
  }
  return kernel;
}

}  // namespace orrery
