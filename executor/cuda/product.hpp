#pragma once
// One product of matrices as cuBLASLt knows it: its descriptors, made once, and the algorithms offered for
// it.
//
// cuBLASLt counts columns first, so that what lies row-major is its transpose there. D = A·B is asked for as
// Dᵀ[n,m] = Bᵀ[n,k] · Aᵀ[k,m]: its first operand is our B. Strides of rows are its leading dimensions.
//
// FP8: on Hopper both operands need k innermost (a not turned, b turned) and sizes that are multiples of 16.
// What their numbers stand for is worked out with scales on the device. Tensor cores hold parts of sums in
// fewer bits than fp32 has; unless they may ("fast accumulation"), what they have is added up in fp32 every
// 128 terms or so.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/libraries.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// Bytes that every address of an operand is a multiple of; 256 where more.
struct ProductAlignment {
  std::uint32_t a = 256, b = 256, d = 256, bias = 256;
  bool operator==(const ProductAlignment&) const = default;
};
ProductAlignment alignment_of(const device::Gemm& gemm);
ProductAlignment lower_of(const ProductAlignment& x, const ProductAlignment& y);

// What makes two products the same one, on one line: sizes, types, layouts, what becomes of D; not addresses.
std::string describe(const device::Gemm& gemm);
std::string describe(const ProductAlignment& alignment);

// Bytes from an operand's first element to the end of its last one, of a whole batch.
struct ProductBytes {
  std::int64_t a = 0, b = 0, d = 0, bias = 0;
  std::int64_t a_scale = 0, b_scale = 0;  // Of FP8 operands.
};
ProductBytes bytes_of(const device::Gemm& gemm);

struct ProductOperands {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* d = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;  // Of FP8; null: 1.
};
ProductOperands operands_of(const device::Gemm& gemm);

struct ProductCandidate {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

class Product {
 public:
  // THROWS naming types that cuBLASLt can't multiply. REQUIRES: m, n, k and batch of at least 1.
  Product(const CublasLt& library, cublasLtHandle_t handle, const device::Gemm& gemm);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // What the heuristic offers, best guess first; empty: cuBLASLt can't do it.
  std::vector<ProductCandidate> candidates(const ProductAlignment& alignment, int most,
                                           std::size_t workspace_bytes) const;
  // Whether an algorithm that was kept can be run still.
  bool runs(const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) const;
  // One product at a time: addresses of the bias and of scales are set in the descriptor.
  cublasStatus_t launch(const ProductOperands& operands, const cublasLtMatmulAlgo_t& algorithm,
                        void* workspace, std::size_t workspace_bytes, cudaStream_t stream);

 private:
  cublasStatus_t point(cublasLtMatmulDescAttributes_t attribute, const void* to, const void*& known);
  void set_operation(cublasComputeType_t compute, const device::Gemm& gemm);
  void destroy();

  const CublasLt& library_;
  const cublasLtHandle_t handle_;
  const float beta_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  // In the descriptor now.
  const void *bias_ = nullptr, *a_scale_ = nullptr, *b_scale_ = nullptr;
};

// THROWS Error(kRuntime) naming the product.
void check_product(const CublasLt& library, cublasStatus_t status, const char* what);

}  // namespace orrery::cuda
