#include "executor/device/join_launches.hpp"

#include <algorithm>

#include "executor/device/join_packed.hpp"

namespace orrery::device {
namespace {

bool same(const Array& a, const Array& b) { return a.data != nullptr && a.data == b.data; }

// What a product adds into lies dense and may be several sums side by side: all begin here or none does.
bool begins_packed(std::vector<Launch>& launches, std::size_t at) {
  auto* const gemm = std::get_if<Gemm>(&launches[at]);
  if (gemm == nullptr || !gemm->accumulate || gemm->batch != 1 || gemm->d.stride != gemm->n) return false;
  const std::int64_t bytes = gemm->m * gemm->n * size_bytes(gemm->d.array.dtype);
  const std::byte* const begin = gemm->d.array.data;
  std::int64_t zeroed = 0;
  std::vector<Zero*> zeroes;
  for (std::size_t i = 0; i < at; ++i) {
    auto* const zero = std::get_if<Zero>(&launches[i]);
    if (zero == nullptr || zero->to < begin || zero->to + zero->bytes > begin + bytes) continue;
    zeroed += zero->bytes;
    zeroes.push_back(zero);
  }
  if (zeroed != bytes) return false;
  gemm->accumulate = false;
  for (Zero* const zero : zeroes) zero->bytes = 0;
  return true;
}

// Whether the launch can write `to` without reading it first, and from now on does.
bool overwrites(Launch& launch, const Zero& zero) {
  if (auto* const gemm = std::get_if<Gemm>(&launch); gemm != nullptr && gemm->d.array.data == zero.to) {
    if (gemm->batch == 1 && gemm->m > 1 && gemm->d.stride != gemm->n) return false;  // There is more between.
    const std::int64_t elements = gemm->batch * gemm->m * gemm->n;
    if (elements * size_bytes(gemm->d.array.dtype) != zero.bytes) return false;
    gemm->accumulate = false;
    return true;
  }
  if (auto* const sum = std::get_if<ColumnSum>(&launch); sum != nullptr && sum->to.data == zero.to) {
    if (sum->width * size_bytes(sum->to.dtype) != zero.bytes) return false;
    sum->accumulate = false;
    return true;
  }
  return false;
}

// A norm has up to two sums; both begin here or neither.
bool begins_both(std::vector<Launch>& launches, std::size_t at) {
  auto* const norm = std::get_if<NormGrad>(&launches[at]);
  if (norm == nullptr || !norm->accumulate) return false;
  std::vector<std::size_t> zeroes;
  for (const Array* const sum : {&norm->dweight, &norm->dbias}) {
    if (!*sum) continue;
    const std::int64_t bytes = norm->width * size_bytes(sum->dtype);
    const auto zero = std::find_if(
        launches.begin(), launches.begin() + static_cast<std::ptrdiff_t>(at), [&](const Launch& other) {
          const auto* const found = std::get_if<Zero>(&other);
          return found != nullptr && found->to == sum->data && found->bytes == bytes;
        });
    if (zero == launches.begin() + static_cast<std::ptrdiff_t>(at)) return false;
    zeroes.push_back(static_cast<std::size_t>(zero - launches.begin()));
  }
  norm->accumulate = false;
  for (const std::size_t zero : zeroes) std::get<Zero>(launches[zero]).bytes = 0;
  return true;
}

// Zeroes that a later launch makes needless get no bytes, and go.
void drop_zeroes(std::vector<Launch>& launches) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    begins_both(launches, i);
    begins_packed(launches, i);
    auto* const zero = std::get_if<Zero>(&launches[i]);
    for (std::size_t j = i + 1; zero != nullptr && j < launches.size(); ++j) {
      if (!overwrites(launches[j], *zero)) continue;
      zero->bytes = 0;
      break;
    }
  }
  std::erase_if(launches, [](const Launch& launch) {
    const auto* const zero = std::get_if<Zero>(&launch);
    return zero != nullptr && zero->bytes == 0;
  });
}

// The two as one in `first`.
bool join(Launch& first, const Launch& second, const SeenNowhereElse& private_to_it) {
  const auto* const add = std::get_if<AddScaled>(&second);
  const bool adds = add != nullptr && add->scale == 1 && add->addend;
  if (auto* const sum = std::get_if<AddScaled>(&first); sum != nullptr && sum->scale == 1 && sum->addend) {
    const auto* const norm = std::get_if<Norm>(&second);
    if (norm == nullptr || norm->residual || !same(norm->x, sum->y)) return false;
    Norm joined = *norm;
    joined.x = sum->x, joined.residual = sum->addend, joined.sum = sum->y;
    first = joined;
    return true;
  }
  // The loss is written where it is wanted.
  if (auto* const loss = std::get_if<CrossEntropy>(&first)) {
    const auto* const copy = std::get_if<CopyBytes>(&second);
    if (copy == nullptr || copy->from != loss->loss.data || !private_to_it(loss->loss)) return false;
    if (copy->bytes != size_bytes(loss->loss.dtype)) return false;
    loss->loss.data = copy->to;
    return true;
  }
  if (auto* const norm = std::get_if<NormGrad>(&first); norm != nullptr && adds && !norm->residual) {
    if (!private_to_it(norm->dx) || (!same(add->x, norm->dx) && !same(add->addend, norm->dx))) return false;
    norm->residual = same(add->x, norm->dx) ? add->addend : add->x;
    norm->dx = add->y;
    return true;
  }
  if (auto* const dropout = std::get_if<Dropout>(&first); dropout != nullptr && adds && !dropout->addend) {
    if (!private_to_it(dropout->y) || (!same(add->x, dropout->y) && !same(add->addend, dropout->y)))
      return false;
    dropout->addend = same(add->x, dropout->y) ? add->addend : add->x;
    dropout->y = add->y;
    return true;
  }
  return false;
}

}  // namespace

std::vector<Launch> join_launches(std::vector<Launch> launches, const SeenNowhereElse& private_to_it) {
  join_packed(launches, private_to_it);
  drop_zeroes(launches);
  std::vector<Launch> joined;
  for (Launch& launch : launches) {
    if (joined.empty() || !join(joined.back(), launch, private_to_it)) joined.push_back(std::move(launch));
  }
  return joined;
}

}  // namespace orrery::device
