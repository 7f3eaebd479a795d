#pragma once
// CUDA objects that clean up after themselves, and the two clocks.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::cuda {

// Something on this machine doesn't work or isn't there: exit code 5.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// THROWS DeviceError with the call's place and CUDA's own words.
void check(cudaError_t status, const char* call, const char* file, int line);
#define ORRERY_CUDA(call) ::orrery::cuda::check((call), #call, __FILE__, __LINE__)

// The GPUs that programs may use. THROWS DeviceError, saying what is missing, when there is none.
int usable_gpus();

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// Memory of the current device, or pinned memory of the host.
enum class Where { kDevice, kPinnedHost };
class Buffer {
 public:
  Buffer(std::size_t bytes, Where where = Where::kDevice);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Where where_;
};

// Device time between two points of a stream.
class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  void start(cudaStream_t stream);
  // Waits for the stream. Resolution: half a microsecond.
  double stop_s(cudaStream_t stream);

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double host_now_s();

// The middle value. REQUIRES: not empty.
double median(std::vector<double> values);

}  // namespace orrery::cuda
