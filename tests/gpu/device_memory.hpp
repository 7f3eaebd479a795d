#pragma once
// Device memory of tests: bytes up and down, outputs that begin as nonsense, and margins that nobody may
// write into.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <iostream>
#include <utility>
#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::test {

// Whether kernels can run here; says that a test is skipped where they can't.
inline bool have_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  cudaGetLastError();  // Nobody else's error.
  std::cout << "skipped: no NVIDIA GPU here\n";
  return false;
}

class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(const std::vector<std::byte>& bytes) : DeviceMemory(bytes.size()) {
    if (!bytes.empty()) check(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  // Poisoned: every byte is 0xFF, NaNs of all types of floats and −1 of whole numbers.
  explicit DeviceMemory(std::size_t size) : size_(size) {
    void* made = nullptr;
    check(cudaMalloc(&made, size + 2 * kMargin));
    all_ = static_cast<std::byte*>(made);
    check(cudaMemset(all_, kUntouched, size + 2 * kMargin));
    poison();
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : all_(std::exchange(other.all_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(all_, other.all_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceMemory() { cudaFree(all_); }

  void poison() { check(cudaMemset(data(), 0xFF, size_)); }
  // Null where nothing was allocated.
  std::byte* data() const { return all_ == nullptr ? nullptr : all_ + kMargin; }
  std::size_t size() const { return size_; }
  device::Array array(DType type) const { return {data(), type}; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }

  // Waits for what was launched, and checks that nobody wrote before or behind it.
  std::vector<std::byte> download() const {
    check(cudaDeviceSynchronize());
    std::vector<std::byte> bytes(size_ + 2 * kMargin);
    check(cudaMemcpy(bytes.data(), all_, bytes.size(), cudaMemcpyDeviceToHost));
    const auto untouched = [](std::byte x) { return x == std::byte{kUntouched}; };
    CHECK(std::all_of(bytes.begin(), bytes.begin() + kMargin, untouched));
    CHECK(std::all_of(bytes.end() - kMargin, bytes.end(), untouched));
    return {bytes.begin() + kMargin, bytes.end() - kMargin};
  }

 private:
  static constexpr std::ptrdiff_t kMargin = 256;  // As kernels' tables and workspaces are aligned.
  static constexpr int kUntouched = 0xA5;
  static void check(cudaError_t error) {
    INFO(cudaGetErrorString(error));
    REQUIRE(error == cudaSuccess);
  }

  std::byte* all_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace orrery::test
