#pragma once
// A device and what it does in one step of a rank; a module (executor/cuda) implements it. All THROW
// Error(kRuntime) naming what the device refused, and how to mend it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::device {

// ---- What a rank does.

enum class CallKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kSend, kReceive };
std::string_view to_string(CallKind kind);

// One call of the communication library, in elements. All-gather: `count` of each rank; reduce-scatter:
// `count` for each rank; send and receive: `peer` is a position in the group.
struct Call {
  CallKind kind = CallKind::kAllReduce;
  bool maximum = false;  // Of reductions: else the sum.
  std::int32_t peer = 0;
  std::int64_t count = 0;
  DType dtype = DType::kFp32;
  bool fp64 = false;  // Instead of dtype: the gradient norm's.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

// Ranks that talk to each other on one stream: a communicator of its own.
struct Group {
  std::string name;  // "dp 0 on stream gradients": the same on all of its ranks, and no other group's.
  std::vector<std::int32_t> ranks;  // By position.
  std::int32_t position = 0;        // Of this rank.
};

struct DeviceInstruction {
  std::string name;
  std::int32_t stream = 0;
  std::vector<std::int32_t> after;  // Of this step.
  std::vector<Launch> launches;     // First these, in order, …
  std::int32_t group = -1;          // … then these calls at once, then those launches.
  std::vector<Call> calls;
  std::vector<Launch> landing;
};

// Staged bytes are copied to `staging` before a step; `results` are copied back after it.
struct DeviceStep {
  std::vector<DeviceInstruction> instructions;  // In issue order.
  std::int32_t streams = 1;
  std::vector<Group> groups;
  std::byte* staging = nullptr;
  std::int64_t staging_bytes = 0;
  std::byte* results = nullptr;
  std::int64_t result_bytes = 0;
  std::vector<std::span<std::byte>> exchanged;  // Allocations in which calls read and write.
};

// ---- Who does it.

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;
  std::vector<std::string> libraries;  // "cuBLASLt 13.1.0 /usr/lib/…": what was found, and where.
};

// Every rank gives a text and gets those of all, by rank: Rendezvous::all_gather.
using AllGather = std::function<std::vector<std::string>(std::string_view own)>;

struct RunnerOptions {
  bool capture = true;          // Whole steps as graphs; plain launches where that fails, which is counted.
  std::string algorithm_cache;  // Folder of timed choices; empty: none is kept.
  std::chrono::milliseconds deadline{60'000};  // For whatever needs other ranks.
  int rank = 0;
  bool trace_kernels = false;          // start_tracing() and kernels() will be called.
  AllGather all_gather;                // Where the step has groups.
  std::function<void()> keep_waiting;  // Called in every turn of a wait; may throw to end it.
};

// When an instruction began and ended, in ns since the runner's first step.
struct Span {
  std::int64_t start_ns = 0, end_ns = 0;
};
// A kernel, copy or fill as the device's tracer saw it, on the clock of Span.
struct KernelSpan {
  std::string kernel;
  std::int32_t instruction = -1;  // −1: of none, or launched by itself rather than with a graph.
  std::uint32_t stream = 0;       // The device's number.
  std::int64_t start_ns = 0, end_ns = 0;
};

// What a launch takes by itself, back to back with its like until clocks have settled.
struct LaunchTime {
  std::string launch;  // As describe() has it; one for all of these words.
  double alone_us = 0;
  std::int64_t bytes = 0;  // That it has to move; 0: arithmetic limits it.
  double copy_us = 0;      // Of a copy that moves as many.
};

struct RunnerCounters {
  std::int64_t graph_launches = 0, plain_steps = 0;  // Steps replayed, and those launched kernel by kernel.
  std::string capture_failure;                       // Why, where capture was wanted and failed.
  std::int64_t registered_buffers = 0;               // With the communication library, by group.
  std::int64_t library_workspace_bytes = 0;          // Beside the memory plan: cuBLASLt's, cuDNN's, our own.
  std::vector<std::string> warnings;                 // What works, but not as well as it could, and why.
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Host memory for what the step is to be given; waits while an earlier step still reads it.
  virtual std::span<std::byte> stage(std::int64_t step) = 0;
  // REQUIRES: steps in order, each once. `recorded`: every instruction's begin and end are noted.
  virtual void launch(std::int64_t step, bool recorded) = 0;
  // Waits for the step's end, not longer than `limit`; whether it has ended. Not later than 3 steps on.
  virtual bool wait(std::int64_t step, std::chrono::milliseconds limit) = 0;
  // Of a step that has ended, not later than 3 steps on.
  virtual std::span<const std::byte> results(std::int64_t step) = 0;
  virtual std::int64_t end_ns(std::int64_t step) = 0;
  // Of a recorded step that has ended, not later than 3 steps on.
  virtual std::vector<Span> spans(std::int64_t step) = 0;
  // Traces the steps that are launched from now on. REQUIRES: those before have ended;
  // RunnerOptions::trace_kernels.
  virtual void start_tracing() = 0;
  // What ran since, by start; tracing ends. REQUIRES: start_tracing(), and that the last step has ended.
  virtual std::vector<KernelSpan> kernels() = 0;
  virtual RunnerCounters counters() const = 0;
  // Of every kind of launch in the step, timed for so long each. What the rank has in memory is lost.
  virtual std::vector<LaunchTime> time_launches(std::chrono::milliseconds each) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  // Zeroed; freed with the device. THROWS naming `what` and what was free.
  virtual std::byte* allocate(std::int64_t bytes, std::string_view what) = 0;
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, const std::byte* from) = 0;
  // At once, waiting for the end.
  virtual void perform(std::span<const Launch> launches) = 0;
  // REQUIRES: memory that ranks exchange holds nothing yet that is needed. All ranks of a run call it
  // together.
  virtual std::unique_ptr<Runner> prepare(const DeviceStep& step, const RunnerOptions& options) = 0;
};

}  // namespace orrery::device
