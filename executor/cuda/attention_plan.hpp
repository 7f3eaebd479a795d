#pragma once
// One form of attention with the engine that runs it.

#include <cstdint>
#include <limits>
#include <vector>

#include "executor/cuda/attention_graph.hpp"

namespace orrery::cuda {

class AttentionPlan {
 public:
  // With the first engine that can be made to run. THROWS where there is none.
  AttentionPlan(const Cudnn& library, cudnnHandle_t handle, const AttentionForm& form);
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  std::size_t engines() const { return engines_.size(); }
  std::size_t engine() const { return engine_; }
  std::int64_t engine_id() const { return engine_number(engines_[engine_]); }
  // Runs by this engine from now on; false: it can't be made to, and nothing changes.
  bool use_engine(std::size_t engine);

  // A workspace: the sum of queries' gradients, the rows' sums, cuDNN's part.
  std::int64_t dq_sum_bytes() const;
  std::int64_t row_sum_bytes() const;
  std::int64_t workspace_bytes() const {
    return dq_sum_bytes() + row_sum_bytes() + compiled_[engine_].workspace_bytes;
  }

  const AttentionForm form;
  // By value in the graph: cuDNN reads them from here at every run.
  const float scale;
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  const float one = 1;
  double microseconds = 0;

  cudnnBackendDescriptor_t raw() const { return compiled_[engine_].plan.raw(); }

 private:
  struct Compiled {
    bool tried = false;
    Descriptor plan;  // None: it can't be made to run.
    std::int64_t workspace_bytes = 0;
  };
  void compile(std::size_t engine);

  const Cudnn& library_;
  const cudnnHandle_t handle_;
  Descriptor graph_;
  std::vector<Descriptor> engines_;
  std::vector<Compiled> compiled_;  // By engine, once it has been tried.
  std::size_t engine_ = 0;
  std::string refusal_;  // Of the last that couldn't be made to run.
};

}  // namespace orrery::cuda
