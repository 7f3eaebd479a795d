#pragma once
// NCCL's communicators of one rank: one for each of its groups.
//
// Trap: destroying a communicator waits until no CUDA graph that captured it is left. Destroy graphs, and
// what was instantiated from them, first, then the communicators.

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "executor/cuda/libraries.hpp"
#include "executor/device/device.hpp"
#include "executor/device/unique_ids.hpp"

namespace orrery::cuda {

struct CommunicatorOptions {
  int rank = 0;
  std::chrono::milliseconds deadline{60'000};  // For whatever needs the other members, each time.
  std::function<void()> keep_waiting;          // Called in every turn of a wait; may throw to end it.
};

class Communicators {
 public:
  // For the calling thread's current GPU, which stays the one that is meant; every call below has to find it
  // current. All ranks of the run make theirs at the same time. Loads NCCL only where there is a group.
  // THROWS Error(kRuntime) naming group and ranks: two ranks on one GPU, members that don't come within the
  // deadline, NCCL's own reasons; where NCCL_NVLS_ENABLE asks for multicast over NVLink, which isn't
  // supported.
  Communicators(const std::vector<device::Group>& groups, const device::AllGather& all_gather,
                CommunicatorOptions options);
  // Waits for the other members to do likewise, not longer than the deadline; not at all after an error, and
  // while an exception passes.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Lets every communicator copy straight from and into this memory, which outlives them, and in which all
  // calls read and write. All ranks of the run do so, before connect(). Returns how many registrations NCCL
  // has made: none with NCCL_LOCAL_REGISTER=0, nor where NCCL_NVLS_ENABLE isn't set: NCCL then chooses
  // multicast by itself, and memory that is registered speaks for it. THROWS Error(kRuntime) naming group and
  // ranks.
  std::int64_t register_memory(std::span<const std::span<std::byte>> memory);

  // Before steps are captured: performs each different set of calls once, so that NCCL has made all its
  // connections. Without, the first captured step would make them in the order in which this rank issues
  // calls, and two ranks whose orders differ could wait for each other. All ranks of the run call it at the
  // same time, with the instructions of the same step. The calls read and write where they will later;
  // nothing may be in that memory that is still needed.
  void connect(std::span<const device::DeviceInstruction> instructions, cudaStream_t stream);

  // All calls at once, on a stream that may be capturing. THROWS Error(kRuntime) naming group and ranks.
  void perform(std::int32_t group, std::span<const device::Call> calls, cudaStream_t stream);

  // THROWS Error(kRuntime) naming group and ranks when NCCL has noticed that something went wrong. Costs
  // little.
  void check() const;
  // Whether something went wrong, or a wait was ended: nothing but abort and destruction may follow.
  bool broken() const { return broken_; }
  // Ends what goes on, whether others have come or not; kernels on streams come to their end.
  void abort() noexcept;

 private:
  struct Communicator {
    device::Group group;  // NCCL keeps a pointer to its name.
    ncclComm_t handle = nullptr;
    std::vector<void*> registered;
  };
  void make(Communicator& communicator, const std::string& id);
  void demand(const Communicator& communicator, const char* what, ncclResult_t answer) const;
  void settle(const Communicator& communicator, const char* what) const;
  void keep_waiting() const;
  void add(const device::Call& call, const Communicator& to, cudaStream_t stream, ncclResult_t& result) const;
  [[noreturn]] void fault(const Communicator& communicator, const std::string& what) const;
  void await_verdict() const;
  void finalize(Communicator& communicator);
  void close() noexcept;

  const Nccl* nccl_ = nullptr;
  CommunicatorOptions options_;
  std::vector<Communicator> communicators_;  // As the groups.
  std::vector<std::size_t> by_name_;         // Numbers of groups in an order that all ranks have.
  int exceptions_ = 0;                       // That passed when it was made.
  mutable bool broken_ = false;
};

}  // namespace orrery::cuda
