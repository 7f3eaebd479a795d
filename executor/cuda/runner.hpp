#pragma once
// A rank's steps on one GPU: captured once as a graph of its launches, streams and calls, and replayed.

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "executor/cuda/communicators.hpp"
#include "executor/cuda/launcher.hpp"
#include "executor/cuda/tracer.hpp"
#include "executor/device/device.hpp"

namespace orrery::cuda {

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using OwnGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

class CudaRunner : public device::Runner {
 public:
  CudaRunner(const std::string& gpu, device::DeviceStep step, const device::RunnerOptions& options);
  ~CudaRunner() override;

  std::span<std::byte> stage(std::int64_t step) override;
  void launch(std::int64_t step, bool recorded) override;
  bool wait(std::int64_t step, std::chrono::milliseconds limit) override;
  std::span<const std::byte> results(std::int64_t step) override;
  std::int64_t end_ns(std::int64_t step) override;
  std::vector<device::Span> spans(std::int64_t step) override;
  void start_tracing() override;
  std::vector<device::KernelSpan> kernels() override;
  device::RunnerCounters counters() const override { return counters_; }
  std::vector<device::LaunchTime> time_launches(std::chrono::milliseconds each) override;

 private:
  static constexpr std::size_t kSlots = 3;  // Steps under way, and the one before them.
  // Between which events of a recorded step an instruction ran.
  struct Marks {
    std::size_t start = 0, end = 0;
    bool own_start = true;  // Else it begins where another has ended.
  };
  struct Slot {
    std::vector<Event> marks;
    OwnGraph recorded;
    std::int64_t end_ns = 0;
  };

  static std::size_t slot(std::int64_t step) { return static_cast<std::size_t>(step) % kSlots; }
  void connect(const device::RunnerOptions& options);
  void plan_events();
  void capture();
  void destroy_graphs();
  OwnGraph capture_step(const std::vector<Event>* marks);
  void issue(const std::vector<Event>* marks, bool capturing);
  void issue_instruction(std::size_t index, const std::vector<Event>* marks, bool capturing);
  void note_nodes(std::int32_t instruction);
  void mark(const std::vector<Event>& marks, std::size_t index, cudaStream_t stream, bool capturing) const;

  device::DeviceStep step_;
  std::optional<Tracer> tracer_;  // There before any graph is, where kernels are traced.
  std::unordered_map<cudaGraphNode_t, std::int32_t> captured_;      // Of the capture under way.
  std::unordered_map<std::uint64_t, std::int32_t> instruction_of_;  // By the tracer's number of a node.
  std::vector<OwnStream> streams_;
  Launcher launcher_;
  std::unique_ptr<Communicators> communicators_;  // None: the rank talks to nobody.
  // By instruction: its launches' indices with the launcher, before and after its calls.
  std::vector<std::vector<std::size_t>> launches_, landings_;
  std::vector<std::vector<std::size_t>> waits_;  // By instruction: events of others on other streams.
  std::vector<std::ptrdiff_t> signals_;  // By instruction: its own event; −1: nobody waits for it elsewhere.
  std::vector<Event> order_;
  Event fork_;
  std::vector<Event> joins_;
  std::vector<Marks> marks_;
  std::size_t mark_count_ = 0;
  std::array<Slot, kSlots> slots_;
  std::vector<Event> ends_;  // By slot.
  Event begin_;
  OwnGraph plain_;
  Memory staged_, returned_;    // On the host, by slot.
  std::int64_t last_step_ = 0;  // Launched last.
  device::RunnerCounters counters_;
};

}  // namespace orrery::cuda
