#include "executor/cuda/memory.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "executor/cuda/checks.hpp"

namespace orrery::cuda {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

Memory::Memory(std::int64_t bytes, std::string_view what, MemoryPlace place)
    : bytes_(std::max<std::int64_t>(bytes, 1)), place_(place) {
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(bytes_);
  if (place == MemoryPlace::kPinnedHost) {
    check(cudaHostAlloc(&data, size, cudaHostAllocDefault), what);
    std::fill_n(static_cast<std::byte*>(data), size, std::byte{0});
  } else {
    const cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      fail(ErrorKind::kRuntime,
           "{} takes {:.2f} GiB, and {:.2f} of the GPU's {:.1f} GiB are free: end what else runs there, or "
           "choose a "
           "plan that takes less (micro-batch size, recompute, more ranks; orrery memory says what takes how "
           "much)",
           what, static_cast<double>(bytes_) / kGiB, static_cast<double>(free) / kGiB,
           static_cast<double>(total) / kGiB);
    }
    check(status, what);
    check(cudaMemset(data, 0, size), what);
  }
  data_ = static_cast<std::byte*>(data);
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (place_ == MemoryPlace::kPinnedHost) {
    cudaFreeHost(data_);
  } else {
    cudaFree(data_);
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), place_(other.place_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(place_, other.place_);
  return *this;
}

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "creating an event");
}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

double elapsed_ns(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from, to), "reading the time between two events");
  return static_cast<double>(milliseconds) * 1e6;
}

OwnStream::OwnStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}
OwnStream::~OwnStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}
OwnStream::OwnStream(OwnStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

}  // namespace orrery::cuda
