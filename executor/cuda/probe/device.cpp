#include "executor/cuda/probe/device.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace orrery::cuda {

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                    cudaGetErrorString(status));
}

int usable_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  throw DeviceError(std::string("no usable NVIDIA GPU on this machine (") +
                    (status == cudaSuccess ? "none found" : cudaGetErrorString(status)) +
                    "); the probe needs one, with a driver for CUDA " +
                    std::to_string(CUDART_VERSION / 1000) + " or later");
}

Stream::Stream() { ORRERY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { ORRERY_CUDA(cudaStreamSynchronize(stream_)); }

Buffer::Buffer(std::size_t bytes, Where where) : bytes_(bytes), where_(where) {
  if (where == Where::kDevice) {
    ORRERY_CUDA(cudaMalloc(&data_, bytes));
  } else {
    ORRERY_CUDA(cudaMallocHost(&data_, bytes));
  }
}

Buffer::~Buffer() {
  if (where_ == Where::kDevice) {
    cudaFree(data_);
  } else {
    cudaFreeHost(data_);
  }
}

Stopwatch::Stopwatch() {
  ORRERY_CUDA(cudaEventCreate(&begin_));
  ORRERY_CUDA(cudaEventCreate(&end_));
}

Stopwatch::~Stopwatch() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void Stopwatch::start(cudaStream_t stream) { ORRERY_CUDA(cudaEventRecord(begin_, stream)); }

double Stopwatch::stop_s(cudaStream_t stream) {
  ORRERY_CUDA(cudaEventRecord(end_, stream));
  ORRERY_CUDA(cudaEventSynchronize(end_));
  float milliseconds = 0;
  ORRERY_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
  return static_cast<double>(milliseconds) * 1e-3;
}

double host_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace orrery::cuda
