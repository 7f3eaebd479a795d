#pragma once
// Memory and events that go when their owner does.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace orrery::cuda {

// Of the device, or of the host where the device can reach it. Zeroed.
enum class MemoryPlace : std::uint8_t { kDevice, kPinnedHost };
class Memory {
 public:
  Memory() = default;
  // THROWS Error(kRuntime) naming what it is for, its size and what was free.
  Memory(std::int64_t bytes, std::string_view what, MemoryPlace place = MemoryPlace::kDevice);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  std::byte* data() const { return data_; }
  std::int64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  MemoryPlace place_ = MemoryPlace::kDevice;
};

class Event {
 public:
  explicit Event(bool timed);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device time from one to the other. REQUIRES: both have come.
double elapsed_ns(cudaEvent_t from, cudaEvent_t to);

class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(OwnStream&& other) noexcept;
  OwnStream& operator=(OwnStream&&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace orrery::cuda
