// How products are put to cuBLASLt, which counts columns first: here it is a few loops that do what its
// descriptors say, on fp32 numbers in the host's memory. Needs no GPU.
#include <catch2/catch.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "executor/cuda/product.hpp"

namespace orrery::test {
namespace {

struct Layout {
  std::int64_t rows = 0, columns = 0, leading = 0, batch_offset = 0;
  std::int32_t batch = 1;
};
struct Operation {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
// By the address of what was handed out.
struct Library {
  std::map<void*, Layout> layouts;
  std::map<void*, Operation> operations;
  std::vector<std::unique_ptr<char>> handed_out;
};
Library& library() {
  static Library made;
  return made;
}
void* hand_out() { return library().handed_out.emplace_back(std::make_unique<char>()).get(); }

template <class T>
void take(T& to, const void* from) {
  std::memcpy(&to, from, sizeof to);
}

cublasStatus_t create_layout(cublasLtMatrixLayout_t* made, cudaDataType, std::uint64_t rows,
                             std::uint64_t columns, std::int64_t leading) {
  *made = static_cast<cublasLtMatrixLayout_t>(hand_out());
  library().layouts[*made] = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading, 0,
                              1};
  CHECK(leading >= static_cast<std::int64_t>(rows));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_layout(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t attribute,
                          const void* value, std::size_t) {
  Layout& layout = library().layouts.at(of);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) take(layout.batch, value);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) take(layout.batch_offset, value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy_layout(cublasLtMatrixLayout_t of) {
  CHECK(library().layouts.erase(of) == 1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t create_operation(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t) {
  CHECK(compute == CUBLAS_COMPUTE_32F_PEDANTIC);
  *made = static_cast<cublasLtMatmulDesc_t>(hand_out());
  library().operations[*made] = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_operation(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute,
                             const void* value, std::size_t) {
  Operation& operation = library().operations.at(of);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) take(operation.a, value);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) take(operation.b, value);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) take(operation.epilogue, value);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) take(operation.bias, value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy_operation(cublasLtMatmulDesc_t of) {
  CHECK(library().operations.erase(of) == 1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t create_preference(cublasLtMatmulPreference_t* made) {
  *made = static_cast<cublasLtMatmulPreference_t>(hand_out());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_preference(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*,
                              std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy_preference(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[],
                         int* count) {
  results[0] = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// D[:,:] = op(A)·op(B) + beta·C + bias along columns, all column-major.
cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void* alpha, const void* a,
                        cublasLtMatrixLayout_t a_of, const void* b, cublasLtMatrixLayout_t b_of,
                        const void* beta, const void* c, cublasLtMatrixLayout_t c_of, void* d,
                        cublasLtMatrixLayout_t d_of, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                        cudaStream_t) {
  const Operation& operation = library().operations.at(of);
  const auto layout = [](cublasLtMatrixLayout_t x) -> const Layout& { return library().layouts.at(x); };
  const auto element = [](const Layout& x, std::int64_t p, std::int64_t row, std::int64_t column) {
    REQUIRE(row < x.rows);
    REQUIRE(column < x.columns);
    return p * x.batch_offset + column * x.leading + row;
  };
  const auto operand = [&](const void* data, const Layout& x, cublasOperation_t turned, std::int64_t p,
                           std::int64_t row, std::int64_t column) {
    const bool turn = turned == CUBLAS_OP_T;
    return static_cast<const float*>(data)[element(x, p, turn ? column : row, turn ? row : column)];
  };
  const Layout &la = layout(a_of), &lb = layout(b_of), &ld = layout(d_of);
  CHECK(c == d);
  CHECK(c_of == d_of);
  CHECK((la.batch == ld.batch && lb.batch == ld.batch));
  CHECK(*static_cast<const float*>(alpha) == 1);
  const std::int64_t terms = operation.a == CUBLAS_OP_T ? la.rows : la.columns;
  CHECK(terms == (operation.b == CUBLAS_OP_T ? lb.columns : lb.rows));
  for (std::int64_t p = 0; p < ld.batch; ++p) {
    for (std::int64_t column = 0; column < ld.columns; ++column) {
      for (std::int64_t row = 0; row < ld.rows; ++row) {
        float sum = 0;
        for (std::int64_t i = 0; i < terms; ++i) {
          sum += operand(a, la, operation.a, p, row, i) * operand(b, lb, operation.b, p, i, column);
        }
        float& to = static_cast<float*>(d)[element(ld, p, row, column)];
        sum += *static_cast<const float*>(beta) * to;
        if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += operation.bias[row];
        to = sum;
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cuda::CublasLt fake() {
  cuda::CublasLt made;
  made.matmul = multiply;
  made.heuristic = heuristic;
  made.layout_create = create_layout;
  made.layout_set = set_layout;
  made.layout_destroy = destroy_layout;
  made.operation_create = create_operation;
  made.operation_set = set_operation;
  made.operation_destroy = destroy_operation;
  made.preference_create = create_preference;
  made.preference_set = set_preference;
  made.preference_destroy = destroy_preference;
  return made;
}

std::vector<float> small_numbers(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = static_cast<float>(random.between(-3, 3));  // Sums of them are exact.
  return values;
}

}  // namespace

TEST_CASE("row-major products of all layouts, as cuBLASLt is asked for them", "[gpu]") {
  const bool a_turned = GENERATE(false, true), b_turned = GENERATE(false, true),
             accumulate = GENERATE(false, true);
  const bool with_bias = GENERATE(false, true), shared = GENERATE(false, true);
  const std::int64_t batch = GENERATE(1, 3), m = GENERATE(1, 4), n = 5, k = 3, gap = 2;
  CAPTURE(a_turned, b_turned, accumulate, with_bias, shared, batch, m);
  device::Gemm gemm;
  gemm.m = m, gemm.n = n, gemm.k = k, gemm.batch = batch, gemm.accumulate = accumulate;
  const auto place = [&](device::Matrix& matrix, std::int64_t rows, std::int64_t columns, bool turned,
                         bool once) {
    matrix.turned = turned;
    matrix.stride = (turned ? rows : columns) + gap;
    const std::int64_t bytes = (turned ? columns : rows) * matrix.stride;
    matrix.batch_stride = once ? 0 : bytes + 1;
    return bytes + (batch - 1) * matrix.batch_stride;
  };
  std::vector<float> a = small_numbers(place(gemm.a, m, k, a_turned, false), 1);
  std::vector<float> b = small_numbers(place(gemm.b, k, n, b_turned, shared), 2);
  std::vector<float> d = small_numbers(place(gemm.d, m, n, false, false), 3);
  std::vector<float> bias = small_numbers(n, 4), other_bias = small_numbers(n, 5);
  gemm.a.array.data = reinterpret_cast<std::byte*>(a.data());
  gemm.b.array.data = reinterpret_cast<std::byte*>(b.data());
  gemm.d.array.data = reinterpret_cast<std::byte*>(d.data());
  if (with_bias) gemm.bias.data = reinterpret_cast<std::byte*>(other_bias.data());

  const std::vector<float> before = d;
  std::vector<float> wanted = d;
  const auto at = [](const device::Matrix& x, std::int64_t p, std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(p * x.batch_stride +
                                    (x.turned ? column * x.stride + row : row * x.stride + column));
  };
  for (std::int64_t p = 0; p < batch; ++p) {
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        float sum = accumulate ? before[at(gemm.d, p, row, column)] : 0;
        if (with_bias) sum += bias[static_cast<std::size_t>(column)];
        for (std::int64_t i = 0; i < k; ++i) sum += a[at(gemm.a, p, row, i)] * b[at(gemm.b, p, i, column)];
        wanted[at(gemm.d, p, row, column)] = sum;
      }
    }
  }
  {
    const cuda::CublasLt lt = fake();
    cuda::Product product(lt, nullptr, gemm);
    CHECK(product.candidates({}, 1, 0).size() == 1);
    // Another bias than the one that the product was made with.
    const cublasStatus_t status = product.launch(
        {a.data(), b.data(), with_bias ? bias.data() : nullptr, d.data()}, {}, nullptr, 0, nullptr);
    CHECK(status == CUBLAS_STATUS_SUCCESS);
    CHECK(d == wanted);
    const cuda::ProductBytes bytes = cuda::bytes_of(gemm);
    CHECK(bytes.a <= static_cast<std::int64_t>(a.size()) * 4);
    CHECK(bytes.a >= static_cast<std::int64_t>(a.size() - gap) * 4);
    CHECK(bytes.d >= static_cast<std::int64_t>(d.size() - gap) * 4);
  }
  CHECK(library().layouts.empty());
  CHECK(library().operations.empty());
}

TEST_CASE("what tells products apart", "[gpu]") {
  device::Gemm gemm;
  gemm.m = 16, gemm.n = 32, gemm.k = 64;
  gemm.a = {{nullptr, DType::kBf16}, 64, 0, false};
  gemm.b = {{nullptr, DType::kBf16}, 64, 0, true};
  gemm.d = {{nullptr, DType::kBf16}, 32, 0, false};
  CHECK(cuda::describe(gemm) == "m16 n32 k64 x1, a bf16 64, b bf16 64 turned, d bf16 32");
  device::Gemm other = gemm;
  other.a.batch_stride = 7;  // Of one product alone it means nothing.
  CHECK(cuda::describe(other) == cuda::describe(gemm));
  std::byte memory[512]{};
  other.batch = 2;
  other.accumulate = true;
  other.bias = {memory, DType::kBf16};
  CHECK(cuda::describe(other) ==
        "m16 n32 k64 x2, a bf16 64 +7, b bf16 64 turned +0, d bf16 32 +0 added to, bias bf16");

  alignas(256) static std::byte aligned[512];
  gemm.a.array.data = aligned;
  gemm.b.array.data = aligned + 16;
  gemm.d.array.data = aligned + 6;
  CHECK(cuda::alignment_of(gemm) == cuda::ProductAlignment{256, 16, 2, 256});
  CHECK(cuda::lower_of({256, 16, 2, 256}, {8, 256, 4, 256}) == cuda::ProductAlignment{8, 16, 2, 256});
  CHECK(cuda::describe(cuda::ProductAlignment{256, 16, 2, 256}) == "aligned 256 16 2 256");
}

}  // namespace orrery::test
