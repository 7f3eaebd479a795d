#pragma once
// The kernels that every step runs, each from the struct that says what it does (executor/device/launch.hpp).
// What they mean is the host backend's (executor/kernels), up to the order of sums and the last bits of
// exponentials.
//
// launch() only enqueues: it allocates nothing and waits for nothing, so all may be captured in a graph. Sums
// have a fixed order: a launch on the same GPU repeats bit by bit. THROWS Error(kRuntime) for types that a
// kernel has no version for, and where CUDA refuses a launch. Addresses need the alignment of their elements;
// 16 bytes are faster.

#include <cstddef>
#include <cstdint>

#include "executor/cuda/kernels_host.hpp"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

// Device memory that belongs to one launch for as long as it may be run, made before the first. The host
// writes table_bytes() bytes and copies them to an address aligned to 256 bytes; launches that have the same
// table (same_table) may share it.
template <class Launch>
std::int64_t table_bytes(const Launch&) {
  return 0;
}
std::int64_t table_bytes(const device::AdamW&);
std::int64_t table_bytes(const device::SumSquares&);
std::int64_t table_bytes(const device::Rope&);

template <class Launch>
void write_table(const Launch&, std::byte*) {}
void write_table(const device::AdamW&, std::byte* host);
void write_table(const device::SumSquares&, std::byte* host);
void write_table(const device::Rope&, std::byte* host);

template <class Launch>
bool same_table(const Launch&, const Launch&) {
  return false;
}
bool same_table(const device::Rope&, const device::Rope&);

// Scratch that launches of one stream may share, aligned to 256 bytes. REQUIRES: the device that will run it
// is the current one.
template <class Launch>
std::int64_t workspace_bytes(const Launch&) {
  return 0;
}
std::int64_t workspace_bytes(const device::ColumnSum&);
std::int64_t workspace_bytes(const device::NormGrad&);
std::int64_t workspace_bytes(const device::Rope&);
std::int64_t workspace_bytes(const device::EmbeddingGrad&);
std::int64_t workspace_bytes(const device::CrossEntropy&);
std::int64_t workspace_bytes(const device::SumSquares&);
std::int64_t workspace_bytes(const device::Quantize&);

// kernels_norm.cu, kernels_norm_grad.cu, kernels_norm_grad_read.cu
void launch(const device::Norm&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::NormGrad&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_rope.cu
void launch(const device::Rope&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_elementwise.cu
void launch(const device::Unary&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Gated&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::GatedGrad&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_memory.cu
void launch(const device::AddScaled&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Accumulate&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Convert&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::Zero&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::CopyBytes&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::CopyRows&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_embedding.cu
void launch(const device::Embedding&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::EmbeddingGrad&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_loss.cu
void launch(const device::CrossEntropy&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::CrossEntropyGrad&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_optimizer.cu
void launch(const device::AdamW&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::SumSquares&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_quantize.cu
void launch(const device::Quantize&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_columns.cu
void launch(const device::ColumnSum&, const std::byte* table, std::byte* workspace, Stream stream);
// kernels_state.cu
void launch(const device::InitialValues&, const std::byte* table, std::byte* workspace, Stream stream);
void launch(const device::HashElements&, const std::byte* table, std::byte* workspace, Stream stream);

}  // namespace orrery::cuda
