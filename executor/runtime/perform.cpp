#include "executor/runtime/perform.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "executor/runtime/reduce.hpp"

namespace orrery::host {
namespace {

template <class... Callables>
struct Overloaded : Callables... {
  using Callables::operator()...;
};

}  // namespace

void Performer::perform(const Action& action, std::int64_t step) {
  std::visit(
      Overloaded{
          [](const Zero& zero) {
            std::memset(zero.to.data, 0,
                        static_cast<std::size_t>(zero.to.elements * size_bytes(zero.to.dtype)));
          },
          [](const CopyBytes& copy) {
            std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
          },
          [&](const FillInput& input) { fill(input, step); },
          [&](const RunOp& run) {
            run_kernel(graph_, graph_[run.op], run.view, run.inputs, run.outputs, workspace_);
          },
          [&](const RunLossPart& run) { run_loss_part(run.view, run.part, run.operands, workspace_); },
          [&](const RunRingStep& run) { add_ring_step(run.kind, run.in_place, run.operands, workspace_); },
          [&](const Add& add) { accumulate(add.from, add.to, workspace_); },
          [&](const Convert& copy) { convert(copy.from, copy.to, workspace_); },
          [&](const SumSquares& sum) { sum_squares(sum); },
          [&](const Update& all) { update(all, step); },
          [&](const NoteLoss& loss) {
            float value = 0;
            convert(loss.from, {reinterpret_cast<std::byte*>(&value), DType::kFp32, 1}, workspace_);
            world_.row(rank_, step)[World::kFirstLoss + static_cast<std::size_t>(loss.microbatch)] =
                static_cast<double>(value);
          },
      },
      action);
}

void Performer::perform(const Transfer& transfer, const Exchange& exchange) {
  std::visit(Overloaded{
                 [](const CopyBytes& copy) {
                   std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
                 },
                 [&](const Reduce& sum) { reduce(sum, workspace_); },
                 [&](const MergeNorm&) {
                   ExactSum all = world_.header(rank_).norm;
                   for (const RankId other : exchange.listeners) all.add(world_.header(other).norm);
                   world_.header(rank_).norm_squared = all.value();
                 },
             },
             transfer);
}

void Performer::fill(const FillInput& input, std::int64_t step) {
  std::int64_t end = 0;
  for (const Run& run : input.runs) end = std::max(end, run.from + run.count);
  tokens_.resize(static_cast<std::size_t>(end));
  callbacks_.inputs(step, input.microbatch, input.tensor, tokens_);
  assert(input.to.dtype == DType::kInt64);
  auto* const to = reinterpret_cast<std::int64_t*>(input.to.data);
  for (const Run& run : input.runs) std::copy_n(tokens_.begin() + run.from, run.count, to + run.to);
}

void Performer::sum_squares(const SumSquares& sum) {
  RankHeader& header = world_.header(rank_);
  header.norm = ExactSum();
  for (const TensorView& part : sum.parts) {
    Scratch scratch(workspace_);
    auto* values = reinterpret_cast<float*>(part.data);
    if (part.dtype != DType::kFp32) {
      values = scratch.take<float>(static_cast<std::size_t>(part.elements));
      convert(part, {reinterpret_cast<std::byte*>(values), DType::kFp32, part.elements}, workspace_);
    }
    header.norm.add_squares(values, static_cast<std::size_t>(part.elements));
  }
  if (sum.alone) header.norm_squared = header.norm.value();
}

void Performer::update(const Update& all, std::int64_t step) {
  AdamWSettings settings = callbacks_.optimizer(step);
  const double squared = world_.header(rank_).norm_squared;
  if (callbacks_.clip_norm > 0 && squared != RankHeader::kNoNorm) {
    // As torch.nn.utils.clip_grad_norm_: the coefficient is at most 1, and 1e-6 keeps it finite.
    const double norm = std::sqrt(squared) * settings.gradient_scale;
    settings.gradient_scale *= std::min(1.0, callbacks_.clip_norm / (norm + 1e-6));
  }
  for (const UpdateSlice& slice : all.slices) {
    AdamWSettings of_slice = settings;
    if (!slice.decays) of_slice.weight_decay = 0;
    AdamWArrays arrays = {slice.gradient, slice.master, slice.first_moment, slice.second_moment, {}};
    if (slice.weights.dtype != DType::kFp32) arrays.weights = slice.weights;
    adamw(of_slice, arrays, workspace_);
  }
}

}  // namespace orrery::host
