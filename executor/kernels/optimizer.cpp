#include "executor/kernels/optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "executor/kernels/convert.hpp"
#include "executor/kernels/loops.hpp"

namespace orrery::host {
namespace {

AdamWFactors factors_of(const AdamWSettings& settings) {
  const auto t = static_cast<double>(settings.step);
  AdamWFactors factors;
  factors.gradient_scale = static_cast<float>(settings.gradient_scale);
  factors.beta1 = static_cast<float>(settings.beta1);
  factors.one_minus_beta1 = static_cast<float>(1 - settings.beta1);
  factors.beta2 = static_cast<float>(settings.beta2);
  factors.one_minus_beta2 = static_cast<float>(1 - settings.beta2);
  factors.step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(settings.beta1, t)));
  factors.root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(settings.beta2, t)));
  factors.epsilon = static_cast<float>(settings.epsilon);
  factors.keep = static_cast<float>(1 - settings.learning_rate * settings.weight_decay);
  return factors;
}

}  // namespace

void adamw(const AdamWSettings& settings, const AdamWArrays& arrays, Workspace& workspace) {
  assert(arrays.weights.data == nullptr || arrays.weights.elements == arrays.gradient.elements);
  constexpr std::size_t kBlock = 2048;  // What is converted stays in the first cache.
  const AdamWFactors factors = factors_of(settings);
  const FloatFormat format = format_of(arrays.gradient.dtype, false);
  const Loops& loop = loops(workspace.isa);
  Scratch scratch(workspace);
  float* decoded = scratch.take<float>(kBlock);
  const auto n = static_cast<std::size_t>(arrays.gradient.elements);
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    const std::byte* codes = arrays.gradient.data + i * code_bytes(format);
    const float* gradient = decoded;
    if (format == FloatFormat::kFp32) {
      gradient = reinterpret_cast<const float*>(codes);
    } else {
      decode(format, codes, decoded, count);
    }
    loop.adamw(factors, gradient, arrays.master + i, arrays.first + i, arrays.second + i, count);
    if (arrays.weights.data == nullptr) continue;
    const FloatFormat to = format_of(arrays.weights.dtype, false);
    encode(to, arrays.master + i, arrays.weights.data + i * code_bytes(to), count);
  }
}

}  // namespace orrery::host
