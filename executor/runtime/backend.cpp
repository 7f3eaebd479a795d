#include "executor/runtime/backend.hpp"

#include <fmt/format.h>

namespace orrery::host {
namespace {

class HostBackend : public Backend {
 public:
  explicit HostBackend(bool processes) : processes_(processes) {}

  RunResult run(const Graph& graph, const Program& program, const RunOptions& options) override {
    return processes_ ? run_processes(graph, program, options) : run_threads(graph, program, options);
  }
  std::string describe_ranks(const Program& program) const override {
    const std::size_t count = active_ranks(program).size();
    if (processes_) return fmt::format("{} {}", count, count == 1 ? "process" : "processes");
    return fmt::format("{} {}", count, count == 1 ? "thread" : "threads");
  }
  RunResult run_joined(const Graph& graph, const Program& program, const RunOptions& options,
                       launch::Rendezvous& rendezvous) override {
    return host::run_joined(graph, program, options, rendezvous);
  }
  std::string device_name(int) const override { return {}; }

 private:
  bool processes_;
};

}  // namespace

std::unique_ptr<Backend> host_backend(bool processes) { return std::make_unique<HostBackend>(processes); }

}  // namespace orrery::host
