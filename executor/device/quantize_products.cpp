#include "executor/device/quantize_products.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace orrery::device {
namespace {

// Copies and scales begin at multiples of this: planner/fp8.cpp asks for memory by the same rule.
constexpr std::int64_t kAlignment = 256;
// Rows of FP8 operands are loaded by 16 bytes.
constexpr std::int64_t kMultiple = 16;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool can_be_fp8(const Gemm& gemm) {
  const auto multiple = [](std::int64_t size) { return size % kMultiple == 0; };
  return gemm.batch == 1 && gemm.a.array.dtype == DType::kBf16 && gemm.b.array.dtype == DType::kBf16 &&
         multiple(gemm.m) && multiple(gemm.n) && multiple(gemm.k) && multiple(gemm.a.stride) &&
         multiple(gemm.b.stride);
}

bool same_copy(const Quantize& x, const Quantize& y) {
  return x.x.data == y.x.data && x.rows == y.rows && x.width == y.width && x.stride == y.stride &&
         x.turned == y.turned;
}

class Quantizer {
 public:
  Quantizer(const Fp8Memory& memory, const std::set<const std::byte*>& gradients)
      : memory_(memory), gradients_(gradients) {}

  std::vector<Launch> run(const std::vector<Launch>& launches) {
    for (const Launch& launch : launches) {
      const auto* const gemm = std::get_if<Gemm>(&launch);
      launches_.push_back(gemm != nullptr && can_be_fp8(*gemm) ? Launch(product(*gemm)) : launch);
    }
    return std::move(launches_);
  }

 private:
  Gemm product(Gemm gemm) {
    // A lies [m, k] where it isn't turned, B [k, n].
    const Quantize a = copy_of(gemm.a, gemm.m, gemm.k, gemm.a.turned);
    const Quantize b = copy_of(gemm.b, gemm.n, gemm.k, !gemm.b.turned);
    gemm.a = {{a.to, DType::kFp8}, gemm.k, 0, false};
    gemm.b = {{b.to, DType::kFp8}, gemm.k, 0, true};
    gemm.a_scale = a.scale, gemm.b_scale = b.scale;
    gemm.a_e5m2 = a.e5m2, gemm.b_e5m2 = b.e5m2;
    return gemm;
  }

  // [outer, k] of FP8, from what lies so or, `turned`, as [k, outer].
  Quantize copy_of(const Matrix& matrix, std::int64_t outer, std::int64_t k, bool turned) {
    Quantize copy;
    copy.rows = turned ? k : outer, copy.width = turned ? outer : k;
    copy.stride = matrix.stride;
    copy.x = matrix.array;
    copy.turned = turned;
    copy.e5m2 = gradients_.count(matrix.array.data) > 0;
    const auto known = std::find_if(copies_.begin(), copies_.end(),
                                    [&](const Quantize& other) { return same_copy(other, copy); });
    if (known != copies_.end()) return *known;
    copy.to = take(outer * k);
    copy.scale = reinterpret_cast<float*>(take(kAlignment));
    launches_.emplace_back(copy);
    copies_.push_back(copy);
    return copy;
  }

  std::byte* take(std::int64_t bytes) {
    std::byte* const at = memory_.data + used_;
    used_ += aligned(bytes);
    if (used_ > memory_.bytes) {
      fail(
          ErrorKind::kRuntime,
          "FP8 copies of a product's operands need {} bytes or more, and the plan has {} for them; this is a "
          "fault of orrery: please report it with the scenario, and use plan.fp8: none",
          used_, memory_.bytes);
    }
    return at;
  }

  const Fp8Memory memory_;
  const std::set<const std::byte*>& gradients_;
  std::int64_t used_ = 0;
  std::vector<Quantize> copies_;
  std::vector<Launch> launches_;
};

}  // namespace

std::vector<Launch> quantize_products(const std::vector<Launch>& launches, const Fp8Memory& memory,
                                      const std::set<const std::byte*>& gradients) {
  return Quantizer(memory, gradients).run(launches);
}

}  // namespace orrery::device
