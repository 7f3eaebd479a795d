// Times FP8 products of layers' shapes by each arithmetic that plans can ask for, beside bf16, back to back
// until the GPU's clocks have settled: one JSON document {device, rows: [{arithmetic, shape, what, us,
// tflops}]} on standard output. Copies of operands are not in it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/libraries.hpp"
#include "executor/cuda/memory.hpp"
#include "executor/cuda/products.hpp"
#include "executor/cuda/random_operands.hpp"
#include "tests/gpu/speed/speed_main.hpp"

namespace {

using namespace orrery;
using test::check;

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr auto kSettling = std::chrono::milliseconds(400), kMeasured = std::chrono::milliseconds(400);

struct Shape {
  const char* what;
  std::int64_t m, n, k;
  bool of_weight;  // A gradient of one: in fp32, added up.
};

struct Arithmetic {
  const char* name;
  DType type;
  bool blocks, fast, e5m2;
};

// One operand [outer, k], random, in the arithmetic's format.
struct Operand {
  Operand(std::int64_t outer, std::int64_t k, const Arithmetic& arithmetic, Fp8Scales scales, bool e5m2,
          cudaStream_t stream)
      : numbers(2 * outer * k, "operands"),
        codes(outer * k, "operands"),
        scale(4 * fp8_scale_count(scales, outer, k), "scales"),
        workspace(std::int64_t{1} << 20, "operands") {
    cuda::fill_random({numbers.data(), static_cast<std::size_t>(2 * outer * k)}, stream);
    if (arithmetic.type != DType::kFp8) return;
    device::Quantize copy;
    copy.rows = outer, copy.width = copy.stride = k;
    copy.x = {numbers.data(), DType::kBf16};
    copy.to = codes.data();
    copy.scales = scales;
    copy.e5m2 = e5m2;
    copy.scale = reinterpret_cast<float*>(scale.data());
    cuda::launch(copy, nullptr, workspace.data(), stream);
  }
  cuda::Memory numbers, codes, scale, workspace;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Microseconds of one product.
double time_of(cuda::Products& products, cuda::ProductId id, const device::Gemm& gemm,
               const cuda::Memory& workspace, cudaStream_t stream) {
  constexpr int kTogether = 20;
  const auto run_for = [&](std::chrono::milliseconds time) {
    const auto begin = std::chrono::steady_clock::now();
    int count = 0;
    while (milliseconds_since(begin) < static_cast<double>(time.count())) {
      for (int i = 0; i < kTogether; ++i) products.run(id, gemm, workspace.data(), kWorkspaceBytes, stream);
      count += kTogether;
      check(cudaStreamSynchronize(stream));
    }
    return milliseconds_since(begin) * 1e3 / count;
  };
  run_for(kSettling);
  return run_for(kMeasured);
}

std::string row_of(cuda::Products& products, const Shape& shape, const Arithmetic& arithmetic,
                   const cuda::Memory& workspace, cudaStream_t stream) {
  const bool blocks = arithmetic.blocks;
  const Operand a(shape.m, shape.k, arithmetic, blocks ? Fp8Scales::kRows : Fp8Scales::kOne, arithmetic.e5m2,
                  stream);
  const Fp8Scales of_b = !blocks ? Fp8Scales::kOne : shape.of_weight ? Fp8Scales::kRows : Fp8Scales::kSquares;
  const Operand b(shape.n, shape.k, arithmetic, of_b, false, stream);
  const DType result = shape.of_weight ? DType::kFp32 : DType::kBf16;
  const cuda::Memory d(shape.m * shape.n * size_bytes(result), "results");
  check(
      cudaMemsetAsync(d.data(), 0, static_cast<std::size_t>(shape.m * shape.n * size_bytes(result)), stream));
  const bool fp8 = arithmetic.type == DType::kFp8;
  device::Gemm gemm;
  gemm.m = shape.m, gemm.n = shape.n, gemm.k = shape.k;
  gemm.a = {{(fp8 ? a.codes : a.numbers).data(), arithmetic.type}, shape.k, 0, false};
  gemm.b = {{(fp8 ? b.codes : b.numbers).data(), arithmetic.type}, shape.k, 0, true};
  gemm.d = {{d.data(), result}, shape.n, 0, false};
  gemm.accumulate = shape.of_weight;
  if (fp8) {
    gemm.a_scale = reinterpret_cast<const float*>(a.scale.data());
    gemm.b_scale = reinterpret_cast<const float*>(b.scale.data());
    gemm.a_scales = blocks ? Fp8Scales::kRows : Fp8Scales::kOne, gemm.b_scales = of_b;
    gemm.a_e5m2 = arithmetic.e5m2, gemm.fast_sums = arithmetic.fast;
  }
  const cuda::ProductId id = products.prepare(gemm);
  const cuda::Memory scratch(std::int64_t{4} << 30, "operands");
  products.tune(stream, {scratch.data(), std::size_t{4} << 30}, workspace.data(), kWorkspaceBytes);
  const double us = time_of(products, id, gemm, workspace, stream);
  const double flops =
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return fmt::format(
      R"({{"arithmetic": "{}", "what": "{}", "shape": "{} x {} x {}", "us": {:.1f}, "tflops": {:.0f}}})",
      arithmetic.name, shape.what, shape.m, shape.n, shape.k, us, flops / us * 1e-6);
}

void measure_all() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  const cuda::OwnStream stream;
  cuda::Products products(cuda::cublaslt(), properties.name, "");
  const cuda::Memory workspace(static_cast<std::int64_t>(kWorkspaceBytes), "workspace");
  std::string text = fmt::format("{{\"device\": \"{}\", \"rows\": [", properties.name);
  // Of 1.3 billion parameters with 16,384 tokens, and of Llama 3 8B with 8,192.
  for (const Shape& shape :
       {Shape{"1.3B qkv", 16384, 6144, 2048, false}, Shape{"1.3B gate, up", 16384, 11008, 2048, false},
        Shape{"1.3B down", 16384, 2048, 5504, false},
        Shape{"1.3B qkv, weights' gradient", 2048, 6144, 16384, true},
        Shape{"1.3B gate, up, weights' gradient", 2048, 11008, 16384, true},
        Shape{"8B qkv", 8192, 6144, 4096, false}, Shape{"8B gate, up", 8192, 28672, 4096, false},
        Shape{"8B down", 8192, 4096, 14336, false},
        Shape{"8B qkv, weights' gradient", 4096, 6144, 8192, true},
        Shape{"8B gate, up, weights' gradient", 4096, 28672, 8192, true}}) {
    for (const Arithmetic& arithmetic : {Arithmetic{"bf16", DType::kBf16, false, false, false},
                                         Arithmetic{"fp8 fast", DType::kFp8, false, true, false},
                                         Arithmetic{"fp8", DType::kFp8, false, false, false},
                                         Arithmetic{"fp8 e5m2", DType::kFp8, false, false, true},
                                         Arithmetic{"fp8 blocks", DType::kFp8, true, false, false}}) {
      const std::string row = row_of(products, shape, arithmetic, workspace, stream);
      std::fprintf(stderr, "%s\n", row.c_str());
      text += (text.back() == '[' ? "\n" : ",\n") + row;
    }
  }
  std::puts((text + "\n]}").c_str());
}

}  // namespace

int main() { return orrery::test::speed_main("product-speed", measure_all); }
