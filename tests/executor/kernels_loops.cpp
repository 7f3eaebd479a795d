// The functions of one number inside the kernels, over all they may meet.
#include <limits>

#include "executor/kernels/loops.hpp"
#include "tests/executor/kernel_cases.hpp"

using namespace orrery;
using namespace orrery::test;
using host::loops;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// From `low` to `high`, and as many that no step hits exactly.
std::vector<float> grid(double low, double high, int steps) {
  std::vector<float> x;
  for (int i = 0; i <= steps; ++i) x.push_back(static_cast<float>(low + (high - low) * i / steps));
  return x;
}

// f's results, the same with all instructions.
template <typename F>
std::vector<float> with_all_instructions(std::size_t n, F f) {
  std::vector<float> first;
  for (const host::Isa isa : available_isas()) {
    std::vector<float> y(n);
    f(loops(isa), y.data());
    if (first.empty()) first = y;
    CHECK(std::memcmp(first.data(), y.data(), n * sizeof(float)) == 0);
  }
  return first;
}

double worst_relative(const std::vector<float>& x, const std::vector<float>& found, double floor,
                      double (*wanted)(double)) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double right = wanted(static_cast<double>(x[i]));
    worst =
        std::max(worst, std::abs(static_cast<double>(found[i]) - right) / std::max(std::abs(right), floor));
  }
  return worst;
}

// Results are held to their own size down to `floor`, and to that below.
void check_activation(Activation kind, double floor, double (*value)(double), double (*slope)(double)) {
  const std::vector<float> x = grid(-30, 30, 20'001);
  const std::vector<float> ones(x.size(), 1.0f);
  const auto found = with_all_instructions(
      x.size(), [&](const host::Loops& loop, float* y) { loop.unary(kind, 2.5f, x.data(), y, x.size()); });
  CHECK(worst_relative(x, found, floor, value) < 2e-6);
  const auto slopes = with_all_instructions(x.size(), [&](const host::Loops& loop, float* y) {
    loop.unary_grad(kind, 2.5f, x.data(), ones.data(), y, x.size());
  });
  CHECK(worst_relative(x, slopes, 0.1, slope) < 2e-6);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("exponentials are right to a few parts in ten million", "[kernels][loops]") {
  const std::vector<float> x = grid(-86.5, 88.7, 50'001);
  const auto exp_of = [](const std::vector<float>& in) {
    return with_all_instructions(
        in.size(), [&](const host::Loops& loop, float* y) { loop.exp(in.data(), y, in.size()); });
  };
  CHECK(worst_relative(x, exp_of(x), 0, [](double at) { return std::exp(at); }) < 1.5e-7);
  CHECK(exp_of({0, -0.0f, -87, -1000, -kInf, 89, 1000, kInf}) ==
        std::vector<float>{1, 1, 0, 0, 0, kInf, kInf, kInf});
  CHECK(std::isnan(exp_of({std::nanf("")})[0]));
}

TEST_CASE("activations and their slopes over all that they may meet", "[kernels][loops]") {
  check_activation(
      Activation::kSilu, 1e-12, [](double x) { return x * sigmoid(x); },
      [](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); });
  // Far below 0 a GELU is the difference of nearly equal numbers in the reference's form; erfc has them
  // apart.
  check_activation(
      Activation::kGelu, 1e-6, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); },
      [](double x) {
        return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
               x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
      });
  check_activation(
      Activation::kTanhCap, 1e-12, [](double x) { return 2.5 * std::tanh(x / 2.5); },
      [](double x) { return 1 - std::pow(std::tanh(x / 2.5), 2); });
  check_activation(
      Activation::kRelu, 0.1, [](double x) { return std::max(x, 0.0); },
      [](double x) { return x > 0 ? 1.0 : 0.0; });
}

TEST_CASE("a softmax of scores far from zero keeps its digits", "[kernels][loops]") {
  // 1001 and 1000 in lanes 1 and 2, and no other counts: e^0 + e^−1.
  std::vector<float> scores(16, 5000.0f);
  scores[1] = 1001, scores[2] = 1000;
  std::vector<std::int32_t> positions(16, 9);
  positions[1] = 3, positions[2] = 4;
  host::SoftmaxRow row;
  row.positions = positions.data();
  row.low = 3, row.high = 4;
  float largest = -kInf;
  const float sum = loops(host::best_isa()).softmax(row, scores.data(), 16, &largest);
  CHECK(largest == 1001);
  CHECK(sum == Approx(1 + std::exp(-1.0)).epsilon(1e-6));
  CHECK(scores[0] == 0);
  CHECK(scores[1] == 1);
}

TEST_CASE("tails of rows leave what lies behind them", "[kernels][loops]") {
  for (const host::Isa isa : available_isas()) {
    for (std::size_t n = 0; n <= 33; ++n) {
      std::vector<float> a(n, 1.0f), b(n, 2.0f), y(n + 1, 7.0f);
      loops(isa).add(a.data(), b.data(), y.data(), n);
      std::vector<float> wanted(n, 3.0f);
      wanted.push_back(7.0f);
      CHECK(y == wanted);
      CHECK(loops(isa).dot(a.data(), b.data(), n) == 2.0f * static_cast<float>(n));
    }
  }
}
