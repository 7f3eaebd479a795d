#pragma once
// Which kernels, copies and fills the GPU ran, and when: CUPTI's activity records. Needs no privileges; CUPTI
// takes one client per process, so that nothing is traced under another profiler. Tracing slows launches down
// and records every node of a graph by itself: for runs that measure kernels, not for those that measure
// steps.

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/cuda/libraries.hpp"

namespace orrery::cuda {

struct TracedKernel {
  std::int32_t name = 0;  // In Trace::names.
  std::uint32_t stream = 0, correlation = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // Of CUPTI's clock.
  std::uint64_t graph_node = 0;           // graph_node_id() of the captured node; 0: of no graph.
};

struct Trace {
  std::vector<TracedKernel> kernels;  // By start.
  std::vector<std::string> names;     // Demangled; "copy" and "fill" are not of kernels.
  std::int64_t dropped = 0;           // Records that CUPTI had no room for.
};

// One at a time in a process, made before the graphs that are to be traced are instantiated: nodes are copied
// then, and what CUPTI records are the copies, which the tracer leads back to the captured ones. All THROW
// Error(kRuntime).
class Tracer {
 public:
  explicit Tracer(const Cupti& library);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  void start();
  // Waits for the GPU; what ran since start().
  Trace stop();

  // CUPTI's clock now, to relate its times to others.
  std::int64_t now_ns() const;
  // What kernels of a captured node carry, in every graph instantiated from it; none: CUPTI doesn't know the
  // node.
  std::optional<std::uint64_t> graph_node_id(cudaGraphNode_t node) const;

 private:
  const Cupti& library_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool running_ = false;
};

}  // namespace orrery::cuda
