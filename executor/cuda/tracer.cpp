#include "executor/cuda/tracer.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"

namespace orrery::cuda {
namespace {

// Fills and copies are kinds of their own: without them a step that only zeroes memory has no records at all.
constexpr std::array kKinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                            CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

// CUPTI's callbacks carry nothing of ours, and come from its own thread.
struct Collected {
  const Cupti* library = nullptr;
  std::mutex mutex;
  Trace trace;
  std::unordered_map<std::string, std::int32_t> name_index;
  std::unordered_map<std::uint64_t, std::uint64_t> copied_from;  // Nodes of graphs, by CUPTI's numbers.
  bool in_use = false;
};
Collected& collected() {
  // Never destroyed: CUPTI may hand buffers back while the process ends.
  static auto* const made = new Collected;
  return *made;
}

void check_cupti(const Cupti& library, CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  library.result_string(result, &text);
  fail(ErrorKind::kRuntime, "CUPTI can't {}: {}", what, text != nullptr ? text : "unknown error");
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

std::int32_t index_of(Collected& to, const char* name) {
  const auto [at, added] = to.name_index.try_emplace(name != nullptr ? name : "?",
                                                     static_cast<std::int32_t>(to.trace.names.size()));
  if (added) to.trace.names.push_back(demangled(at->first.c_str()));
  return at->second;
}

std::uint64_t original_of(const Collected& in, std::uint64_t node) {
  constexpr int kMostCopies = 8;  // Of copies: child graphs in graphs, and those instantiated.
  for (int copies = 0; copies < kMostCopies; ++copies) {
    const auto at = in.copied_from.find(node);
    if (at == in.copied_from.end()) break;
    node = at->second;
  }
  return node;
}

// A graph's node was copied: to instantiate the graph, or into another.
void CUPTIAPI note_copy(void*, CUpti_CallbackDomain domain, CUpti_CallbackId event, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE || event != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) return;
  const auto* const resource = static_cast<const CUpti_ResourceData*>(data);
  const auto* const graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  std::uint64_t copy = 0, original = 0;
  const bool known = to.library != nullptr &&
                     to.library->graph_node_id(graph->node, &copy) == CUPTI_SUCCESS &&
                     to.library->graph_node_id(graph->originalNode, &original) == CUPTI_SUCCESS;
  if (known && original != copy) to.copied_from[copy] = original;
}

template <class Record>
void add(Collected& to, const CUpti_Activity* activity, const char* name) {
  const auto* const record = reinterpret_cast<const Record*>(activity);
  if (record->start == 0 || record->end == 0) return;  // Begun before or not ended: CUPTI has no times.
  TracedKernel kernel;
  kernel.name = index_of(to, name);
  kernel.stream = record->streamId;
  kernel.correlation = record->correlationId;
  kernel.start_ns = static_cast<std::int64_t>(record->start);
  kernel.end_ns = static_cast<std::int64_t>(record->end);
  kernel.graph_node = original_of(to, record->graphNodeId);
  to.trace.kernels.push_back(kernel);
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;  // As many as fit.
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  CUpti_Activity* activity = nullptr;
  while (valid > 0 && to.library->next_record(buffer, valid, &activity) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add<CUpti_ActivityKernel10>(to, activity,
                                    reinterpret_cast<const CUpti_ActivityKernel10*>(activity)->name);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY: add<CUpti_ActivityMemcpy6>(to, activity, "copy"); break;
      case CUPTI_ACTIVITY_KIND_MEMSET: add<CUpti_ActivityMemset4>(to, activity, "fill"); break;
      default: break;
    }
  }
  std::size_t dropped = 0;
  if (to.library->dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) {
    to.trace.dropped += static_cast<std::int64_t>(dropped);
  }
  std::free(buffer);
}

}  // namespace

Tracer::Tracer(const Cupti& library) : library_(library) {
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  if (to.in_use) fail(ErrorKind::kRuntime, "a second tracer in one process: CUPTI takes one client");
  if (to.library == nullptr) {
    check_cupti(library_, library_.register_callbacks(give_buffer, take_buffer),
                "hand out buffers (is another profiler at work?)");
    to.library = &library;
  }
  check_cupti(library_, library_.subscribe(&subscriber_, note_copy, nullptr),
              "watch graphs (is another profiler at work?)");
  const CUptiResult watched = library_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                                                       CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  if (watched != CUPTI_SUCCESS) library_.unsubscribe(subscriber_);
  check_cupti(library_, watched, "watch graphs");
  to.in_use = true;
}

Tracer::~Tracer() {
  if (running_) {
    for (const CUpti_ActivityKind kind : kKinds) library_.disable(kind);
    library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  library_.unsubscribe(subscriber_);
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  to.in_use = false;
}

void Tracer::start() {
  if (running_) return;
  {
    Collected& to = collected();
    const std::lock_guard lock(to.mutex);
    to.trace = {};
    to.name_index.clear();
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    check_cupti(library_, library_.enable(kind), "trace (is another profiler at work?)");
    running_ = true;
  }
}

Trace Tracer::stop() {
  if (!running_) return {};
  check(cudaDeviceSynchronize(), "waiting for what is traced");
  // Forced: buffers that aren't full come back too. No lock is held, since they come back through
  // take_buffer.
  check_cupti(library_, library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "hand back its records");
  for (const CUpti_ActivityKind kind : kKinds) library_.disable(kind);
  running_ = false;
  Collected& to = collected();
  const std::lock_guard lock(to.mutex);
  Trace trace = std::move(to.trace);
  to.trace = {};
  to.name_index.clear();
  std::stable_sort(trace.kernels.begin(), trace.kernels.end(),
                   [](const TracedKernel& x, const TracedKernel& y) { return x.start_ns < y.start_ns; });
  return trace;
}

std::int64_t Tracer::now_ns() const {
  std::uint64_t now = 0;
  check_cupti(library_, library_.timestamp(&now), "tell the time");
  return static_cast<std::int64_t>(now);
}

std::optional<std::uint64_t> Tracer::graph_node_id(cudaGraphNode_t node) const {
  std::uint64_t id = 0;
  if (library_.graph_node_id(node, &id) != CUPTI_SUCCESS) return std::nullopt;
  Collected& in = collected();
  const std::lock_guard lock(in.mutex);
  return original_of(in, id);
}

}  // namespace orrery::cuda
