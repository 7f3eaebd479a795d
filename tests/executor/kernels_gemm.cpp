#include "executor/kernels/gemm.hpp"
#include "tests/executor/kernel_cases.hpp"

using namespace orrery;
using namespace orrery::test;
using host::gemm;
using host::Matrix;
using host::Workspace;

namespace {

std::vector<float> numbers(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(random.uniform() - 0.5);
  return values;
}

// More than a block of k, and no multiples of a tile.
constexpr std::size_t kM = 37, kN = 75, kK = 300;

struct Operands {
  std::vector<float> a = numbers(kM * kK, 1), b = numbers(kK * kN, 2), start = numbers(kM * kN, 3);
  Matrix left() const { return {a.data(), kK, 1}; }
  Matrix right() const { return {b.data(), kN, 1}; }
};

// The definition: one chain over k.
std::vector<float> chains(const Operands& x, bool accumulate) {
  std::vector<float> c(kM * kN);
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      float sum = accumulate ? x.start[i * kN + j] : 0;
      for (std::size_t k = 0; k < kK; ++k) sum = std::fma(x.a[i * kK + k], x.b[k * kN + j], sum);
      c[i * kN + j] = sum;
    }
  }
  return c;
}

}  // namespace

TEST_CASE("each element of a product is one chain of multiply-adds, with all instructions",
          "[kernels][gemm]") {
  const Operands x;
  for (const bool accumulate : {false, true}) {
    const std::vector<float> wanted = chains(x, accumulate);
    for (const host::Isa isa : available_isas()) {
      INFO(to_string(isa));
      Workspace workspace(isa);
      std::vector<float> c = x.start;
      gemm(kM, kN, kK, x.left(), x.right(), c.data(), kN, accumulate, workspace);
      CHECK(c == wanted);
    }
  }
}

TEST_CASE("operands may lie transposed", "[kernels][gemm]") {
  const Operands x;
  std::vector<float> a_turned(kM * kK), b_turned(kK * kN);
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t k = 0; k < kK; ++k) a_turned[k * kM + i] = x.a[i * kK + k];
  }
  for (std::size_t k = 0; k < kK; ++k) {
    for (std::size_t j = 0; j < kN; ++j) b_turned[j * kK + k] = x.b[k * kN + j];
  }
  const std::vector<float> wanted = chains(x, false);
  Workspace workspace;
  std::vector<float> c(kM * kN);
  gemm(kM, kN, kK, {a_turned.data(), 1, kM}, {b_turned.data(), 1, kK}, c.data(), kN, false, workspace);
  CHECK(c == wanted);
}

TEST_CASE("rows, columns and k of a product may be divided over calls", "[kernels][gemm]") {
  const Operands x;
  const std::vector<float> wanted = chains(x, false);
  Workspace workspace;
  for (const std::size_t cut : {1, 5, 8, 33}) {
    std::vector<float> by_row(kM * kN), by_column(kM * kN), by_k(kM * kN);
    gemm(cut, kN, kK, x.left(), x.right(), by_row.data(), kN, false, workspace);
    gemm(kM - cut, kN, kK, {&x.a[cut * kK], kK, 1}, x.right(), &by_row[cut * kN], kN, false, workspace);
    CHECK(by_row == wanted);
    gemm(kM, cut, kK, x.left(), x.right(), by_column.data(), kN, false, workspace);
    gemm(kM, kN - cut, kK, x.left(), {&x.b[cut], kN, 1}, &by_column[cut], kN, false, workspace);
    CHECK(by_column == wanted);
    gemm(kM, kN, cut, x.left(), x.right(), by_k.data(), kN, false, workspace);
    gemm(kM, kN, kK - cut, {&x.a[cut], kK, 1}, {&x.b[cut * kN], kN, 1}, by_k.data(), kN, true, workspace);
    CHECK(by_k == wanted);
  }
}

TEST_CASE("a product over part of a packed matrix", "[kernels][gemm]") {
  const Operands x;
  Workspace workspace;
  std::vector<float> room(host::packed_elements(kK, kN)), c(kM * 43), wanted(kM * 43);
  const host::PackedMatrix packed = host::pack(kK, kN, x.right(), room.data(), workspace.isa);
  // k from 10 to 290 and columns from 32 on.
  host::gemm_packed(kM, {&x.a[10], kK, 1}, packed, {10, 280, 32, 43}, c.data(), 43, false, workspace);
  gemm(kM, 43, 280, {&x.a[10], kK, 1}, {&x.b[10 * kN + 32], kN, 1}, wanted.data(), 43, false, workspace);
  CHECK(c == wanted);
}

TEST_CASE("a product over nothing is zero, or what was there", "[kernels][gemm]") {
  Workspace workspace;
  std::vector<float> c = {1, 2, 3, 4};
  gemm(2, 2, 0, {}, {}, c.data(), 2, true, workspace);
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  gemm(2, 2, 0, {}, {}, c.data(), 2, false, workspace);
  CHECK(c == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("oneDNN's product is the same up to rounding", "[kernels][gemm]") {
  if (!host::have_onednn())
    return static_cast<void>(std::puts("skipped: built without oneDNN (libdnnl-dev)"));
  const Operands x;
  const std::vector<float> wanted = chains(x, true);
  Workspace workspace(host::best_isa(), host::GemmBackend::kOneDnn);
  std::vector<float> c = x.start;
  gemm(kM, kN, kK, x.left(), x.right(), c.data(), kN, true, workspace);
  for (std::size_t i = 0; i < c.size(); ++i) REQUIRE(std::abs(c[i] - wanted[i]) < 1e-4);
}

TEST_CASE("scratch memory is taken once", "[kernels]") {
  Workspace workspace;
  const auto take = [&] {
    host::Scratch outer(workspace);
    float* first = outer.take<float>(1000);
    {
      host::Scratch inner(workspace);
      std::fill_n(inner.take<float>(100'000), 100'000, 1.0f);
    }
    float* second = outer.take<float>(50'000);
    std::fill_n(first, 1000, 2.0f);
    std::fill_n(second, 50'000, 3.0f);
    CHECK(first[999] == 2.0f);
    CHECK(reinterpret_cast<std::uintptr_t>(second) % 64 == 0);
    return std::pair(first, second);
  };
  take();
  const auto once = take(), again = take();
  CHECK(once == again);
  CHECK(once.second - once.first == 1008);  // One block: 1,000 floats, rounded up to 64 bytes.
}
