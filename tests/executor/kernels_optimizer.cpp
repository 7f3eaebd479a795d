#include "executor/kernels/optimizer.hpp"

#include <algorithm>

#include "executor/kernels/exact_sum.hpp"
#include "tests/executor/kernel_cases.hpp"

using namespace orrery;
using namespace orrery::test;
using host::ExactSum;

namespace {

std::vector<float> wide_numbers(std::size_t n) {
  Random random(5);
  std::vector<float> values(n);
  for (float& x : values) {
    x = std::ldexp(static_cast<float>(random.uniform() - 0.5), static_cast<int>(random.between(0, 60)) - 30);
  }
  return values;
}

ExactSum sum_of(const std::vector<float>& x) {
  ExactSum sum;
  sum.add_squares(x.data(), x.size());
  return sum;
}

}  // namespace

TEST_CASE("a step of AdamW", "[kernels][adamw]") {
  // t = 1 from zero moments: m = 0.1 g and v = 0.001 g², so m / (1 − 0.9) = g and √(v / (1 − 0.999)) = |g|,
  // and the step is lr · g / (|g| + ε): w = 2 (1 − 0.1 · 0.5) − 0.1 · 0.25 / (0.25 + 0.25) = 1.9 − 0.05
  // = 1.85, of a gradient of 0.5 that is scaled by 0.5.
  host::AdamWSettings settings;
  settings.learning_rate = 0.1;
  settings.weight_decay = 0.5;
  settings.epsilon = 0.25;
  settings.gradient_scale = 0.5;
  float gradient = 0.5f, master = 2, first = 0, second = 0;
  host::Workspace workspace;
  host::AdamWArrays arrays;
  arrays.gradient = {reinterpret_cast<std::byte*>(&gradient), DType::kFp32, 1};
  arrays.master = &master, arrays.first = &first, arrays.second = &second;
  host::adamw(settings, arrays, workspace);
  CHECK(master == Approx(1.85).epsilon(1e-6));
  CHECK(first == Approx(0.025).epsilon(1e-6));
  CHECK(second == Approx(0.0000625).epsilon(1e-6));
  // t = 2 with the same gradient: both corrected moments are g and g² again.
  settings.step = 2;
  host::adamw(settings, arrays, workspace);
  CHECK(master == Approx(1.85 * 0.95 - 0.05).epsilon(1e-6));
}

TEST_CASE("AdamW's bits don't depend on instructions or on how the array is cut", "[kernels][adamw]") {
  constexpr std::size_t kCount = 5003;
  const std::vector<float> start = wide_numbers(kCount);
  const auto run = [&](host::Isa isa, std::size_t cut) {
    host::Workspace workspace(isa);
    std::vector<float> master = start, first(kCount, 0.5f), second(kCount, 0.25f);
    std::vector<std::byte> gradient(2 * kCount), weights(2 * kCount);
    host::encode(host::FloatFormat::kBf16, start.data(), gradient.data(), kCount);
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, cut), std::pair(cut, kCount)}) {
      const auto n = static_cast<std::int64_t>(end - begin);
      host::AdamWArrays arrays;
      arrays.gradient = {gradient.data() + 2 * begin, DType::kBf16, n};
      arrays.weights = {weights.data() + 2 * begin, DType::kBf16, n};
      arrays.master = &master[begin], arrays.first = &first[begin], arrays.second = &second[begin];
      host::adamw({}, arrays, workspace);
    }
    std::vector<std::byte> rounded(2 * kCount);
    host::encode(host::FloatFormat::kBf16, master.data(), rounded.data(), kCount);
    CHECK(weights == rounded);
    return std::tuple(master, first, second);
  };
  const auto wanted = run(host::Isa::kScalar, 0);
  CHECK(std::get<0>(wanted) != start);
  for (const host::Isa isa : available_isas()) {
    for (const std::size_t cut : {1, 13, 2048, 4001}) CHECK(run(isa, cut) == wanted);
  }
}

TEST_CASE("sums of squares are exact", "[kernels][exact_sum]") {
  CHECK(ExactSum().value() == 0);
  CHECK(sum_of({3, 4}).value() == 25);
  CHECK(sum_of({-0.5f, 0.25f}).value() == 0.3125);
  // The smallest and the largest float: 2^−298 alone, and lost beside (2^128 − 2^104)².
  const float smallest = std::ldexp(1.0f, -149), largest = std::numeric_limits<float>::max();
  CHECK(sum_of({smallest}).value() == std::ldexp(1.0, -298));
  CHECK(sum_of({smallest, largest}).value() == static_cast<double>(largest) * static_cast<double>(largest));
  // 2^54 + 2 · 1, of which a double keeps neither 1 by itself: each would be rounded to even, away.
  CHECK(sum_of({1, 134217728.0f, 1, 1}).value() == 18014398509481984.0 + 4);  // 2^54 + 3 rounds to + 4.
  CHECK(sum_of({134217728.0f, 1}).value() == 18014398509481984.0);
}

TEST_CASE("sums of squares don't depend on order or grouping", "[kernels][exact_sum]") {
  std::vector<float> x = wide_numbers(300'000);  // More than fit between two carries.
  const ExactSum whole = sum_of(x);
  long double by_hand = 0;
  for (const float v : x) by_hand += static_cast<long double>(v) * static_cast<long double>(v);
  CHECK(whole.value() == Approx(static_cast<double>(by_hand)).epsilon(1e-14));
  std::sort(x.begin(), x.end());
  CHECK(sum_of(x).words() == whole.words());
  // Four ranks whose words an all-reduce adds.
  ExactSum::Words added = {};
  ExactSum merged;
  for (const auto& [begin, end] :
       {std::pair(0, 7), std::pair(7, 100'000), std::pair(100'000, 299'999), std::pair(299'999, 300'000)}) {
    const ExactSum part = sum_of({x.begin() + begin, x.begin() + end});
    for (std::size_t i = 0; i < added.size(); ++i) added[i] += part.words()[i];
    merged.add(part);
  }
  CHECK(merged.words() == whole.words());
  CHECK(ExactSum(added).words() == whole.words());
}

TEST_CASE("a sum says that something in it was no number", "[kernels][exact_sum]") {
  const float inf = std::numeric_limits<float>::infinity();
  const ExactSum sum = sum_of({1, inf, 2, -inf, std::nanf("")});
  CHECK_FALSE(sum.finite());
  CHECK(sum.words()[ExactSum::kLimbs] == 3);
  CHECK(std::isnan(sum.value()));
  ExactSum other = sum_of({1});
  CHECK(other.finite());
  other.add(sum);
  CHECK_FALSE(other.finite());
}
