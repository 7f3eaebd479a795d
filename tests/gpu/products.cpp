// Products by cuBLASLt beside plain loops.
#include <unistd.h>

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "executor/cuda/memory.hpp"
#include "executor/cuda/product_algorithm.hpp"
#include "executor/cuda/products.hpp"
#include "tests/gpu/device_cases.hpp"

namespace orrery::test {
namespace {

using device::Gemm;
using device::Matrix;

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

// A batch of row-major [rows, columns] matrices, some elements apart.
struct HostMatrix {
  HostMatrix(std::int64_t rows, std::int64_t columns, bool is_turned, std::int64_t batch, bool shared,
             std::int64_t gap, DType dtype, std::uint64_t seed)
      : turned(is_turned), type(dtype), stride((is_turned ? rows : columns) + gap) {
    const std::int64_t lying = is_turned ? columns : rows;
    batch_stride = shared ? 0 : lying * stride + 2 * gap;
    const std::int64_t elements = (batch - 1) * batch_stride + lying * stride;
    values = numbers(static_cast<std::size_t>(elements), dtype, seed);
  }
  std::size_t at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(batch * batch_stride +
                                    (turned ? column * stride + row : row * stride + column));
  }
  Matrix on(const DeviceBytes& memory) const { return {{memory.data(), type}, stride, batch_stride, turned}; }

  Values values;
  bool turned;
  DType type;
  std::int64_t stride, batch_stride = 0;
};

struct ProductCase {
  std::int64_t m = 40, n = 24, k = 56, batch = 1;
  DType type = DType::kBf16, to = DType::kBf16;
  bool a_turned = false, b_turned = false, accumulate = false, bias = false, b_shared = false;
  std::int64_t gap = 8;    // Elements between rows, beyond the matrix.
  std::size_t offset = 0;  // Elements that addresses are off an aligned one.
  std::uint64_t seed = 1;
};

std::string name_of(const ProductCase& x) {
  return fmt::format("m{} n{} k{} x{} {}→{}{}{}{}{}{} gap {} offset {}", x.m, x.n, x.k, x.batch,
                     to_string(x.type), to_string(x.to), x.a_turned ? " aᵀ" : "", x.b_turned ? " bᵀ" : "",
                     x.accumulate ? " added" : "", x.bias ? " bias" : "", x.b_shared ? " b shared" : "",
                     x.gap, x.offset);
}

std::size_t offset_bytes(const ProductCase& x, DType type) {
  return x.offset * static_cast<std::size_t>(size_bytes(type));
}

// The operands of a case in host and device memory.
class Operands {
 public:
  explicit Operands(const ProductCase& x)
      : of(x),
        a(x.m, x.k, x.a_turned, x.batch, false, x.gap, x.type, x.seed),
        b(x.k, x.n, x.b_turned, x.batch, x.b_shared, x.gap, x.type, x.seed + 1),
        d(x.m, x.n, false, x.batch, false, x.gap, x.to, x.seed + 2),
        bias(numbers(static_cast<std::size_t>(x.n), x.to, x.seed + 3)),
        a_memory(to_bytes(a.values, x.type).size(), offset_bytes(x, x.type)),
        b_memory(to_bytes(b.values, x.type).size(), offset_bytes(x, x.type)),
        d_memory(to_bytes(d.values, x.to).size(), offset_bytes(x, x.to)),
        bias_memory(to_bytes(bias, x.to).size(), offset_bytes(x, x.to)) {
    a_memory.write(to_bytes(a.values, x.type));
    b_memory.write(to_bytes(b.values, x.type));
    bias_memory.write(to_bytes(bias, x.to));
    gemm.m = x.m, gemm.n = x.n, gemm.k = x.k, gemm.batch = x.batch;
    gemm.a = a.on(a_memory);
    gemm.b = b.on(b_memory);
    gemm.d = d.on(d_memory);
    gemm.accumulate = x.accumulate;
    if (x.bias) gemm.bias = {bias_memory.data(), x.to};
    begin();
  }
  // D as it was before.
  void begin() { d_memory.write(to_bytes(d.values, of.to)); }

  // An element of D, and how far rounding may take the device from it: its own sums in fp32, then D's type.
  struct Wanted {
    double value = 0, tolerance = 0;
  };
  Wanted wanted(std::int64_t p, std::int64_t row, std::int64_t column) const {
    double sum = of.bias ? bias[static_cast<std::size_t>(column)] : 0, size = std::abs(sum);
    const auto add = [&](double x) {
      sum += x;
      size += std::abs(x);
    };
    for (std::int64_t i = 0; i < of.k; ++i) add(a.values[a.at(p, row, i)] * b.values[b.at(p, i, column)]);
    // Some of cuBLASLt's kernels round a product to D's type before they add it to what stands there.
    const double rounded_before = of.accumulate && of.to != DType::kFp32 ? std::abs(sum) : 0;
    if (of.accumulate) add(d.values[d.at(p, row, column)]);
    const double rounding = of.to == DType::kBf16 ? 0x1p-8 : of.to == DType::kFp16 ? 0x1p-11 : 0x1p-24;
    return {sum, rounding * (std::abs(sum) + rounded_before) + 4e-6 * size};
  }

  const ProductCase of;
  HostMatrix a, b, d;
  Values bias;
  DeviceBytes a_memory, b_memory, d_memory, bias_memory;
  Gemm gemm;
};

struct Bench {
  explicit Bench(const std::string& cache = "")
      : workspace(static_cast<std::int64_t>(kWorkspaceBytes), "tests"),
        products(cuda::cublaslt(), "test", cache) {}
  void run(cuda::ProductId id, const Operands& operands) {
    products.run(id, operands.gemm, workspace.data(), kWorkspaceBytes, stream);
  }
  Bytes result(Operands& operands, cuda::ProductId id) {
    operands.begin();
    run(id, operands);
    check_cuda(cudaStreamSynchronize(stream));
    return operands.d_memory.read();
  }

  cuda::OwnStream stream;
  cuda::Memory workspace;
  cuda::Products products;
};

// All elements, and what lies between D's rows.
void check_all(const Operands& operands, const Values& found) {
  const ProductCase& x = operands.of;
  std::vector<bool> written(found.size(), false);
  int wrong = 0;
  for (std::int64_t p = 0; p < x.batch; ++p) {
    for (std::int64_t row = 0; row < x.m; ++row) {
      for (std::int64_t column = 0; column < x.n; ++column) {
        const std::size_t at = operands.d.at(p, row, column);
        const Operands::Wanted wanted = operands.wanted(p, row, column);
        written[at] = true;
        if (std::abs(found[at] - wanted.value) <= wanted.tolerance) continue;
        if (wrong++ == 0)
          UNSCOPED_INFO("product " << p << " [" << row << ", " << column << "] is " << found[at]
                                   << " instead of " << wanted.value);
      }
    }
  }
  CHECK(wrong == 0);
  bool kept = true;
  for (std::size_t i = 0; i < found.size(); ++i)
    kept = kept && (written[i] || found[i] == operands.d.values[i]);
  CHECK(kept);
  CHECK(operands.d_memory.guards_stand());
}

void check_case(const ProductCase& x) {
  INFO(name_of(x));
  Operands operands(x);
  Bench bench;
  const cuda::ProductId id = bench.products.prepare(operands.gemm);
  bench.products.settle(kWorkspaceBytes);
  const Bytes once = bench.result(operands, id);
  check_all(operands, to_values(once, x.to));
  CHECK((bench.result(operands, id) == once));
}

}  // namespace

TEST_CASE("products of every type and layout", "[gpu]") {
  if (!have_gpu()) return;
  struct Types {
    DType type, to;
  };
  for (const Types types : {Types{DType::kBf16, DType::kBf16}, Types{DType::kBf16, DType::kFp32},
                            Types{DType::kFp16, DType::kFp16}, Types{DType::kFp16, DType::kFp32},
                            Types{DType::kFp32, DType::kFp32}}) {
    for (int layout = 0; layout < 4; ++layout) {
      for (int after = 0; after < 3; ++after) {
        // A bias has the type of activations, which an fp32 gradient of weights has none of.
        if (after == 2 && types.type != types.to) continue;
        ProductCase x;
        x.type = types.type, x.to = types.to;
        x.a_turned = (layout & 1) != 0, x.b_turned = (layout & 2) != 0;
        x.accumulate = after == 1, x.bias = after == 2;
        check_case(x);
        x.batch = 3;
        check_case(x);
        x.b_shared = true;
        check_case(x);
      }
    }
  }
}

TEST_CASE("products of odd sizes and addresses", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const bool turned : {false, true}) {
      ProductCase x;
      x.type = x.to = type;
      x.a_turned = x.b_turned = turned;
      x.m = 5, x.n = 7, x.k = 3, x.gap = 0;
      check_case(x);
      x.m = 1, x.n = 129, x.k = 65, x.gap = 3;
      check_case(x);
      x.m = 33, x.n = 1, x.k = 17, x.gap = 1, x.offset = 1;
      check_case(x);
      x.m = 64, x.n = 64, x.k = 64, x.gap = 0, x.offset = 4;
      x.accumulate = true;
      check_case(x);
    }
  }
}

TEST_CASE("fp32 operands are multiplied as fp32, not as TF32", "[gpu]") {
  if (!have_gpu()) return;
  ProductCase x;
  x.m = 128, x.n = 128, x.k = 512;
  x.type = x.to = DType::kFp32;
  check_case(x);
}

TEST_CASE("equal products are one, and the least aligned of them decides", "[gpu]") {
  if (!have_gpu()) return;
  ProductCase x;
  Operands aligned(x);
  x.offset = 1, x.seed = 9;
  Operands odd(x);
  Bench bench;
  const cuda::ProductId first = bench.products.prepare(aligned.gemm);
  bench.products.settle(kWorkspaceBytes);
  CHECK(bench.products.prepare(aligned.gemm).index == first.index);
  check_all(aligned, to_values(bench.result(aligned, first), x.to));
  CHECK(bench.products.prepare(odd.gemm).index == first.index);
  CHECK_THROWS_WITH(bench.run(first, aligned), Catch::Contains("no algorithm was chosen"));
  bench.products.settle(kWorkspaceBytes);
  check_all(odd, to_values(bench.result(odd, first), x.to));
  check_all(aligned, to_values(bench.result(aligned, first), x.to));
  x.accumulate = true;
  const Operands added(x);
  CHECK(bench.products.prepare(added.gemm).index != first.index);
}

TEST_CASE("large products, timed, captured, and timed once for all runs", "[gpu]") {
  if (!have_gpu()) return;
  ProductCase forward;
  forward.m = 2048, forward.n = 5504, forward.k = 2048, forward.b_turned = true, forward.gap = 0;
  ProductCase gradient;
  gradient.m = 2048, gradient.n = 1024, gradient.k = 4096, gradient.a_turned = true,
  gradient.accumulate = true;
  gradient.to = DType::kFp32, gradient.gap = 0;
  const std::string cache =
      (std::filesystem::temp_directory_path() / ("orrery-products-" + std::to_string(getpid()))).string();
  Operands all[] = {Operands(forward), Operands(gradient)};
  std::vector<double> timed;
  for (const bool again : {false, true}) {
    Bench bench(cache);
    std::vector<cuda::ProductId> ids;
    for (const Operands& operands : all) ids.push_back(bench.products.prepare(operands.gemm));
    const cuda::Memory scratch(std::int64_t{1} << 30, "tests");
    const auto options = cuda::TuneOptions::of(device::Tuning::kQuick);
    const auto warnings = bench.products.tune(bench.stream, {scratch.data(), std::size_t{1} << 30},
                                              bench.workspace.data(), kWorkspaceBytes, options);
    CHECK(warnings.empty());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const device::ProductTime time = bench.products.times()[i];
      const double us = time.chosen.microseconds;
      INFO(time.product << ": " << us << " µs by " << time.chosen.algorithm << ", " << time.candidates
                        << " candidates");
      CHECK(us > 0);
      CHECK((time.candidates == 0) == again);
      CHECK_THAT(time.chosen.algorithm, Catch::Contains("tile"));
      if (again) CHECK(us == Approx(timed[i]).margin(1e-3));
      timed.push_back(us);

      const Bytes direct = bench.result(all[i], ids[i]);
      const Values found = to_values(direct, all[i].of.to);
      Random random(i);
      for (int spot = 0; spot < 200; ++spot) {
        const std::int64_t row = random.between(0, all[i].of.m - 1),
                           column = random.between(0, all[i].of.n - 1);
        const Operands::Wanted wanted = all[i].wanted(0, row, column);
        CHECK(std::abs(found[all[i].d.at(0, row, column)] - wanted.value) <= wanted.tolerance);
      }

      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      check_cuda(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeRelaxed));
      bench.run(ids[i], all[i]);
      check_cuda(cudaStreamEndCapture(bench.stream, &graph));
      check_cuda(cudaGraphInstantiate(&exec, graph, 0));
      all[i].begin();
      check_cuda(cudaGraphLaunch(exec, bench.stream));
      check_cuda(cudaStreamSynchronize(bench.stream));
      CHECK((all[i].d_memory.read() == direct));
      check_cuda(cudaGraphExecDestroy(exec));
      check_cuda(cudaGraphDestroy(graph));
    }
  }
  std::filesystem::remove_all(cache);
}

TEST_CASE("sustained tuning looks beyond the heuristic, and is done once", "[gpu]") {
  if (!have_gpu()) return;
  // Sums along k like a gradient of weights: bf16 added to fp32, and one that splitting k may make faster.
  ProductCase wide, deep;
  wide.m = 768, wide.n = 768, wide.k = 8192, wide.a_turned = true, wide.accumulate = true;
  wide.to = DType::kFp32, wide.gap = 0;
  deep.m = 256, deep.n = 512, deep.k = 4096, deep.b_turned = true, deep.gap = 0;
  Operands all[] = {Operands(wide), Operands(deep)};
  const std::string cache =
      (std::filesystem::temp_directory_path() / ("orrery-sustained-" + std::to_string(getpid()))).string();
  const auto tune = [&](device::Tuning tuning, std::vector<std::string>* said = nullptr) {
    auto bench = std::make_unique<Bench>(cache);
    for (const Operands& operands : all) bench->products.prepare(operands.gemm);
    const cuda::Memory scratch(std::int64_t{1} << 30, "tests");
    auto options = cuda::TuneOptions::of(tuning);
    options.warm_up_ms = std::min(options.warm_up_ms, 100.0);
    options.turn_ms = 10;
    if (said != nullptr) options.progress = [&](std::string_view what) { said->emplace_back(what); };
    CHECK(bench->products
              .tune(bench->stream, {scratch.data(), std::size_t{1} << 30}, bench->workspace.data(),
                    kWorkspaceBytes, options)
              .empty());
    return bench;
  };
  const auto quick = tune(device::Tuning::kQuick);
  std::vector<std::string> said;
  const auto sustained = tune(device::Tuning::kSustained, &said);
  CHECK(said == std::vector<std::string>{"timing product 1 of 2", "timing product 2 of 2"});
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const device::ProductTime time = sustained->products.times()[i];
    INFO(time.product << ": " << time.chosen.algorithm << ", " << time.chosen.microseconds << " µs; first "
                      << time.first.algorithm << ", " << time.first.microseconds << " µs");
    CHECK(time.candidates > quick->products.times()[i].candidates);
    REQUIRE(time.finalists.size() >= 1);
    CHECK(time.finalists.size() <= 6);
    CHECK(time.first.microseconds > 0);
    CHECK(time.chosen.microseconds <= 1.003 * time.first.microseconds);
    // Whatever was found computes the product, and twice the same bits.
    const Bytes once = sustained->result(all[i], {static_cast<std::int32_t>(i)});
    check_all(all[i], to_values(once, all[i].of.to));
    for (int repeat = 0; repeat < 5; ++repeat)
      CHECK((sustained->result(all[i], {static_cast<std::int32_t>(i)}) == once));
  }
  for (const device::Tuning tuning : {device::Tuning::kSustained, device::Tuning::kQuick}) {
    const auto again = tune(tuning);
    for (std::size_t i = 0; i < std::size(all); ++i) {
      const device::ProductTime kept = again->products.times()[i], was = sustained->products.times()[i];
      CHECK(kept.candidates == 0);
      CHECK(kept.chosen.algorithm == was.chosen.algorithm);
      CHECK(kept.chosen.microseconds == Approx(was.chosen.microseconds).margin(1e-3));
      CHECK(kept.first.algorithm == was.first.algorithm);
      CHECK(kept.first.microseconds == Approx(was.first.microseconds).margin(1e-3));
    }
  }
  std::filesystem::remove_all(cache);
}

TEST_CASE("every algorithm that a search may take computes the product", "[gpu]") {
  if (!have_gpu()) return;
  ProductCase x;
  x.m = 256, x.n = 256, x.k = 2048, x.a_turned = true, x.gap = 0;
  for (const DType to : {DType::kBf16, DType::kFp32}) {
    x.to = to, x.accumulate = to == DType::kFp32;
    Operands operands(x);
    cublasLtHandle_t handle = nullptr;
    const cuda::CublasLt& library = cuda::cublaslt();
    REQUIRE(library.create(&handle) == CUBLAS_STATUS_SUCCESS);
    const cuda::OwnStream stream;
    const cuda::Memory workspace(static_cast<std::int64_t>(kWorkspaceBytes), "tests");
    int tried = 0;
    {
      cuda::Product product(library, handle, operands.gemm);
      const auto alignment = cuda::alignment_of(operands.gemm);
      for (const auto& offer : product.candidates(alignment, 4, kWorkspaceBytes)) {
        for (const auto& variant : cuda::variants(library, offer.algorithm, alignment)) {
          if (tried >= 200 || !product.runs(variant, kWorkspaceBytes)) continue;
          INFO(cuda::describe(cuda::settings_of(library, variant)));
          operands.begin();
          const auto launched = product.launch(cuda::operands_of(operands.gemm), variant, workspace.data(),
                                               kWorkspaceBytes, stream);
          check_cuda(cudaStreamSynchronize(stream));
          if (launched != CUBLAS_STATUS_SUCCESS) continue;
          const Values found = to_values(operands.d_memory.read(), to);
          Random random(static_cast<std::uint64_t>(tried++));
          for (int spot = 0; spot < 50; ++spot) {
            const std::int64_t row = random.between(0, x.m - 1), column = random.between(0, x.n - 1);
            const Operands::Wanted wanted = operands.wanted(0, row, column);
            CHECK(std::abs(found[operands.d.at(0, row, column)] - wanted.value) <= wanted.tolerance);
          }
        }
      }
    }
    CHECK(tried > 0);
    library.destroy(handle);
  }
}

TEST_CASE("products that don't fit into scratch are chosen untimed, with a warning", "[gpu]") {
  if (!have_gpu()) return;
  Operands operands{ProductCase{}};
  Bench bench;
  const cuda::ProductId id = bench.products.prepare(operands.gemm);
  const auto warnings = bench.products.tune(bench.stream, {}, bench.workspace.data(), kWorkspaceBytes,
                                            cuda::TuneOptions::of(device::Tuning::kQuick));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::Contains("too large to be timed"));
  CHECK(bench.products.times()[0].chosen.microseconds == 0);
  check_all(operands, to_values(bench.result(operands, id), operands.of.to));
}

TEST_CASE("products that no library can do are refused by name", "[gpu]") {
  if (!have_gpu()) return;
  Operands operands{ProductCase{}};
  Bench bench;
  Gemm mixed = operands.gemm;
  mixed.b.array.dtype = DType::kFp16;
  CHECK_THROWS_WITH(bench.products.prepare(mixed),
                    Catch::Contains("no product of a bf16 with a fp16 matrix"));
  Gemm eighth = operands.gemm;
  eighth.a.array.dtype = eighth.b.array.dtype = DType::kFp8;
  CHECK_THROWS_WITH(bench.products.prepare(eighth), Catch::Contains("fp8"));
  Gemm nothing = operands.gemm;
  nothing.m = 0;
  const cuda::ProductId id = bench.products.prepare(nothing);
  bench.products.settle(kWorkspaceBytes);
  bench.products.run(id, nothing, bench.workspace.data(), kWorkspaceBytes, bench.stream);
  check_cuda(cudaStreamSynchronize(bench.stream));
  CHECK(operands.d_memory.read() == to_bytes(operands.d.values, operands.of.to));
}

}  // namespace orrery::test
