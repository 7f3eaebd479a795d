#include "executor/cuda/probe/measurements.hpp"

#ifndef ORRERY_HAVE_NCCL

std::vector<orrery::cuda::JsonObject> orrery::cuda::measure_collectives(int, std::string& left_out) {
  left_out = "the probe was built without NCCL (no nccl.h with its library)";
  return {};
}
std::string orrery::cuda::nccl_version() { return ""; }

#else

#include <nccl.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "executor/cuda/probe/device.hpp"
#include "executor/cuda/probe/kernels.hpp"

namespace orrery::cuda {
namespace {

void check_nccl(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw DeviceError(std::string(call) + ": " + ncclGetErrorString(status));
}
#define ORRERY_NCCL(call) check_nccl((call), #call)

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kSend, kExchange };
constexpr std::array<std::pair<Kind, const char*>, 5> kKinds{{{Kind::kAllReduce, "all-reduce"},
                                                              {Kind::kAllGather, "all-gather"},
                                                              {Kind::kReduceScatter, "reduce-scatter"},
                                                              {Kind::kSend, "send"},
                                                              {Kind::kExchange, "exchange"}}};

constexpr std::size_t kLargest = std::size_t{1} << 30;
constexpr int kRepeats = 5;

// Sizes as nccl-tests counts them: the whole array of an all-reduce, the gathered one of an all-gather, the
// unscattered one of a reduce-scatter, the message of a send.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> result;
  for (std::size_t bytes = 4096; bytes <= kLargest; bytes *= 4) result.push_back(bytes);
  return result;
}

// Bytes through the busiest link over the payload (nccl-tests, PERFORMANCE.md): busbw = algbw · this.
double bus_factor(Kind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case Kind::kAllReduce: return 2.0 * (n - 1) / n;
    case Kind::kAllGather:
    case Kind::kReduceScatter: return (n - 1) / n;
    case Kind::kSend:
    case Kind::kExchange: return 1.0;
  }
  return 1.0;
}

// One thread and one device of the job.
class Rank {
 public:
  Rank(int rank, int ranks, const ncclUniqueId& id)
      : rank_(rank), ranks_(ranks), from_(kLargest), to_(kLargest) {
    launch_fill_bf16(from_.data(), kLargest / 2, static_cast<std::uint32_t>(rank), stream_);
    ORRERY_NCCL(ncclCommInitRank(&communicator_, ranks, id, rank));
  }
  ~Rank() { ncclCommDestroy(communicator_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  double seconds_each(Kind kind, std::size_t bytes, int runs) {
    watch_.start(stream_);
    for (int i = 0; i < runs; ++i) run(kind, bytes);
    return watch_.stop_s(stream_) / runs;
  }

 private:
  void run(Kind kind, std::size_t bytes) {
    const std::size_t count = bytes / 2, part = count / static_cast<std::size_t>(ranks_);
    switch (kind) {
      case Kind::kAllReduce:
        ORRERY_NCCL(
            ncclAllReduce(from_.data(), to_.data(), count, ncclBfloat16, ncclSum, communicator_, stream_));
        break;
      case Kind::kAllGather:
        ORRERY_NCCL(ncclAllGather(from_.data(), to_.data(), part, ncclBfloat16, communicator_, stream_));
        break;
      case Kind::kReduceScatter:
        ORRERY_NCCL(
            ncclReduceScatter(from_.data(), to_.data(), part, ncclBfloat16, ncclSum, communicator_, stream_));
        break;
      case Kind::kSend:  // From the first rank to the second; the others have nothing to do.
        if (rank_ == 0) ORRERY_NCCL(ncclSend(from_.data(), count, ncclBfloat16, 1, communicator_, stream_));
        if (rank_ == 1) ORRERY_NCCL(ncclRecv(to_.data(), count, ncclBfloat16, 0, communicator_, stream_));
        break;
      case Kind::kExchange:  // Each to the next one and from the previous one, at once.
        ORRERY_NCCL(ncclGroupStart());
        ORRERY_NCCL(
            ncclSend(from_.data(), count, ncclBfloat16, (rank_ + 1) % ranks_, communicator_, stream_));
        ORRERY_NCCL(
            ncclRecv(to_.data(), count, ncclBfloat16, (rank_ + ranks_ - 1) % ranks_, communicator_, stream_));
        ORRERY_NCCL(ncclGroupEnd());
        break;
    }
  }

  int rank_, ranks_;
  Stream stream_;
  Buffer from_, to_;
  Stopwatch watch_;
  ncclComm_t communicator_ = nullptr;
};

struct Case {
  Kind kind;
  const char* name;
  std::size_t bytes;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const auto& [kind, name] : kKinds) {
    for (const std::size_t bytes : sizes()) result.push_back({kind, name, bytes});
  }
  return result;
}

// seconds[case][rank]: the median time of one call as this rank's device saw it.
using Seconds = std::vector<std::vector<double> >;

void run_rank(int rank, int ranks, const ncclUniqueId& id, std::barrier<>& together, Seconds& seconds) {
  ORRERY_CUDA(cudaSetDevice(rank));
  Rank self(rank, ranks, id);
  const std::vector<Case> all = cases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int runs = all[i].bytes <= (std::size_t{1} << 20)    ? 100
                     : all[i].bytes <= (std::size_t{64} << 20) ? 20
                                                               : 5;
    self.seconds_each(all[i].kind, all[i].bytes, 5);
    std::vector<double> repeats;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      together.arrive_and_wait();
      repeats.push_back(self.seconds_each(all[i].kind, all[i].bytes, runs));
    }
    seconds[i][static_cast<std::size_t>(rank)] = median(repeats);
  }
}

std::string multicast_setting() {
  const char* const value = std::getenv("NCCL_NVLS_ENABLE");
  return value != nullptr ? value : "";
}

}  // namespace

std::vector<JsonObject> measure_collectives(int gpus, std::string& left_out) {
  if (gpus < 2) {
    left_out = "one GPU; collectives need two";
    return {};
  }
  // The cost models are of rings and trees. With NVLink multicast NCCL would take a third way, so it is
  // measured only where it is off; the environment is the user's, and nothing here changes it.
  if (multicast_setting() != "0") {
    left_out =
        "NCCL_NVLS_ENABLE is not 0 in the environment; start the probe with it at 0 to measure collectives";
    return {};
  }
  ncclUniqueId id;
  ORRERY_NCCL(ncclGetUniqueId(&id));
  const std::vector<Case> all = cases();
  Seconds seconds(all.size(), std::vector<double>(static_cast<std::size_t>(gpus)));
  std::barrier together(gpus);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < gpus; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(rank, gpus, id, together, seconds);
      } catch (const std::exception& error) {
        // The other ranks wait inside NCCL for this one and can't be called back.
        std::fprintf(stderr, "orrery-cuda-probe: rank %d: %s\n", rank, error.what());
        std::_Exit(5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<JsonObject> rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double slowest = *std::max_element(seconds[i].begin(), seconds[i].end());
    const double algbw = static_cast<double>(all[i].bytes) / slowest;
    rows.push_back(JsonObject()
                       .add("collective", all[i].name)
                       .add("ranks", all[i].kind == Kind::kSend ? 2 : gpus)
                       .add("bytes", static_cast<std::int64_t>(all[i].bytes))
                       .add("time_s", slowest)
                       .add("algbw_bytes_per_s", algbw)
                       .add("busbw_bytes_per_s", algbw * bus_factor(all[i].kind, gpus)));
  }
  return rows;
}

std::string nccl_version() {
  int version = 0;
  ORRERY_NCCL(ncclGetVersion(&version));
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace orrery::cuda

#endif
