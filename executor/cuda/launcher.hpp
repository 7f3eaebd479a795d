#pragma once
// Launches made ready: products with their algorithm, attention with its plan, tables on the device.

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/cuda/attention.hpp"
#include "executor/cuda/libraries.hpp"
#include "executor/cuda/memory.hpp"
#include "executor/cuda/products.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// Usage: add() every launch, ready() once, then perform() any number of times.
class Launcher {
 public:
  // `algorithm_cache`: folder of timed choices; empty: products are timed anew where `tune` is set.
  Launcher(const Libraries& libraries, const std::string& gpu, const std::string& algorithm_cache);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // What perform() takes. REQUIRES: the launch stays where it is.
  std::size_t add(const device::Launch& launch, std::int32_t stream);
  // Times what has to be chosen, and gives each stream its workspace.
  void ready(const std::vector<cudaStream_t>& streams, bool tune);
  void perform(std::size_t index) const;

  std::int64_t workspace_bytes() const;
  std::vector<std::string> warnings() const;

 private:
  struct Prepared;
  const Libraries& libraries_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<AttentionPlans> attention_;
  std::vector<Prepared> prepared_;
  std::vector<Memory> workspaces_;  // By stream.
  std::vector<cudaStream_t> streams_;
  Memory tables_;
};

}  // namespace orrery::cuda
