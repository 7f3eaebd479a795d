// The keys of a scenario file. scenario.schema.json says the same to editors; a test holds the two together.

#include "scenarios/scenario.hpp"

namespace orrery {

const std::vector<SectionKeys>& scenario_sections() {
  static const std::vector<SectionKeys> kSections = {
      {"scenario",
       {"name", "description", "model", "sequence", "global_batch", "cluster", "plan", "engine", "stragglers",
        "faults", "profile", "prices", "output"}},
      {"model",
       {"name",
        "hidden",
        "layers",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn",
        "vocab",
        "max_positions",
        "embedding_dim",
        "norm",
        "norm_epsilon",
        "positions",
        "rotary_fraction",
        "gated_mlp",
        "activation",
        "tied_head",
        "qkv_bias",
        "attention_out_bias",
        "mlp_bias",
        "head_bias",
        "qk_norm",
        "parallel_residual",
        "shared_input_norm",
        "residual_dropout",
        "embedding_dropout"}},
      {"cluster",
       {"name", "node", "nodes", "gpu", "gpus_per_node", "nvlink", "pcie", "nics", "nic", "fabric"}},
      {"fabric", {"kind", "oversubscription", "nodes_per_leaf", "hop_latency"}},
      {"gpu", {"name", "peak", "memory", "bandwidth", "power", "source"}},
      {"peak", {"fp32", "tf32", "bf16", "fp16", "fp8"}},
      {"plan",
       {"dp", "tp", "pp", "layers_per_stage", "microbatch", "schedule", "sequence_parallel", "zero",
        "recompute", "precision", "gradient_type", "clip_gradients", "bucket", "overlap", "vocab_multiple",
        "kernel_set", "cuda_graphs"}},
      {"overlap", {"gradient_reduce", "parameter_gather"}},
      {"engine", {"kind", "fold"}},
      {"straggler", {"rank", "slowdown"}},
      {"fault", {"rank", "what", "factor", "from", "until"}},
      {"profile",
       {"matmul_efficiency", "attention_efficiency", "attention_backward_efficiency", "memory_efficiency",
        "launch", "graph_node", "kernel_floor", "compute_interference", "transfer_interference",
        "step_latency", "network_step_latency", "collective_base"}},
      {"prices", {"gpu_hour", "source", "date"}},
      {"output", {"json", "trace"}},
  };
  return kSections;
}

}  // namespace orrery
