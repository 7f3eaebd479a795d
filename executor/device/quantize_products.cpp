#include "executor/device/quantize_products.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"

namespace orrery::device {
namespace {

// Copies and scales begin at multiples of this: planner/fp8.cpp asks for memory by the same rule.
constexpr std::int64_t kAlignment = 256;
// Rows of FP8 operands are loaded by 16 bytes.
constexpr std::int64_t kMultiple = 16;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t scale_bytes(Fp8Scales scales, std::int64_t outer, std::int64_t inner) {
  return fp8_scale_count(scales, outer, inner) * size_bytes(DType::kFp32);
}

bool can_be_fp8(const Gemm& gemm) {
  const auto multiple = [](std::int64_t size) { return size % kMultiple == 0; };
  return gemm.batch == 1 && gemm.a.array.dtype == DType::kBf16 && gemm.b.array.dtype == DType::kBf16 &&
         multiple(gemm.m) && multiple(gemm.n) && multiple(gemm.k) && multiple(gemm.a.stride) &&
         multiple(gemm.b.stride);
}

bool same_matrix(const Quantize& x, const Quantize& y) {
  return x.x.data == y.x.data && x.rows == y.rows && x.width == y.width && x.stride == y.stride;
}

bool same_elements(const Quantize& x, const Quantize& y) {
  const bool dense = x.stride == x.width && y.stride == y.width;
  return same_matrix(x, y) || (dense && x.x.data == y.x.data && x.rows * x.width == y.rows * y.width);
}

// Has the launch leave it, and says of what.
std::optional<Quantize> leave(Launch& launch, float* largest) {
  Quantize made;
  made.rows = 1;
  made.largest = largest;
  if (auto* const norm = std::get_if<Norm>(&launch)) {
    norm->largest = largest;
    made.x = norm->y, made.width = norm->rows * norm->width;
  } else if (auto* const of_norm = std::get_if<NormGrad>(&launch)) {
    of_norm->largest = largest;
    made.x = of_norm->dx, made.width = of_norm->rows * of_norm->width;
  } else if (auto* const gated = std::get_if<Gated>(&launch)) {
    gated->largest = largest;
    made.x = gated->y, made.width = gated->elements;
  } else if (auto* const grad = std::get_if<GatedGrad>(&launch)) {
    const bool side_by_side = grad->gradient_stride == 2 * grad->width &&
                              grad->dup.data == grad->dgate.data + grad->width * size_bytes(grad->dup.dtype);
    if (!side_by_side) return {};
    grad->largest = largest;
    made.x = grad->dgate, made.width = 2 * grad->elements;
  } else {
    return {};
  }
  made.stride = made.width;
  return made;
}

// Memory that is used from its beginning on.
class Room {
 public:
  explicit Room(const Fp8Memory& memory) : memory_(memory) {}

  bool has(std::int64_t bytes) const { return used_ + aligned(bytes) <= memory_.bytes; }
  std::byte* take(std::int64_t bytes) {
    if (!has(bytes)) {
      fail(
          ErrorKind::kRuntime,
          "FP8 copies of a product's operands need {} bytes or more, and the plan has {} for them; this is a "
          "fault of orrery: please report it with the scenario, and use plan.fp8: none",
          used_ + aligned(bytes), memory_.bytes);
    }
    std::byte* const at = memory_.data + used_;
    used_ += aligned(bytes);
    return at;
  }

 private:
  const Fp8Memory memory_;
  std::int64_t used_ = 0;
};

class Quantizer {
 public:
  Quantizer(const Fp8Arithmetic& arithmetic, const Fp8Buffers& buffers, const Fp8Operands& operands,
            std::vector<Quantize> earlier)
      : arithmetic_(arithmetic),
        operands_(operands),
        earlier_(std::move(earlier)),
        own_(buffers.own),
        kept_(buffers.kept) {
    if (buffers.keeps.valid()) largest_ = reinterpret_cast<float*>(kept_.take(kAlignment));
  }

  std::vector<Launch> run(const std::vector<Launch>& launches) {
    for (const Launch& launch : launches) {
      const auto* const gemm = std::get_if<Gemm>(&launch);
      launches_.push_back(gemm != nullptr && can_be_fp8(*gemm) ? Launch(product(*gemm)) : launch);
    }
    return std::move(launches_);
  }
  // What is left behind.
  std::vector<Quantize> left() const {
    std::vector<Quantize> found;
    std::copy_if(made_.begin(), made_.end(), std::back_inserter(found),
                 [](const Quantize& copy) { return copy.largest != nullptr || kept_turned(copy); });
    return found;
  }

 private:
  static bool kept_turned(const Quantize& copy) { return copy.to != nullptr && copy.turned != nullptr; }

  Gemm product(Gemm gemm) {
    // A lies [m, k] where it isn't turned, B [k, n].
    const Quantize a = copy_of(gemm.a, gemm.m, gemm.k, gemm.a.turned);
    const Quantize b = copy_of(gemm.b, gemm.n, gemm.k, !gemm.b.turned);
    gemm.a = {{gemm.a.turned ? a.turned : a.to, DType::kFp8}, gemm.k, 0, false};
    gemm.b = {{gemm.b.turned ? b.to : b.turned, DType::kFp8}, gemm.k, 0, true};
    gemm.a_scale = scale_of(a, gemm.a.array.data), gemm.b_scale = scale_of(b, gemm.b.array.data);
    gemm.a_scales = a.scales, gemm.b_scales = b.scales;
    gemm.a_e5m2 = a.e5m2, gemm.b_e5m2 = b.e5m2;
    gemm.fast_sums = arithmetic_.fast;
    return gemm;
  }

  static const float* scale_of(const Quantize& copy, const std::byte* data) {
    return copy.scales != Fp8Scales::kOne && data == copy.turned ? copy.turned_scale : copy.scale;
  }

  // One that has [outer, k] of FP8, from what lies so or, `turned`, as [k, outer].
  Quantize copy_of(const Matrix& matrix, std::int64_t outer, std::int64_t k, bool turned) {
    Quantize copy;
    copy.rows = turned ? k : outer, copy.width = turned ? outer : k;
    copy.stride = matrix.stride;
    copy.x = matrix.array;
    copy.e5m2 = arithmetic_.e5m2 && operands_.gradients.count(matrix.array.data) > 0;
    if (arithmetic_.scaling != Fp8Scaling::kOne)
      copy.scales = is_input(copy) ? Fp8Scales::kRows : Fp8Scales::kSquares;
    for (const std::vector<Quantize>* const known : {&made_, &earlier_}) {
      for (const Quantize& other : *known) {
        if (same_matrix(other, copy) && (turned ? other.turned : other.to) != nullptr) return other;
        if (same_elements(other, copy)) copy.known_largest = other.largest;
      }
    }
    make(copy, turned);
    return copy;
  }

  bool is_input(const Quantize& copy) const { return operands_.inputs.count(copy.x.data) > 0; }

  void make(Quantize& copy, bool turned) {
    const std::int64_t elements = copy.rows * copy.width;
    const std::int64_t scales = scale_bytes(copy.scales, copy.rows, copy.width),
                       turned_scales = scale_bytes(copy.scales, copy.width, copy.rows);
    const bool twice = is_input(copy) && !turned && kept_.has(aligned(elements) + aligned(turned_scales));
    (turned ? copy.turned : copy.to) = own_.take(elements);
    if (twice) copy.turned = kept_.take(elements);
    const auto take_scales = [](Room& room, std::int64_t bytes) {
      return reinterpret_cast<float*>(room.take(bytes));
    };
    if (copy.scales == Fp8Scales::kOne) {
      if (largest_ != nullptr) copy.largest = largest_++;
      copy.scale = take_scales(twice ? kept_ : own_, scales);
    } else {
      if (!turned) copy.scale = take_scales(own_, scales);
      if (copy.turned != nullptr) copy.turned_scale = take_scales(twice ? kept_ : own_, turned_scales);
    }
    launches_.emplace_back(copy);
    made_.push_back(copy);
  }

  const Fp8Arithmetic arithmetic_;
  const Fp8Operands& operands_;
  std::vector<Quantize> earlier_;
  Room own_, kept_;
  float* largest_ = nullptr;  // Where the next matrix's goes.
  std::vector<Quantize> made_;
  std::vector<Launch> launches_;
};

}  // namespace

std::vector<Launch> Fp8Products::quantize(const std::vector<Launch>& launches,
                                          const Fp8Arithmetic& arithmetic, const Fp8Buffers& buffers,
                                          const Fp8Operands& operands) {
  std::vector<Quantize> earlier;
  for (const BufferId buffer : buffers.earlier) {
    const auto found = kept_.find(buffer);
    if (found != kept_.end()) earlier.insert(earlier.end(), found->second.begin(), found->second.end());
  }
  Quantizer quantizer(arithmetic, buffers, operands, std::move(earlier));
  std::vector<Launch> quantized = quantizer.run(launches);
  if (!buffers.keeps.valid()) return quantized;
  // Later instructions have what lies in the kept buffer, not what lay in the instruction's own.
  std::vector<Quantize> left = quantizer.left();
  for (Quantize& copy : left) copy.to = nullptr;
  kept_[buffers.keeps] = std::move(left);
  return quantized;
}

void Fp8Products::leave_largest(std::vector<Launch>& launches, BufferId buffer, const Fp8Memory& memory) {
  for (std::size_t i = launches.size(); i-- > 0;) {
    const std::optional<Quantize> made = leave(launches[i], reinterpret_cast<float*>(memory.data));
    if (!made) continue;
    kept_[buffer] = {*made};
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(i),
                    Zero{memory.data, size_bytes(DType::kFp32)});
    return;
  }
}

}  // namespace orrery::device
