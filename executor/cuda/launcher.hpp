#pragma once
// Launches made ready: products with their algorithm, attention with its plan, tables on the device.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "executor/cuda/attention.hpp"
#include "executor/cuda/memory.hpp"
#include "executor/cuda/products.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// add() every launch, ready() once, then perform() them any number of times.
class Launcher {
 public:
  // `gpu`: its name; `algorithm_cache`: folder of timed choices; empty: none is kept.
  Launcher(const std::string& gpu, const std::string& algorithm_cache);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // What perform() takes. REQUIRES: the launch stays where it is.
  std::size_t add(const device::Launch& launch, std::int32_t stream);
  // Gives each stream its workspace, and products their algorithms: timed ones, or the library's first guess.
  // `tune`: null: the first guess for all.
  void ready(const std::vector<cudaStream_t>& streams, const TuneOptions* tune);
  void perform(std::size_t index);

  // Of all streams, and tables.
  std::int64_t workspace_bytes() const;
  std::vector<std::string> warnings() const;
  std::vector<device::ProductTime> products() const;

 private:
  struct Prepared;
  template <class Kind>
  void prepare_attention(Prepared& prepared, const Kind& launch);
  template <class Kind>
  void take_table(Prepared& prepared, const Kind& launch);
  void choose_algorithms(const TuneOptions* tune);
  void tune_attention(const TuneOptions& options);
  void bind_attention(Prepared& prepared);
  void note(std::vector<std::string> warnings);

  std::string gpu_, algorithm_cache_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<AttentionPlans> attention_;
  std::vector<Prepared> prepared_;
  std::vector<BoundAttention> bound_;
  std::vector<Memory> workspaces_;  // By stream.
  std::vector<cudaStream_t> streams_;
  std::vector<std::byte> table_bytes_;
  Memory tables_;
  std::vector<std::string> warnings_;
};

}  // namespace orrery::cuda
