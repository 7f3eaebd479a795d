#include "executor/cuda/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::cuda {
namespace {

using device::Gemm;
using device::Matrix;

cudaDataType_t data_type(DType type, bool e5m2 = false) {
  switch (type) {
    case DType::kFp8: return e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    case DType::kFp32: return CUDA_R_32F;
    case DType::kBf16: return CUDA_R_16BF;
    case DType::kFp16: return CUDA_R_16F;
    default: break;
  }
  fail(ErrorKind::kRuntime, "no product of {} matrices on this device: use bf16, fp16 or fp32",
       to_string(type));
}

// As it lies in memory: row-major [rows, columns].
struct Lying {
  std::int64_t rows = 0, columns = 0;
};
Lying lying(const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
  return matrix.turned ? Lying{columns, rows} : Lying{rows, columns};
}
// A single row needs no stride.
std::int64_t stride_of(const Matrix& matrix, const Lying& as) { return std::max(matrix.stride, as.columns); }

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t lowest_bit = address & (~address + 1);
  return lowest_bit == 0 || lowest_bit >= 256 ? 256 : static_cast<std::uint32_t>(lowest_bit);
}

std::string_view describe(Fp8Scales scales) {
  switch (scales) {
    case Fp8Scales::kOne: break;
    case Fp8Scales::kRows: return " by rows";
    case Fp8Scales::kSquares: return " by squares";
  }
  return "";
}

std::string describe(const char* name, const Matrix& matrix, std::int64_t batch, bool e5m2 = false,
                     Fp8Scales scales = Fp8Scales::kOne) {
  return fmt::format("{} {}{}{} {}{}{}", name, to_string(matrix.array.dtype), e5m2 ? " e5m2" : "",
                     describe(scales), matrix.stride, matrix.turned ? " turned" : "",
                     batch > 1 ? fmt::format(" +{}", matrix.batch_stride) : "");
}

std::int64_t bytes_of(const Matrix& matrix, const Lying& as, std::int64_t batch) {
  const std::int64_t elements =
      (batch - 1) * matrix.batch_stride + (as.rows - 1) * stride_of(matrix, as) + as.columns;
  return elements * size_bytes(matrix.array.dtype);
}

cublasLtMatrixLayout_t make_layout(const CublasLt& library, const Matrix& matrix, const Lying& as,
                                   std::int64_t batch, bool e5m2 = false) {
  cublasLtMatrixLayout_t layout = nullptr;
  const cublasStatus_t made = library.layout_create(
      &layout, data_type(matrix.array.dtype, e5m2), static_cast<std::uint64_t>(as.columns),
      static_cast<std::uint64_t>(as.rows), stride_of(matrix, as));
  check_product(library, made, "describe a matrix");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t offset = matrix.batch_stride;
    check_product(library,
                  library.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                  "describe a batch");
    check_product(
        library,
        library.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset),
        "describe a batch");
  }
  return layout;
}

template <class T>
void set(const CublasLt& library, cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  check_product(library, library.operation_set(operation, attribute, &value, sizeof value),
                "describe a product");
}

std::int32_t scale_mode(Fp8Scales scales) {
  switch (scales) {
    case Fp8Scales::kOne: break;
    case Fp8Scales::kRows: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Fp8Scales::kSquares: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

bool is_fp8(const Gemm& gemm) { return gemm.a.array.dtype == DType::kFp8; }

void check_fp8(const Gemm& gemm) {
  const auto multiple = [](std::int64_t size) { return size % 16 == 0; };
  if (!gemm.a.turned && gemm.b.turned && multiple(gemm.n) && multiple(gemm.k)) return;
  fail(ErrorKind::kRuntime,
       "no fp8 product of this layout on this device: k has to be innermost in both operands, n and k "
       "multiples of 16: {}",
       cuda::describe(gemm));
}

}  // namespace

ProductOperands operands_of(const Gemm& gemm) {
  return {gemm.a.array.data, gemm.b.array.data, gemm.bias.data,
          gemm.d.array.data, gemm.a_scale,      gemm.b_scale};
}

void check_product(const CublasLt& library, cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorKind::kRuntime, "cuBLASLt can't {}: {}", what, library.status_string(status));
}

ProductAlignment alignment_of(const Gemm& gemm) {
  return {alignment_of(gemm.a.array.data), alignment_of(gemm.b.array.data), alignment_of(gemm.d.array.data),
          alignment_of(gemm.bias.data)};
}

ProductAlignment lower_of(const ProductAlignment& x, const ProductAlignment& y) {
  return {std::min(x.a, y.a), std::min(x.b, y.b), std::min(x.d, y.d), std::min(x.bias, y.bias)};
}

std::string describe(const Gemm& gemm) {
  return fmt::format(
      "m{} n{} k{} x{}, {}, {}, {}{}{}", gemm.m, gemm.n, gemm.k, gemm.batch,
      describe("a", gemm.a, gemm.batch, gemm.a_e5m2, gemm.a_scales),
      describe("b", gemm.b, gemm.batch, gemm.b_e5m2, gemm.b_scales), describe("d", gemm.d, gemm.batch),
      fmt::format("{}{}", gemm.accumulate ? " added to" : "", gemm.fast_sums ? ", fast sums" : ""),
      gemm.bias ? fmt::format(", bias {}", to_string(gemm.bias.dtype)) : "");
}

std::string describe(const ProductAlignment& alignment) {
  return fmt::format("aligned {} {} {} {}", alignment.a, alignment.b, alignment.d, alignment.bias);
}

ProductBytes bytes_of(const Gemm& gemm) {
  ProductBytes bytes;
  bytes.a = bytes_of(gemm.a, lying(gemm.a, gemm.m, gemm.k), gemm.batch);
  bytes.b = bytes_of(gemm.b, lying(gemm.b, gemm.k, gemm.n), gemm.batch);
  bytes.d = bytes_of(gemm.d, lying(gemm.d, gemm.m, gemm.n), gemm.batch);
  if (gemm.bias) bytes.bias = gemm.n * size_bytes(gemm.bias.dtype);
  if (is_fp8(gemm)) {
    const std::int64_t width = size_bytes(DType::kFp32);
    bytes.a_scale = width * fp8_scale_count(gemm.a_scales, gemm.m, gemm.k);
    bytes.b_scale = width * fp8_scale_count(gemm.b_scales, gemm.n, gemm.k);
  }
  return bytes;
}

Product::Product(const CublasLt& library, cublasLtHandle_t handle, const Gemm& gemm)
    : library_(library), handle_(handle), beta_(gemm.accumulate ? 1.0F : 0.0F) {
  if (gemm.a.array.dtype != gemm.b.array.dtype) {
    fail(ErrorKind::kRuntime, "no product of a {} with a {} matrix on this device: both need one type",
         to_string(gemm.a.array.dtype), to_string(gemm.b.array.dtype));
  }
  if (is_fp8(gemm)) check_fp8(gemm);
  try {
    a_ = make_layout(library_, gemm.a, lying(gemm.a, gemm.m, gemm.k), gemm.batch, gemm.a_e5m2);
    b_ = make_layout(library_, gemm.b, lying(gemm.b, gemm.k, gemm.n), gemm.batch, gemm.b_e5m2);
    d_ = make_layout(library_, gemm.d, lying(gemm.d, gemm.m, gemm.n), gemm.batch);
    // Neither multiplies fp32 operands as TF32; pedantic keeps cuBLASLt from other short cuts too, but isn't
    // there for everything that may become of a product.
    const bool single = gemm.a.array.dtype == DType::kFp32;
    set_operation(single ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F, gemm);
    if (single && candidates({4, 4, 4, 4}, 1, 0).empty()) set_operation(CUBLAS_COMPUTE_32F, gemm);
  } catch (...) {
    destroy();
    throw;
  }
}

Product::~Product() { destroy(); }

void Product::destroy() {
  for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) {
    if (layout != nullptr) library_.layout_destroy(layout);
  }
  if (operation_ != nullptr) library_.operation_destroy(operation_);
}

void Product::set_operation(cublasComputeType_t compute, const Gemm& gemm) {
  if (operation_ != nullptr) library_.operation_destroy(std::exchange(operation_, nullptr));
  check_product(library_, library_.operation_create(&operation_, compute, CUDA_R_32F), "describe a product");
  const auto turned = [](const Matrix& matrix) { return matrix.turned ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(library_, operation_, CUBLASLT_MATMUL_DESC_TRANSA, turned(gemm.b));
  set(library_, operation_, CUBLASLT_MATMUL_DESC_TRANSB, turned(gemm.a));
  if (is_fp8(gemm)) {
    set(library_, operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, gemm.b_scale);
    set(library_, operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, gemm.a_scale);
    a_scale_ = gemm.a_scale, b_scale_ = gemm.b_scale;
    set(library_, operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(gemm.b_scales));
    set(library_, operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(gemm.a_scales));
    set(library_, operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(gemm.fast_sums));
  }
  if (!gemm.bias) return;
  // Along a column of Dᵀ, which is a row of D: bias[n].
  set(library_, operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (gemm.bias.dtype != gemm.d.array.dtype) {
    set(library_, operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(gemm.bias.dtype));
  }
  bias_ = gemm.bias.data;
  set(library_, operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_);
}

std::vector<ProductCandidate> Product::candidates(const ProductAlignment& alignment, int most,
                                                  std::size_t workspace_bytes) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_product(library_, library_.preference_create(&preference), "hold preferences");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return library_.preference_set(preference, attribute, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  // Parts of a sum that is cut along k are added in fp32 and in a fixed order: neither rounded to D's type
  // before, nor added into D as they come.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.d);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.d);
  std::vector<cublasLtMatmulHeuristicResult_t> offers(static_cast<std::size_t>(most));
  int offered = 0;
  const cublasStatus_t status =
      library_.heuristic(handle_, operation_, b_, a_, d_, d_, preference, most, offers.data(), &offered);
  library_.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS) offered = 0;
  std::vector<ProductCandidate> usable;
  for (int i = 0; i < offered; ++i) {
    const cublasLtMatmulHeuristicResult_t& offer = offers[static_cast<std::size_t>(i)];
    if (offer.state == CUBLAS_STATUS_SUCCESS && offer.workspaceSize <= workspace_bytes) {
      usable.push_back({offer.algo, offer.workspaceSize});
    }
  }
  return usable;
}

bool Product::runs(const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      library_.algorithm_check(handle_, operation_, b_, a_, d_, d_, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes;
}

cublasStatus_t Product::point(cublasLtMatmulDescAttributes_t attribute, const void* to, const void*& known) {
  if (to == known) return CUBLAS_STATUS_SUCCESS;
  const cublasStatus_t status = library_.operation_set(operation_, attribute, &to, sizeof to);
  if (status == CUBLAS_STATUS_SUCCESS) known = to;
  return status;
}

cublasStatus_t Product::launch(const ProductOperands& operands, const cublasLtMatmulAlgo_t& algorithm,
                               void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  for (const cublasStatus_t status :
       {point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias, bias_),
        point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.b_scale, b_scale_),
        point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.a_scale, a_scale_)}) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const float one = 1.0F;
  return library_.matmul(handle_, operation_, &one, operands.b, b_, operands.a, a_, &beta_, operands.d, d_,
                         operands.d, d_, &algorithm, workspace, workspace_bytes, stream);
}

}  // namespace orrery::cuda
