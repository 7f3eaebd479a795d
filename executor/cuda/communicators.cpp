#include "executor/cuda/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <set>
#include <thread>
#include <tuple>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A call takes NCCL's own thread some 50 us (estimate): only what takes longer is worth a sleep.
constexpr std::chrono::microseconds kSpin{2'000};
constexpr std::chrono::microseconds kSleep{200};

// "GPU-…" as nvidia-smi prints it, and NCCL's host.
std::string own_gpu() {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "asking for the current GPU");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "asking for the GPU's properties");
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return device::with_nccl_host(text);
}

// Multicast over NVLink stays off: NCCL reads this variable itself, so it is looked at and never changed.
constexpr const char* kMulticast = "NCCL_NVLS_ENABLE";

void check_multicast() {
  const char* const wanted = std::getenv(kMulticast);
  if (wanted == nullptr || std::strtol(wanted, nullptr, 10) == 0) return;
  fail(ErrorKind::kRuntime,
       "{} is '{}', which asks for multicast over NVLink; that isn't supported: set it to 0", kMulticast,
       wanted);
}

ncclDataType_t type_of(const device::Call& call) {
  if (call.fp64) return ncclFloat64;
  switch (call.dtype) {
    case DType::kFp32:
    case DType::kTf32: return ncclFloat32;
    case DType::kBf16: return ncclBfloat16;
    case DType::kFp16: return ncclFloat16;
    case DType::kInt64: return ncclInt64;
    case DType::kInt32: return ncclInt32;
    case DType::kFp8:  // Is moved, never added up.
    case DType::kUint8: return ncclUint8;
  }
  return ncclUint8;
}

// Calls that need the same connections: they differ in addresses alone.
using Signature = std::vector<std::tuple<device::CallKind, bool, std::int32_t, std::int64_t, int>>;
Signature signature_of(std::span<const device::Call> calls) {
  Signature signature;
  for (const device::Call& call : calls) {
    signature.emplace_back(call.kind, call.maximum, call.peer, call.count, static_cast<int>(type_of(call)));
  }
  return signature;
}

}  // namespace

Communicators::Communicators(const std::vector<device::Group>& groups, const device::AllGather& all_gather,
                             CommunicatorOptions options)
    : options_(std::move(options)), by_name_(groups.size()), exceptions_(std::uncaught_exceptions()) {
  if (!groups.empty()) {
    check_multicast();
    nccl_ = &nccl();
  }
  const auto make_id = [&] {
    ncclUniqueId id{};
    const ncclResult_t result = nccl_->get_unique_id(&id);
    if (result != ncclSuccess) {
      fail(ErrorKind::kRuntime, "NCCL can't make an id for a group: {}; {}", nccl_->error_string(result),
           nccl_->last_error(nullptr));
    }
    return std::string(id.internal, sizeof id.internal);
  };
  const std::vector<std::string> ids =
      device::share_ids(options_.rank, groups, groups.empty() ? "" : own_gpu(), make_id, all_gather);
  for (const device::Group& group : groups) communicators_.push_back({group, nullptr, {}});
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return groups[a].name < groups[b].name; });
  try {
    // One after the other in an order that all have: whoever is first in it has all its members.
    for (const std::size_t g : by_name_) make(communicators_[g], ids[g]);
  } catch (...) {
    abort();
    throw;
  }
}

void Communicators::make(Communicator& communicator, const std::string& id) {
  ncclUniqueId unique{};
  if (id.size() != sizeof unique.internal) {
    fault(communicator, fmt::format("its id has {} bytes instead of {}", id.size(), sizeof unique.internal));
  }
  std::memcpy(unique.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // So that a lost rank is an error, not a hang.
  config.commName = communicator.group.name.c_str();
  demand(communicator, "be made",
         nccl_->init_rank_config(&communicator.handle, static_cast<int>(communicator.group.ranks.size()),
                                 unique, communicator.group.position, &config));
}

// A failure is one: ranks that registered and ranks that didn't mustn't meet in a call.
std::int64_t Communicators::register_memory(std::span<const std::span<std::byte>> memory) {
  if (std::getenv(kMulticast) == nullptr) return 0;
  std::int64_t registered = 0;
  for (const std::size_t g : by_name_) {
    Communicator& communicator = communicators_[g];
    for (const std::span<std::byte> one : memory) {
      void* handle = nullptr;
      demand(communicator, "register memory",
             nccl_->register_buffer(communicator.handle, one.data(), one.size(), &handle));
      if (handle == nullptr) continue;
      communicator.registered.push_back(handle);
      ++registered;
    }
  }
  return registered;
}

Communicators::~Communicators() {
  if (std::uncaught_exceptions() > exceptions_) broken_ = true;
  close();
}

void Communicators::finalize(Communicator& communicator) {
  for (void* const handle : communicator.registered) {
    demand(communicator, "release memory", nccl_->deregister_buffer(communicator.handle, handle));
  }
  demand(communicator, "be closed", nccl_->finalize(communicator.handle));
  nccl_->destroy(communicator.handle);
  communicator.handle = nullptr;
}

void Communicators::close() noexcept {
  if (communicators_.empty()) return;
  try {
    // Finalizing waits for the other members, so all do it in one order.
    for (const std::size_t g : by_name_) {
      if (!broken_ && communicators_[g].handle != nullptr) finalize(communicators_[g]);
    }
  } catch (...) {
    broken_ = true;  // Whoever hears of it knows more than this: the run has been ended.
  }
  // Those that are left at once: an abort waits until no graph is left that has captured its communicator,
  // and one that runs ends when all the communicators in it are aborted. They take what is registered along.
  nccl_->group_start();
  for (Communicator& communicator : communicators_) {
    if (communicator.handle != nullptr) nccl_->abort(communicator.handle);
    communicator.handle = nullptr;
  }
  nccl_->group_end();
}

// NCCL may see that a rank has gone, or waits no longer, a moment before the watchdog says which one and
// where it was.
void Communicators::await_verdict() const {
  const auto until = Clock::now() + launch::kVerdict;
  while (options_.keep_waiting && Clock::now() < until) {
    options_.keep_waiting();
    std::this_thread::sleep_for(kSleep);
  }
}

void Communicators::fault(const Communicator& communicator, const std::string& what) const {
  broken_ = true;
  await_verdict();
  std::vector<int> others;
  for (const std::int32_t rank : communicator.group.ranks) {
    if (rank != options_.rank) others.push_back(rank);
  }
  std::sort(others.begin(), others.end());
  const char* const last = nccl_->last_error(communicator.handle);
  const std::string detail = last != nullptr && *last != '\0' ? fmt::format(" ({})", last) : "";
  fail(ErrorKind::kRuntime,
       "rank {}: NCCL group '{}' with {}: {}{}; another rank may have ended: look at what it said first, and "
       "at "
       "NCCL's own lines with NCCL_DEBUG=WARN",
       options_.rank, communicator.group.name, launch::rank_list(others), what, detail);
}

void Communicators::keep_waiting() const {
  if (!options_.keep_waiting) return;
  try {
    options_.keep_waiting();
  } catch (...) {
    broken_ = true;  // What goes on is left in the middle.
    throw;
  }
}

// The answer to what NCCL was asked for, and that it has been done.
void Communicators::demand(const Communicator& communicator, const char* what, ncclResult_t answer) const {
  if (answer != ncclSuccess && answer != ncclInProgress) {
    fault(communicator, fmt::format("can't {}: {}", what, nccl_->error_string(answer)));
  }
  settle(communicator, what);
}

// Until NCCL has done what it was asked for.
void Communicators::settle(const Communicator& communicator, const char* what) const {
  const auto begin = Clock::now();
  for (;;) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl_->get_async_error(communicator.handle, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) {
      fault(communicator, fmt::format("can't {}: {}", what, nccl_->error_string(state)));
    }
    const auto waited = Clock::now() - begin;
    if (waited > options_.deadline) {
      fault(communicator, fmt::format("could not {} within {:.1f} s", what,
                                      std::chrono::duration<double>(options_.deadline).count()));
    }
    keep_waiting();
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

void Communicators::add(const device::Call& call, const Communicator& to, cudaStream_t stream,
                        ncclResult_t& result) const {
  const auto count = static_cast<std::size_t>(call.count);
  const ncclDataType_t type = type_of(call);
  const ncclRedOp_t operation = call.maximum ? ncclMax : ncclSum;
  ncclResult_t added = ncclSuccess;
  switch (call.kind) {
    case device::CallKind::kAllReduce:
      added = nccl_->all_reduce(call.from, call.to, count, type, operation, to.handle, stream);
      break;
    case device::CallKind::kAllGather:
      added = nccl_->all_gather(call.from, call.to, count, type, to.handle, stream);
      break;
    case device::CallKind::kReduceScatter:
      added = nccl_->reduce_scatter(call.from, call.to, count, type, operation, to.handle, stream);
      break;
    case device::CallKind::kBroadcast:
      added = nccl_->broadcast(call.from, call.to, count, type, call.peer, to.handle, stream);
      break;
    case device::CallKind::kSend:
      added = nccl_->send(call.from, count, type, call.peer, to.handle, stream);
      break;
    case device::CallKind::kReceive:
      added = nccl_->receive(call.to, count, type, call.peer, to.handle, stream);
      break;
  }
  if (result == ncclSuccess && added != ncclInProgress) result = added;
}

void Communicators::perform(std::int32_t group, std::span<const device::Call> calls, cudaStream_t stream) {
  if (calls.empty()) return;
  const Communicator& communicator = communicators_[static_cast<std::size_t>(group)];
  if (broken_) fault(communicator, "an earlier call has failed");
  ncclResult_t result = nccl_->group_start();
  if (result != ncclSuccess) fault(communicator, fmt::format("no group: {}", nccl_->error_string(result)));
  for (const device::Call& call : calls) add(call, communicator, stream, result);
  const ncclResult_t ended = nccl_->group_end();  // In any case: the thread's group is open.
  if (result == ncclSuccess && ended != ncclInProgress) result = ended;
  if (result != ncclSuccess) {
    fault(communicator, fmt::format("{}: {}", to_string(calls.front().kind), nccl_->error_string(result)));
  }
  // Its own thread launches; what is put on the stream next has to come behind it.
  settle(communicator, "launch");
}

void Communicators::connect(std::span<const device::DeviceInstruction> instructions, cudaStream_t stream) {
  for (const std::size_t g : by_name_) {
    std::set<Signature> done;
    for (const device::DeviceInstruction& instruction : instructions) {
      if (instruction.group != static_cast<std::int32_t>(g)) continue;
      if (!done.insert(signature_of(instruction.calls)).second) continue;
      perform(instruction.group, instruction.calls, stream);
    }
    // Wait as for everything: not for ever.
    const auto begin = Clock::now();
    for (cudaError_t state = cudaStreamQuery(stream); state != cudaSuccess; state = cudaStreamQuery(stream)) {
      if (state != cudaErrorNotReady) cuda::check(state, "making NCCL's connections");
      check();
      if (Clock::now() - begin > options_.deadline) fault(communicators_[g], "its first calls don't end");
      keep_waiting();
      std::this_thread::sleep_for(kSleep);
    }
  }
}

void Communicators::check() const {
  for (const Communicator& communicator : communicators_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_->get_async_error(communicator.handle, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess || state == ncclInProgress) continue;
    fault(communicator, fmt::format("failed while running: {}", nccl_->error_string(state)));
  }
}

void Communicators::abort() noexcept {
  broken_ = true;
  close();
}

}  // namespace orrery::cuda
