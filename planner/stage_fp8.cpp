// Copies of operands for FP8 products: where they lie, what later instructions have of them, and what they
// cost. With one scale for all of it, a matrix's largest element is left by the launch that makes it, where
// that can, or else looked for once, by the product that reads it first; the gradient's copies for the
// input's and the weight's gradient are made together where those follow one another.

#include <algorithm>

#include "planner/fp8.hpp"
#include "planner/stage_builder.hpp"

namespace orrery {
namespace {

// The weights among them, or all others.
std::vector<Fp8Operand> part_of(const Graph& graph, const std::vector<Fp8Operand>& operands, bool weights) {
  std::vector<Fp8Operand> found;
  for (const Fp8Operand& operand : operands) {
    if ((graph[operand.tensor].kind == TensorKind::kParameter) == weights) found.push_back(operand);
  }
  return found;
}

std::int64_t elements_of(const std::vector<Fp8Operand>& operands) {
  std::int64_t sum = 0;
  for (const Fp8Operand& operand : operands) sum += operand.elements;
  return sum;
}

std::int64_t copy_bytes(const std::vector<Fp8Operand>& operands) {
  std::int64_t sum = 0;
  for (const Fp8Operand& operand : operands) sum += fp8_copy_bytes(operand);
  return sum;
}

}  // namespace

// Of the instruction that writes it.
std::int32_t StageBuilder::add_fp8_buffer(const TemplateInstruction& writer, const char* what,
                                          std::int64_t bytes) {
  Buffer buffer;
  buffer.label = symbols_.label(symbols_.labels[writer.label.index()] + what);
  buffer.layer = writer.layer;
  buffer.category = MemoryCategory::kWorkspace;
  buffer.bytes = bytes;
  stage_.microbatch_buffers.push_back(buffer);
  return static_cast<std::int32_t>(std::ssize(stage_.microbatch_buffers) - 1);
}

// Norms, gates and their gradients leave the largest element of what they make: gates' gradients that of
// both, side by side, norms' that of the sum with what came before, where they make it.
void StageBuilder::note_fp8_maker(const Launch& launch) {
  if (in_.plan.fp8 != Fp8::kTensor) return;
  const auto ends_norm_gradient = [&](OpId id) {
    return graph_[launch.ops.front()].kind == OpKind::kNormGrad && id == launch.ops.back();
  };
  for (const OpId id : launch.ops) {
    const Op& op = graph_[id];
    const bool two = op.kind == OpKind::kGatedGrad;
    if (op.kind != OpKind::kNorm && op.kind != OpKind::kGated && !ends_norm_gradient(id) &&
        !(two && in_.kernels.packed)) {
      continue;
    }
    Fp8Sources made = {places_.at(op.outputs[0].value).buffer};
    if (two) made.push_back(places_.at(op.outputs[1].value).buffer);
    fp8_makers_[made] = &fp8_leavers_.emplace_back(Fp8Kept{pass_, static_cast<std::int32_t>(list().size())});
  }
}

// Memory that the instruction leaves largest elements in.
std::int32_t StageBuilder::fp8_largest(Fp8Kept& of) {
  if (of.buffer < 0) {
    TemplateInstruction& writer =
        stage_.lists[static_cast<std::size_t>(of.pass)][static_cast<std::size_t>(of.instruction)];
    of.buffer = add_fp8_buffer(writer, ".fp8_largest", kFp8LargestBytes);
    touch(writer, {of.buffer, false, true});
  }
  return of.buffer;
}

// Buffers that the op reads them from; none where one is moved for it, or may come in pieces.
StageBuilder::Fp8Sources StageBuilder::fp8_sources(OpId op, const std::vector<Fp8Operand>& operands) {
  if (in_.plan.passes.contains(LoweringPass::kSplitCollectives)) return {};
  Fp8Sources buffers;
  for (const Fp8Operand& operand : operands) {
    if (sharding_.needed(op, operand.tensor) != sharding_.stored(operand.tensor)) return {};
    buffers.push_back(place_of(operand.tensor).buffer);
  }
  return buffers;
}

// The op that reads the gradients of an input's gradient for the weights' ones, if it comes soon and from
// where they lie.
bool StageBuilder::weight_gradient_follows(OpId op, const std::vector<Fp8Operand>& gradients) {
  if (pass_ != PassKind::kBackward) return false;
  const auto& readers = in_.index.readers[gradients.front().tensor.index()];
  return std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
    const std::vector<TensorId>& inputs = graph_[reader].inputs;
    const bool same = graph_[reader].kind == OpKind::kMatmulGradWeight &&
                      inputs.size() == 1 + gradients.size() &&
                      std::equal(gradients.begin(), gradients.end(), inputs.begin() + 1,
                                 [](const Fp8Operand& x, TensorId y) { return x.tensor == y; });
    return same && fp8_operands(graph_, in_.plan, sharding_, reader).size() == inputs.size() &&
           fp8_sources(reader, gradients) == fp8_sources(op, gradients);
  });
}

// Memory for as long as the product runs, what it keeps, and the traffic of copies. Operands that aren't kept
// from before are read to be copied, and before that for their largest element, where there is one scale for
// all; products read the copies.
void StageBuilder::add_fp8_copies(OpId id, TemplateInstruction& compute, Kernel& kernel) {
  const std::vector<Fp8Operand> operands = fp8_operands(graph_, in_.plan, sharding_, id);
  if (operands.empty()) return;
  kernel.dtype = DType::kFp8;
  kernel.fp8 = fp8_arithmetic(in_.plan, graph_[id].kind);
  const std::int64_t all = elements_of(operands);
  kernel.read_bytes += all * size_bytes(DType::kFp8) + fp8_search_bytes(operands);
  kernel.written_bytes += all * size_bytes(DType::kFp8);
  if (graph_[id].kind == OpKind::kMatmulGradWeight) {
    take_fp8_kept(id, {operands.front()}, compute, kernel);
    take_fp8_kept(id, {operands.begin() + 1, operands.end()}, compute, kernel);
  } else {
    keep_fp8(id, operands, compute, kernel);
  }
  touch(compute, {add_fp8_buffer(compute, ".fp8", copy_bytes(operands)), false, true});
}

// Read to find the largest elements.
std::int64_t StageBuilder::fp8_search_bytes(const std::vector<Fp8Operand>& operands) const {
  return in_.plan.fp8 == Fp8::kTensor ? elements_of(operands) * size_bytes(in_.plan.compute_dtype) : 0;
}

// What a forward or an input's gradient finds of its matrices and leaves of them.
void StageBuilder::keep_fp8(OpId id, const std::vector<Fp8Operand>& operands, TemplateInstruction& compute,
                            Kernel& kernel) {
  const std::vector<Fp8Operand> inputs = part_of(graph_, operands, false),
                                weights = part_of(graph_, operands, true);
  const Fp8Sources sources = fp8_sources(id, inputs);
  if (sources.empty()) return;
  Fp8Kept& kept = fp8_leavers_.emplace_back(Fp8Kept{pass_, static_cast<std::int32_t>(list().size())});
  const auto find_largest = [&](Fp8Kept& left, const std::vector<Fp8Operand>& of) {
    touch(compute, {fp8_largest(left), false, false});
    kernel.read_bytes -= fp8_search_bytes(of);
  };
  if (in_.plan.fp8 == Fp8::kTensor) fp8_kept_[sources] = &kept;
  if (const auto maker = fp8_makers_.find(sources); maker != fp8_makers_.end()) {
    find_largest(*maker->second, inputs);
    fp8_kept_[sources] = maker->second;
  }
  if (graph_[id].kind == OpKind::kMatmul) {
    if (pass_ == PassKind::kForward && in_.plan.fp8 == Fp8::kTensor) {
      fp8_weights_[weights.front().tensor] = &kept;
    }
    return;
  }
  if (const auto forward = fp8_weights_.find(weights.front().tensor); forward != fp8_weights_.end()) {
    find_largest(*forward->second, weights);
  }
  if (!weight_gradient_follows(id, inputs)) return;
  kept.copies = true;
  kept.buffer = add_fp8_buffer(compute, ".fp8_kept", kFp8LargestBytes + copy_bytes(inputs));
  touch(compute, {kept.buffer, false, true});
  kernel.written_bytes += elements_of(inputs) * size_bytes(DType::kFp8);
  fp8_kept_[sources] = &kept;
}

// What a weight's gradient has of matrices from before. Its memory is for copies of all: where its
// projections are packed otherwise than the input's gradient's are, it makes its own.
void StageBuilder::take_fp8_kept(OpId id, const std::vector<Fp8Operand>& operands,
                                 TemplateInstruction& compute, Kernel& kernel) {
  const Fp8Sources sources = fp8_sources(id, operands);
  Fp8Kept* kept = nullptr;
  for (auto* const known : {&fp8_kept_, &fp8_makers_}) {
    const auto found = known->find(sources);
    if (found != known->end() && kept == nullptr) kept = found->second;
  }
  if (kept == nullptr) return;
  touch(compute, {fp8_largest(*kept), false, false});
  const std::int64_t elements = elements_of(operands);
  kernel.read_bytes -= fp8_search_bytes(operands);
  if (!kept->copies) return;
  // A bias's gradient reads them as they are.
  if (!graph_[id].attributes.bias) kernel.read_bytes -= elements * size_bytes(in_.plan.compute_dtype);
  kernel.written_bytes -= elements * size_bytes(DType::kFp8);
}

}  // namespace orrery
