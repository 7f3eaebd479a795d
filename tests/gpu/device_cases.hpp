#pragma once
// Kernels on the device beside the host backend on the same numbers.

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>

#include "executor/cuda/generic.hpp"
#include "executor/cuda/kernels.hpp"
#include "tests/executor/kernel_cases.hpp"

namespace orrery::test {

inline void check_cuda(cudaError_t error) {
  INFO(cudaGetErrorString(error));
  REQUIRE(error == cudaSuccess);
}

// Without a GPU a case ends without an assertion, which counts as skipped.
inline bool have_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// Of fp32 and 16-bit numbers, read as any of them, far from all that is computed; as an index outside of
// everything.
inline constexpr int kPoison = 0x7b;

// Device memory between two guards, `offset` bytes away from an address that is aligned to 256.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes, std::size_t offset = 0) : bytes_(bytes), offset_(kGuard + offset) {
    check_cuda(cudaMalloc(&memory_, all()));
    check_cuda(cudaMemset(memory_, kPoison, all()));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { static_cast<void>(cudaFree(memory_)); }

  std::byte* data() const { return static_cast<std::byte*>(memory_) + offset_; }
  void write(const Bytes& bytes) {
    REQUIRE(bytes.size() == bytes_);
    check_cuda(cudaMemcpy(data(), bytes.data(), bytes_, cudaMemcpyHostToDevice));
  }
  Bytes read() const {
    Bytes bytes(bytes_);
    check_cuda(cudaMemcpy(bytes.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return bytes;
  }
  bool guards_stand() const {
    Bytes bytes(all());
    check_cuda(cudaMemcpy(bytes.data(), memory_, all(), cudaMemcpyDeviceToHost));
    bool stand = true;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const bool guard = i < offset_ || i >= offset_ + bytes_;
      stand = stand && (!guard || bytes[i] == static_cast<std::byte>(kPoison));
    }
    return stand;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  std::size_t all() const { return bytes_ + offset_ + kGuard; }
  std::size_t bytes_, offset_;
  void* memory_ = nullptr;
};

// Arrays of one launch.
class DeviceCase {
 public:
  // `offset`: in elements, away from an aligned address.
  device::Array input(const Values& values, DType type, std::size_t offset = 0) {
    return add(to_bytes(values, type), type, offset, false);
  }
  // Begins as these values in each run.
  device::Array changed(const Values& values, DType type, std::size_t offset = 0) {
    return add(to_bytes(values, type), type, offset, true);
  }
  device::Array output(std::size_t count, DType type, std::size_t offset = 0) {
    return add(Bytes(count * static_cast<std::size_t>(size_bytes(type)), static_cast<std::byte>(kPoison)),
               type, offset, true);
  }

  // Launches twice; both must leave the same bits, inputs as they were, and nothing beside the arrays.
  template <class Launch>
  void run(const Launch& launch) {
    run_by([&] { launch_with_memory(launch); });
  }
  // The same of whatever `launches` enqueues.
  template <class F>
  void run_by(F launches) {
    const std::vector<Bytes> first = run_once(launches), second = run_once(launches);
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      INFO("array " << i);
      CHECK((first[i] == second[i]));
      CHECK((arrays_[i].written || first[i] == arrays_[i].start));
      CHECK(arrays_[i].memory.guards_stand());
    }
    results_ = second;
  }

  Values values(const device::Array& array) const { return to_values(bytes(array), array.dtype); }
  const Bytes& bytes(const device::Array& array) const {
    std::size_t i = 0;
    while (arrays_[i].memory.data() != array.data) ++i;
    return results_[i];
  }

 private:
  struct Entry {
    Entry(Bytes bytes, bool is_written, std::size_t offset)
        : start(std::move(bytes)), memory(start.size(), offset), written(is_written) {}
    Bytes start;
    DeviceBytes memory;
    bool written;
  };

  device::Array add(Bytes bytes, DType type, std::size_t offset, bool written) {
    arrays_.emplace_back(std::move(bytes), written, offset * static_cast<std::size_t>(size_bytes(type)));
    return {arrays_.back().memory.data(), type};
  }

  template <class Launch>
  static void launch_with_memory(const Launch& launch) {
    Bytes table(static_cast<std::size_t>(cuda::table_bytes(launch)));
    cuda::write_table(launch, table.data());
    DeviceBytes on_device(table.size());
    on_device.write(table);
    const DeviceBytes workspace(static_cast<std::size_t>(cuda::workspace_bytes(launch)));
    cuda::launch(launch, on_device.data(), workspace.data(), nullptr);
    check_cuda(cudaDeviceSynchronize());
    CHECK(workspace.guards_stand());
    CHECK(on_device.guards_stand());
  }

  template <class F>
  std::vector<Bytes> run_once(F launches) {
    for (Entry& entry : arrays_) entry.memory.write(entry.start);
    launches();
    check_cuda(cudaDeviceSynchronize());
    std::vector<Bytes> results;
    for (const Entry& entry : arrays_) results.push_back(entry.memory.read());
    return results;
  }

  std::deque<Entry> arrays_;
  std::vector<Bytes> results_;
};

// Rounding to T moves a number by half of its last place: 2⁻⁹, 2⁻¹² of it. Both sides have rounded once, the
// host on its way from fp32, so whole places are allowed. fp32: sums in another order, and exponentials that
// are exact to two places, where differences leave a millionth of the largest (element_error).
inline double tolerance_of(DType type) {
  if (type == DType::kBf16) return 0x1p-7;
  if (type == DType::kFp16) return 0x1p-10;
  return 1e-4;
}

// The largest error of an element, relative to it, or to a hundredth of the largest where it is smaller than
// that: what is left of a difference has the errors of what was subtracted.
inline double element_error(const Values& found, const Values& wanted) {
  REQUIRE(found.size() == wanted.size());
  const double least = std::max(largest_of(wanted) / 100, 1e-30);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    const double error = std::abs(found[i] - wanted[i]) / std::max(std::abs(wanted[i]), least);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

// Numbers that T holds exactly, so that both sides begin with the same. They repeat after a prime count, so
// that rows of any width differ.
inline Values numbers(std::size_t count, DType type, std::uint64_t seed, double size = 2) {
  constexpr std::size_t kPeriod = 65'521;
  Random random(seed);
  Values period(std::min(count, kPeriod));
  for (double& x : period) x = (random.uniform() - 0.5) * size;
  period = to_values(to_bytes(period, type), type);
  Values values(count);
  for (std::size_t i = 0; i < count; i += kPeriod) {
    std::copy_n(period.begin(), std::min(kPeriod, count - i),
                values.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return values;
}
inline Values whole_numbers(std::size_t count, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  Random random(seed);
  Values values(count);
  for (double& x : values) x = static_cast<double>(random.between(low, high));
  return values;
}

inline std::size_t product(const std::vector<std::int64_t>& shape) {
  std::size_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

// One op of the host backend in fp32, with a dimension of its own for each of its operands' dimensions.
class HostOp {
 public:
  explicit HostOp(OpKind kind) { op.kind = kind; }
  HostOp& input(std::vector<std::int64_t> shape, Values values, DType type = DType::kFp32) {
    op.inputs.push_back(add(std::move(shape), type, TensorKind::kActivation));
    inputs_.push_back(std::move(values));
    return *this;
  }
  HostOp& output(std::vector<std::int64_t> shape) {
    outputs_.emplace_back(product(shape));
    op.outputs.push_back(add(std::move(shape), DType::kFp32, TensorKind::kActivation));
    return *this;
  }
  HostOp& gradient(std::vector<std::int64_t> shape, Values start) {
    op.outputs.push_back(add(std::move(shape), DType::kFp32, TensorKind::kParameterGradient));
    outputs_.push_back(std::move(start));
    return *this;
  }
  std::vector<Values> run() {
    host::Workspace workspace;
    std::vector<Values> results;
    for (const Bytes& bytes : run_kernel(graph_, op, view, inputs_, outputs_, workspace)) {
      results.push_back(to_values(bytes, DType::kFp32));
    }
    return results;
  }

  Op op;
  host::OpView view;

 private:
  TensorId add(std::vector<std::int64_t> shape, DType type, TensorKind kind) {
    Tensor tensor;
    tensor.kind = kind;
    tensor.dtype = type;
    for (const std::int64_t size : shape) {
      tensor.shape.emplace_back(std::ssize(graph_.dims));
      graph_.dims.push_back({"", DimRole::kOther, size});
      view.sizes.push_back(size);
    }
    graph_.tensors.push_back(std::move(tensor));
    return TensorId(std::ssize(graph_.tensors) - 1);
  }

  Graph graph_;
  std::vector<Values> inputs_, outputs_;
};

inline constexpr DType kActivationTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

}  // namespace orrery::test
