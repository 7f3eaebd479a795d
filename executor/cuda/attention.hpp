#pragma once
// Attention by cuDNN: plans made once for each form, bound once for each set of addresses, and run without
// making anything. What cuDNN can't do here (windows, chunks, caps, sinks, positions) is for kernels of our
// own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/attention_graph.hpp"
#include "executor/cuda/busy_stream.hpp"
#include "executor/cuda/tune_options.hpp"
#include "executor/device/algorithm_cache.hpp"

namespace orrery::cuda {

// Whether these graphs say what is asked for: bf16 or fp16, heads of at most 128, in eights, queries that see
// all keys or those not after them. The last two ask for addresses too: multiples of 16.
bool supports(const device::AttentionShape& shape, DType dtype);
bool supports(const device::Attention& attention);
bool supports(const device::AttentionGrad& attention);

struct AttentionId {
  std::int32_t index = -1;
};

struct AttentionTime {
  std::string attention;  // As describe() has it.
  std::int64_t engine = -1;
  std::int64_t workspace_bytes = 0;
  double microseconds = 0;  // 0: it wasn't timed.
};

class AttentionPlan;

// A plan with addresses to work on. Not to outlive its AttentionPlans.
class BoundAttention {
 public:
  BoundAttention() = default;

 private:
  friend class AttentionPlans;
  const AttentionPlan* plan_ = nullptr;
  Descriptor pack_;
  std::byte* zeros_ = nullptr;  // To be zeroed before: the fp32 sum of queries' gradients.
  std::size_t zero_bytes_ = 0;
};

// For the current GPU; not for several threads at once. All THROW Error(kRuntime).
class AttentionPlans {
 public:
  // `cache_folder`: of timed choices; empty: none is kept.
  AttentionPlans(const Cudnn& library, const std::string& gpu_name, const std::string& cache_folder);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  // None: supports() says no, or cuDNN has no engine for it; refusal() then says why. The first plan of a
  // kind takes about half a second, since cuDNN compiles its kernels.
  std::optional<AttentionId> prepare(const device::AttentionShape& shape, DType dtype, AttentionPass pass);
  const std::string& refusal() const { return refusal_; }

  // Optional: times every engine that cuDNN offers, those near the fastest in turns on a busy GPU, and takes
  // the fastest, or what an earlier run took. Before workspace_bytes() and bind(). Forms whose operands don't
  // fit into scratch keep cuDNN's first. What scratch held is lost. Returns warnings.
  std::vector<std::string> tune(cudaStream_t stream, std::span<std::byte> scratch,
                                const TuneOptions& options = {});

  // cuDNN's and ours together. The deterministic backward pass needs 2 · b · heads · s² bytes and more.
  std::int64_t workspace_bytes(AttentionId id) const;

  // REQUIRES: id was prepared for this shape, type and pass; a workspace of workspace_bytes(id) at a multiple
  // of 256, not shared by streams.
  BoundAttention bind(AttentionId id, const device::Attention& attention, std::byte* workspace) const;
  BoundAttention bind(AttentionId id, const device::AttentionGrad& attention, std::byte* workspace) const;

  // Can be captured, once it has been run uncaptured.
  void run(const BoundAttention& bound, cudaStream_t stream);

  std::vector<AttentionTime> times() const;

 private:
  struct Engine {
    std::size_t index = 0;
    Work work;
  };
  bool take_kept(AttentionPlan& plan, device::Tuning tuning) const;
  std::vector<Engine> engines_of(AttentionPlan& plan, BusyStream& busy, cudaStream_t stream,
                                 std::span<std::byte> scratch);
  void tune(AttentionPlan& plan, BusyStream& busy, cudaStream_t stream, std::span<std::byte> scratch,
            const TuneOptions& options);
  BoundAttention bind(const AttentionPlan& plan,
                      std::vector<std::pair<AttentionOperand, const void*>> operands,
                      std::byte* workspace) const;
  BoundAttention bind_scratch(const AttentionPlan& plan, std::span<std::byte> scratch) const;

  const Cudnn& library_;
  // One handle, whose stream follows the one that is run on: plans belong to the handle they were made with.
  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  bool stream_set_ = false;
  device::AlgorithmCache cache_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // By AttentionId.
  std::string refusal_;
};

}  // namespace orrery::cuda
