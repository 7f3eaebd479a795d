#pragma once
// Graphs of one op, whose host results the generic kernels' are held against.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "executor/cuda/generic.hpp"
#include "tests/executor/kernel_cases.hpp"
#include "tests/gpu/device_memory.hpp"

namespace orrery::test {

struct OneOp {
  Graph graph;
  Op op;
  host::OpView view;

  DimId dim(std::int64_t size) {
    graph.dims.push_back({"d" + std::to_string(graph.dims.size()), DimRole::kOther, size});
    view.sizes.push_back(size);
    return DimId(static_cast<std::int64_t>(graph.dims.size()) - 1);
  }
  std::vector<DimId> dims(const std::vector<std::int64_t>& sizes) {
    std::vector<DimId> made;
    for (const std::int64_t size : sizes) made.push_back(dim(size));
    return made;
  }
  TensorId tensor(const std::vector<std::int64_t>& sizes, DType dtype, TensorKind kind) {
    Tensor& made = graph.tensors.emplace_back();
    made.name = "t" + std::to_string(graph.tensors.size());
    made.kind = kind;
    made.dtype = dtype;
    made.shape = dims(sizes);
    return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
  }
  void reads(const std::vector<std::int64_t>& sizes, DType dtype) {
    op.inputs.push_back(tensor(sizes, dtype, TensorKind::kActivation));
  }
  void writes(const std::vector<std::int64_t>& sizes, DType dtype,
              TensorKind kind = TensorKind::kActivation) {
    op.outputs.push_back(tensor(sizes, dtype, kind));
  }
};

// As many numbers within ± 1/2 that the type has.
inline Values numbers(std::int64_t n, std::uint64_t seed, DType type, double scale = 1) {
  Random random(seed);
  Values values(static_cast<std::size_t>(n));
  for (double& x : values) x = scale * (random.uniform() - 0.5);
  return to_values(to_bytes(values, type), type);
}
inline Values whole_numbers(std::int64_t n, std::uint64_t seed, std::int64_t below) {
  Random random(seed);
  Values values(static_cast<std::size_t>(n));
  for (double& x : values) x = static_cast<double>(random.between(0, below - 1));
  return values;
}

inline DeviceMemory upload(const Values& values, DType type) { return DeviceMemory(to_bytes(values, type)); }
inline DeviceMemory upload(const std::vector<std::int64_t>& values) {
  Bytes bytes;
  for (const std::int64_t x : values) append(bytes, x);
  return values.empty() ? DeviceMemory() : DeviceMemory(bytes);
}
inline DeviceMemory output(std::int64_t n, DType type) {
  return DeviceMemory(static_cast<std::size_t>(n * size_bytes(type)));
}
inline Values download(const DeviceMemory& memory, DType type) { return to_values(memory.download(), type); }

// What a result may be off by, relative to the largest: fp32 sums in another order and other exponentials,
// and one more rounding to the type.
inline double tolerance_of(DType type) {
  return type == DType::kBf16 ? 1.0 / 256 : type == DType::kFp16 ? 1.0 / 1024 : 1e-5;
}

// Runs twice, with outputs that begin as nonsense, and checks that both times gave the same bits.
template <class F>
void run_twice(const std::vector<DeviceMemory*>& outputs, F run) {
  std::vector<Bytes> first;
  for (DeviceMemory* memory : outputs) memory->poison();
  run();
  for (const DeviceMemory* memory : outputs) first.push_back(memory->download());
  for (DeviceMemory* memory : outputs) memory->poison();
  run();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    INFO("output " << i);
    CHECK(outputs[i]->download() == first[i]);
  }
}

// Launches with a workspace of its own.
template <class Launch>
void launch_with(const Launch& launch, std::int64_t workspace_bytes) {
  const DeviceMemory workspace(static_cast<std::size_t>(workspace_bytes));
  cuda::launch(launch, nullptr, workspace.data(), nullptr);
  workspace.download();
}

inline std::vector<Bytes> on_host(const OneOp& one, const std::vector<Values>& inputs,
                                  const std::vector<Values>& outputs) {
  host::Workspace workspace;
  return run_kernel(one.graph, one.op, one.view, inputs, outputs, workspace);
}

}  // namespace orrery::test
