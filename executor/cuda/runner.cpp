#include "executor/cuda/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"
#include "executor/cuda/nvtx_range.hpp"
#include "executor/device/describe.hpp"
#include "executor/device/traffic.hpp"

namespace orrery::cuda {
namespace {

std::vector<OwnStream> make_streams(std::int32_t count) {
  std::vector<OwnStream> streams;
  for (std::int32_t s = 0; s < std::max(count, 1); ++s) streams.emplace_back();
  return streams;
}

}  // namespace

CudaRunner::CudaRunner(const std::string& gpu, device::DeviceStep step, const device::RunnerOptions& options)
    : step_(std::move(step)),
      streams_(make_streams(step_.streams)),
      launcher_(gpu, options.algorithm_cache),
      fork_(false),
      begin_(true),
      staged_(step_.staging_bytes * static_cast<std::int64_t>(kSlots), "staged tokens",
              MemoryPlace::kPinnedHost),
      returned_(step_.result_bytes * static_cast<std::int64_t>(kSlots), "results", MemoryPlace::kPinnedHost) {
  if (options.trace_kernels) tracer_.emplace(cupti());
  for (const device::DeviceInstruction& instruction : step_.instructions) {
    const auto add = [&](const std::vector<device::Launch>& launches) {
      std::vector<std::size_t> indices;
      for (const device::Launch& launch : launches)
        indices.push_back(launcher_.add(launch, instruction.stream));
      return indices;
    };
    launches_.push_back(add(instruction.launches));
    landings_.push_back(add(instruction.landing));
  }
  std::vector<cudaStream_t> streams(streams_.begin(), streams_.end());
  launcher_.ready(streams, true);
  counters_.library_workspace_bytes = launcher_.workspace_bytes();
  counters_.warnings = launcher_.warnings();
  plan_events();
  for (std::size_t s = 0; s < kSlots; ++s) ends_.emplace_back(true);
  for (std::size_t s = 1; s < streams_.size(); ++s) joins_.emplace_back(false);
  connect(options);
  if (options.capture) capture();
  check(cudaDeviceSynchronize(), "preparing a step");
}

CudaRunner::~CudaRunner() {
  // After a failure a collective may wait for a peer that is gone, and only an abort ends it. That waits in
  // turn until no graph is left that has captured the communicator; one that is still running goes when it
  // ends.
  const bool failed = std::uncaught_exceptions() > 0;
  if (!failed) cudaDeviceSynchronize();
  destroy_graphs();
  if (failed && communicators_) communicators_->abort();
  if (failed) cudaDeviceSynchronize();
}

void CudaRunner::connect(const device::RunnerOptions& options) {
  if (!options.all_gather) return;
  CommunicatorOptions how;
  how.rank = options.rank;
  how.deadline = options.deadline;
  how.keep_waiting = options.keep_waiting;
  communicators_ = std::make_unique<Communicators>(step_.groups, options.all_gather, how);
  try {
    counters_.registered_buffers = communicators_->register_memory(step_.exchanged);
    communicators_->connect(step_.instructions, streams_[0]);
  } catch (...) {
    communicators_->abort();  // Before what waits for the device, as the release of pinned memory does.
    throw;
  }
}

// Who signals whom across streams, and between which marks each instruction runs: one ends where the next of
// its stream begins, unless that one waits for another stream first.
void CudaRunner::plan_events() {
  const std::size_t count = step_.instructions.size();
  signals_.assign(count, -1);
  waits_.resize(count);
  marks_.resize(count);
  std::vector<std::ptrdiff_t> last(streams_.size(),
                                   -1);  // Mark at which the stream's last instruction ended.
  for (std::size_t i = 0; i < count; ++i) {
    const device::DeviceInstruction& instruction = step_.instructions[i];
    const auto stream = static_cast<std::size_t>(instruction.stream);
    for (const std::int32_t other : instruction.after) {
      const auto before = static_cast<std::size_t>(other);
      if (step_.instructions[before].stream == instruction.stream) continue;
      if (signals_[before] < 0) {
        signals_[before] = std::ssize(order_);
        order_.emplace_back(false);
      }
      waits_[i].push_back(static_cast<std::size_t>(signals_[before]));
    }
    marks_[i].own_start = last[stream] < 0 || !waits_[i].empty();
    marks_[i].start = marks_[i].own_start ? mark_count_++ : static_cast<std::size_t>(last[stream]);
    marks_[i].end = mark_count_++;
    last[stream] = static_cast<std::ptrdiff_t>(marks_[i].end);
  }
  for (Slot& slot : slots_) {
    for (std::size_t m = 0; m < mark_count_; ++m) slot.marks.emplace_back(true);
  }
}

void CudaRunner::mark(const std::vector<Event>& marks, std::size_t index, cudaStream_t stream,
                      bool capturing) const {
  check(cudaEventRecordWithFlags(marks[index], stream,
                                 capturing ? cudaEventRecordExternal : cudaEventRecordDefault),
        "noting a time");
}

void CudaRunner::issue(const std::vector<Event>* marks, bool capturing) {
  check(cudaEventRecord(fork_, streams_[0]), "beginning a step");
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    check(cudaStreamWaitEvent(streams_[s], fork_, 0), "beginning a step");
  }
  for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
    issue_instruction(i, marks, capturing);
    if (capturing && tracer_) note_nodes(static_cast<std::int32_t>(i));
  }
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    check(cudaEventRecord(joins_[s - 1], streams_[s]), "ending a step");
    check(cudaStreamWaitEvent(streams_[0], joins_[s - 1], 0), "ending a step");
  }
}

void CudaRunner::issue_instruction(std::size_t i, const std::vector<Event>* marks, bool capturing) {
  const device::DeviceInstruction& instruction = step_.instructions[i];
  std::optional<NvtxRange> range;  // Replayed steps go by without.
  if (!capturing) range.emplace(instruction.name.c_str());
  const cudaStream_t stream = streams_[static_cast<std::size_t>(instruction.stream)];
  for (const std::size_t event : waits_[i])
    check(cudaStreamWaitEvent(stream, order_[event], 0), "ordering streams");
  if (marks != nullptr && marks_[i].own_start) mark(*marks, marks_[i].start, stream, capturing);
  for (const std::size_t launch : launches_[i]) launcher_.perform(launch);
  if (!instruction.calls.empty()) communicators_->perform(instruction.group, instruction.calls, stream);
  for (const std::size_t launch : landings_[i]) launcher_.perform(launch);
  if (marks != nullptr) mark(*marks, marks_[i].end, stream, capturing);
  if (signals_[i] >= 0) {
    check(cudaEventRecord(order_[static_cast<std::size_t>(signals_[i])], stream), "ordering streams");
  }
}

// Nodes that the graph under way didn't have before are of the instruction that was issued last. CUDA
// promises no order of them.
void CudaRunner::note_nodes(std::int32_t instruction) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(streams_[0], &status, nullptr, &graph), "looking at a step under way");
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "looking at a step under way");
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count), "looking at a step under way");
  for (const cudaGraphNode_t node : nodes) captured_.try_emplace(node, instruction);
}

OwnGraph CudaRunner::capture_step(const std::vector<Event>* marks) {
  captured_.clear();
  // Relaxed: kernels that are used for the first time are loaded meanwhile.
  check(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeRelaxed), "capturing a step");
  cudaGraph_t graph = nullptr;
  try {
    issue(marks, true);
  } catch (...) {
    cudaStreamEndCapture(streams_[0], &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(streams_[0], &graph), "capturing a step");
  for (const auto& [node, instruction] : captured_) {
    if (const auto id = tracer_->graph_node_id(node)) instruction_of_.insert_or_assign(*id, instruction);
  }
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "making a graph of a step");
  return OwnGraph(made);
}

void CudaRunner::capture() {
  try {
    plain_ = capture_step(nullptr);
    for (Slot& slot : slots_) slot.recorded = capture_step(&slot.marks);
  } catch (const Error& error) {
    destroy_graphs();
    if (communicators_ && communicators_->broken()) throw;  // Plain launches wouldn't get further.
    counters_.capture_failure = error.what();
  }
}

void CudaRunner::destroy_graphs() {
  for (Slot& slot : slots_) slot.recorded.reset();
  plain_.reset();
}

namespace {

// Device time of one run of `work`, repeated for about so long after as much again to warm up.
template <class Work>
double repeated_us(std::chrono::milliseconds each, cudaStream_t stream, Work work) {
  const Event begin(true), end(true);
  const auto run = [&](std::int64_t times) {
    check(cudaEventRecord(begin, stream), "timing a kernel");
    for (std::int64_t i = 0; i < times; ++i) work();
    check(cudaEventRecord(end, stream), "timing a kernel");
    check(cudaEventSynchronize(end), "timing a kernel");
    return elapsed_ns(begin, end) * 1e-3 / static_cast<double>(times);
  };
  run(2);
  const double first = std::max(run(3), 1.0);
  const auto times =
      std::max<std::int64_t>(3, static_cast<std::int64_t>(1e3 * static_cast<double>(each.count()) / first));
  run(times / 2 + 1);
  return run(times);
}

}  // namespace

std::vector<device::LaunchTime> CudaRunner::time_launches(std::chrono::milliseconds each) {
  constexpr std::int64_t kLargestCopy = std::int64_t{2} << 30;  // Larger ones are as quick a byte.
  const cudaStream_t stream = streams_[0];
  check(cudaStreamSynchronize(stream), "timing kernels");
  std::vector<device::LaunchTime> times;
  std::set<std::string> known;
  const Memory from(kLargestCopy / 2, "timing copies"), to(kLargestCopy / 2, "timing copies");
  for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
    for (std::size_t l = 0; l < launches_[i].size(); ++l) {
      const device::Launch& launch = step_.instructions[i].launches[l];
      device::LaunchTime time;
      time.launch = device::describe(launch);
      if (!known.insert(time.launch).second) continue;
      time.alone_us = repeated_us(each, streams_[static_cast<std::size_t>(step_.instructions[i].stream)],
                                  [&] { launcher_.perform(launches_[i][l]); });
      time.bytes = device::memory_bytes(launch).value_or(0);
      if (time.bytes > 0) {
        const std::int64_t copied = std::min(time.bytes, kLargestCopy);
        const double copy_us = repeated_us(each / 2, stream, [&] {
          check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(copied / 2),
                                cudaMemcpyDeviceToDevice, stream),
                "timing a copy");
        });
        time.copy_us = copy_us * static_cast<double>(time.bytes) / static_cast<double>(copied);
      }
      times.push_back(std::move(time));
    }
  }
  return times;
}

std::span<std::byte> CudaRunner::stage(std::int64_t step) {
  const auto at = static_cast<std::int64_t>(slot(step)) * step_.staging_bytes;
  return {staged_.data() + at, static_cast<std::size_t>(step_.staging_bytes)};
}

void CudaRunner::launch(std::int64_t step, bool recorded) {
  const NvtxRange range(fmt::format("step {}", step).c_str());
  last_step_ = step;
  const std::size_t s = slot(step);
  const cudaStream_t stream = streams_[0];
  if (step == 0) check(cudaEventRecord(begin_, stream), "beginning a run");
  check(cudaMemcpyAsync(step_.staging, staged_.data() + static_cast<std::int64_t>(s) * step_.staging_bytes,
                        static_cast<std::size_t>(step_.staging_bytes), cudaMemcpyHostToDevice, stream),
        "bringing a step's tokens");
  if (plain_ != nullptr) {
    check(cudaGraphLaunch((recorded ? slots_[s].recorded : plain_).get(), stream), "replaying a step");
    ++counters_.graph_launches;
  } else {
    issue(recorded ? &slots_[s].marks : nullptr, false);
    ++counters_.plain_steps;
  }
  check(cudaMemcpyAsync(returned_.data() + static_cast<std::int64_t>(s) * step_.result_bytes, step_.results,
                        static_cast<std::size_t>(step_.result_bytes), cudaMemcpyDeviceToHost, stream),
        "bringing a step's results");
  check(cudaEventRecord(ends_[s], stream), "ending a step");
}

bool CudaRunner::wait(std::int64_t step, std::chrono::milliseconds limit) {
  constexpr std::chrono::microseconds kPause{50};
  const auto until = std::chrono::steady_clock::now() + limit;
  const std::size_t s = slot(step);
  for (cudaError_t status; (status = cudaEventQuery(ends_[s])) != cudaSuccess;) {
    if (status != cudaErrorNotReady) check(status, "running a step");
    if (communicators_) communicators_->check();
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPause);
  }
  const double before = step == 0 ? 0 : static_cast<double>(slots_[slot(step - 1)].end_ns);
  const cudaEvent_t from =
      step == 0 ? static_cast<cudaEvent_t>(begin_) : static_cast<cudaEvent_t>(ends_[slot(step - 1)]);
  slots_[s].end_ns = static_cast<std::int64_t>(before + elapsed_ns(from, ends_[s]));
  return true;
}

void CudaRunner::start_tracing() { tracer_->start(); }

std::vector<device::KernelSpan> CudaRunner::kernels() {
  const Trace trace = tracer_->stop();
  if (trace.dropped > 0) {
    counters_.warnings.push_back(
        fmt::format("the trace of kernels lacks {}, for which CUPTI had no room", trace.dropped));
  }
  // The results' way to the host is the last thing of a step, so that CUPTI's clock is known by it.
  std::int64_t last = 0;
  for (const TracedKernel& kernel : trace.kernels) last = std::max(last, kernel.end_ns);
  const std::int64_t shift = end_ns(last_step_) - last;
  std::vector<device::KernelSpan> spans;
  for (const TracedKernel& kernel : trace.kernels) {
    const auto of = instruction_of_.find(kernel.graph_node);
    spans.push_back({trace.names[static_cast<std::size_t>(kernel.name)],
                     kernel.graph_node != 0 && of != instruction_of_.end() ? of->second : -1, kernel.stream,
                     kernel.start_ns + shift, kernel.end_ns + shift});
  }
  return spans;
}

std::span<const std::byte> CudaRunner::results(std::int64_t step) {
  return {returned_.data() + static_cast<std::int64_t>(slot(step)) * step_.result_bytes,
          static_cast<std::size_t>(step_.result_bytes)};
}

std::int64_t CudaRunner::end_ns(std::int64_t step) { return slots_[slot(step)].end_ns; }

std::vector<device::Span> CudaRunner::spans(std::int64_t step) {
  const Slot& of_step = slots_[slot(step)];
  std::vector<std::int64_t> times;  // From the step's end, which is known best, backwards.
  for (const Event& event : of_step.marks) {
    times.push_back(of_step.end_ns - static_cast<std::int64_t>(elapsed_ns(event, ends_[slot(step)])));
  }
  std::vector<device::Span> spans;
  for (const Marks& marks : marks_) spans.push_back({times[marks.start], times[marks.end]});
  return spans;
}

}  // namespace orrery::cuda
