#pragma once
// What performs a Program: the processors of this machine, or devices that a module has loaded for
// (executor/device/module.hpp).

#include <memory>
#include <string>

#include "executor/runtime/run.hpp"

namespace orrery::host {

class Backend {
 public:
  virtual ~Backend() = default;
  // All ranks, started from this process. "4 threads": how.
  virtual RunResult run(const Graph& graph, const Program& program, const RunOptions& options) = 0;
  virtual std::string describe_ranks(const Program& program) const = 0;
  // One rank of several processes that have met. All get the results.
  virtual RunResult run_joined(const Graph& graph, const Program& program, const RunOptions& options,
                               launch::Rendezvous& rendezvous) = 0;
  // What each rank of this host works on, for the comparison of ranks before they begin; empty: nothing of
  // its own.
  virtual std::string device_name(int local_rank) const = 0;
};

// Ranks are threads, or processes that share memory.
std::unique_ptr<Backend> host_backend(bool processes);

}  // namespace orrery::host
