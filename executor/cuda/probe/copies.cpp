#include <functional>

#include "executor/cuda/probe/device.hpp"
#include "executor/cuda/probe/kernels.hpp"
#include "executor/cuda/probe/measurements.hpp"

namespace orrery::cuda {
namespace {

// Far beyond any cache.
constexpr std::size_t kDeviceBytes = std::size_t{2} << 30;
constexpr std::size_t kHostBytes = std::size_t{256} << 20;
constexpr int kRuns = 15;

double median_seconds(const Stream& stream, const std::function<void()>& work) {
  Stopwatch watch;
  for (int i = 0; i < 3; ++i) work();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    watch.start(stream);
    work();
    seconds.push_back(watch.stop_s(stream));
  }
  ORRERY_CUDA(cudaGetLastError());
  return median(seconds);
}

}  // namespace

JsonObject measure_copies() {
  const Stream stream;
  const Buffer from(kDeviceBytes), to(kDeviceBytes);
  launch_fill_bf16(from.data(), kDeviceBytes / 2, 1, stream);
  const double moved = 2.0 * static_cast<double>(kDeviceBytes);
  const double by_memcpy = median_seconds(stream, [&] {
    ORRERY_CUDA(cudaMemcpyAsync(to.data(), from.data(), kDeviceBytes, cudaMemcpyDeviceToDevice, stream));
  });
  const double by_kernel =
      median_seconds(stream, [&] { launch_copy(to.data(), from.data(), kDeviceBytes, stream); });

  const Buffer host(kHostBytes, Where::kPinnedHost);
  const double to_device = median_seconds(stream, [&] {
    ORRERY_CUDA(cudaMemcpyAsync(to.data(), host.data(), kHostBytes, cudaMemcpyHostToDevice, stream));
  });
  const double to_host = median_seconds(stream, [&] {
    ORRERY_CUDA(cudaMemcpyAsync(host.data(), from.data(), kHostBytes, cudaMemcpyDeviceToHost, stream));
  });
  return JsonObject()
      .add("device_bytes", static_cast<std::int64_t>(kDeviceBytes))
      .add("device_memcpy_bytes_per_s", moved / by_memcpy)
      .add("device_kernel_bytes_per_s", moved / by_kernel)
      .add("host_bytes", static_cast<std::int64_t>(kHostBytes))
      .add("host_to_device_bytes_per_s", static_cast<double>(kHostBytes) / to_device)
      .add("device_to_host_bytes_per_s", static_cast<double>(kHostBytes) / to_host);
}

}  // namespace orrery::cuda
