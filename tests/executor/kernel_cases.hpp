#pragma once
// Ops of a graph, each run in double precision by the reference and in single by the kernels on the same
// floats.

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "executor/kernels/convert.hpp"
#include "executor/kernels/kernels.hpp"

namespace orrery::test {

using host::TensorView;
using host::Values;
using Bytes = std::vector<std::byte>;

inline bool is_whole(DType type) {
  return type == DType::kInt64 || type == DType::kInt32 || type == DType::kUint8;
}

template <typename T>
void append(Bytes& bytes, T x) {
  const auto* raw = reinterpret_cast<const std::byte*>(&x);
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

inline Bytes to_bytes(const Values& values, DType type) {
  Bytes bytes;
  if (is_whole(type)) {
    for (const double x : values) {
      switch (type) {
        case DType::kInt64: append(bytes, static_cast<std::int64_t>(x)); break;
        case DType::kInt32: append(bytes, static_cast<std::int32_t>(x)); break;
        default: append(bytes, static_cast<std::uint8_t>(x));
      }
    }
    return bytes;
  }
  const std::vector<float> floats(values.begin(), values.end());
  const host::FloatFormat format = host::format_of(type, false);
  bytes.resize(floats.size() * host::code_bytes(format));
  host::encode(format, floats.data(), bytes.data(), floats.size());
  return bytes;
}

inline Values to_values(const Bytes& bytes, DType type) {
  const std::size_t n = bytes.size() / static_cast<std::size_t>(size_bytes(type));
  Values values(n);
  std::vector<float> floats(n);
  if (!is_whole(type)) host::decode(host::format_of(type, false), bytes.data(), floats.data(), n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte* at = bytes.data() + i * static_cast<std::size_t>(size_bytes(type));
    const auto whole = [&](auto x) {
      std::memcpy(&x, at, sizeof(x));
      return static_cast<double>(x);
    };
    values[i] = type == DType::kInt64   ? whole(std::int64_t{})
                : type == DType::kInt32 ? whole(std::int32_t{})
                : type == DType::kUint8 ? whole(std::uint8_t{})
                                        : static_cast<double>(floats[i]);
  }
  return values;
}

inline TensorView view_of(Bytes& bytes, DType type) {
  return {bytes.data(), type, static_cast<std::int64_t>(bytes.size()) / size_bytes(type)};
}

// What the kernel makes of these values, output by output. Outputs begin as what they are in `values`.
inline std::vector<Bytes> run_kernel(const Graph& graph, const Op& op, const host::OpView& view,
                                     const std::vector<Values>& inputs, const std::vector<Values>& outputs,
                                     host::Workspace& workspace) {
  std::vector<Bytes> in, out;
  std::vector<TensorView> in_views, out_views;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(to_bytes(inputs[i], graph[op.inputs[i]].dtype));
    in_views.push_back(view_of(in.back(), graph[op.inputs[i]].dtype));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    out.push_back(to_bytes(outputs[i], graph[op.outputs[i]].dtype));
    out_views.push_back(view_of(out.back(), graph[op.outputs[i]].dtype));
  }
  host::run_kernel(graph, op, view, in_views, out_views, workspace);
  return out;
}

inline double largest_of(const Values& values) {
  double largest = 0;
  for (const double x : values) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  return largest;
}

// Relative to the largest value wanted, or to `floor` where all are smaller.
inline double relative_error(const Values& found, const Values& wanted, double floor = 1e-3) {
  REQUIRE(found.size() == wanted.size());
  const double size = std::max(largest_of(wanted), floor);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    const double error = std::abs(found[i] - wanted[i]) / size;
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

inline std::vector<host::Isa> available_isas() {
  std::vector<host::Isa> isas;
  for (const host::Isa isa : {host::Isa::kScalar, host::Isa::kAvx2, host::Isa::kAvx512}) {
    if (host::available(isa)) isas.push_back(isa);
  }
  return isas;
}

// Runs the op both ways, with all vector instructions of this machine; `outputs` hold the reference's results
// afterwards.
inline void check_op(const Graph& graph, const Op& op, const host::OpView& view,
                     const std::vector<Values>& inputs, std::vector<Values>& outputs,
                     double tolerance = 1e-5) {
  INFO(op.name);
  std::vector<std::vector<Bytes>> found;
  for (const host::Isa isa : available_isas()) {
    host::Workspace workspace(isa);
    found.push_back(run_kernel(graph, op, view, inputs, outputs, workspace));
    CHECK(found.back() == found.front());
  }
  std::vector<Values> copies = inputs;
  std::vector<Values*> in, out;
  for (Values& x : copies) in.push_back(&x);
  for (Values& x : outputs) out.push_back(&x);
  host::run_op(graph, op, view, in, out);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const DType type = graph[op.outputs[i]].dtype;
    INFO("output " << i);
    CHECK(relative_error(to_values(found[0][i], type), outputs[i]) < tolerance);
  }
}

}  // namespace orrery::test
