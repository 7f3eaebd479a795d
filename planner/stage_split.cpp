// The pass split-collectives.

#include <algorithm>
#include <cassert>
#include <optional>
#include <string>

#include "planner/stage_passes.hpp"

namespace orrery {
namespace {

// Pieces of a product: Transformer Engine's userbuffers cut in four unless told otherwise; each leaves a
// quarter of the transfer exposed and has a launch of its own.
constexpr std::int32_t kPieces = 4;

class Splitter {
 public:
  Splitter(StageTemplate& stage, const StageInput& input, SymbolTable& symbols)
      : stage_(stage), in_(input), symbols_(symbols) {}

  std::int64_t run(std::vector<TemplateInstruction>& list) {
    std::vector<TemplateInstruction> out;
    for (std::size_t i = 0; i < list.size(); ++i) {
      TemplateInstruction& product = list[i];
      const std::int32_t segments = segments_of(product);
      if (segments == 0) {
        out.push_back(std::move(product));
        continue;
      }
      std::optional<TemplateInstruction> gather, scatter;
      if (!out.empty() && moves(out.back(), CollectiveKind::kAllGather) && feeds(out.back(), product)) {
        gather = std::move(out.back());
        out.pop_back();
      }
      if (i + 1 < list.size() && moves(list[i + 1], CollectiveKind::kReduceScatter) &&
          feeds(product, list[i + 1])) {
        scatter = std::move(list[++i]);
      }
      if (!gather && !scatter) {
        out.push_back(std::move(product));
        continue;
      }
      for (std::int32_t p = 0; p < kPieces; ++p) {
        const Piece piece{p, kPieces, segments};
        if (gather) out.push_back(piece_of(*gather, piece));
        out.push_back(piece_of(product, piece));
        if (scatter) out.push_back(piece_of(*scatter, piece));
      }
    }
    const std::int64_t added = std::ssize(out) - std::ssize(list);
    list = std::move(out);
    return added;
  }

 private:
  // How many ranks' runs lie one after another in the product's sequence; 0: it can't be cut.
  std::int32_t segments_of(const TemplateInstruction& product) const {
    if (!in_.sharding.axes().tensor.valid() || !in_.plan.sequence_parallel || product.ops.size() != 1)
      return 0;
    const OpId id = product.ops.front();
    const Op& op = in_.graph[id];
    if (op.kind != OpKind::kMatmul && op.kind != OpKind::kMatmulGradInput) return 0;
    const auto& shape = in_.graph[op.outputs.front()].shape;
    const auto sequence = std::find_if(shape.begin(), shape.end(),
                                       [&](DimId dim) { return in_.graph[dim].role == DimRole::kSequence; });
    if (sequence == shape.end()) return 0;
    const std::int32_t ranks = in_.plan.tensor_parallel();
    return in_.sharding.sizes(id)[sequence->index()] % (ranks * kPieces) == 0 ? ranks : 0;
  }

  bool moves(const TemplateInstruction& instruction, CollectiveKind kind) const {
    const auto* const collective = std::get_if<Collective>(&instruction.work);
    return collective != nullptr && collective->kind == kind &&
           collective->axis == in_.sharding.axes().tensor && instruction.operands.size() == 2;
  }

  // Whether `reader` reads what `writer` writes.
  static bool feeds(const TemplateInstruction& writer, const TemplateInstruction& reader) {
    return std::any_of(writer.operands.begin(), writer.operands.end(), [&](const TemplateOperand& made) {
      return made.writes &&
             std::any_of(reader.operands.begin(), reader.operands.end(), [&](const TemplateOperand& read) {
               return !read.writes && read.buffer == made.buffer && read.persistent == made.persistent;
             });
    });
  }

  TemplateInstruction piece_of(const TemplateInstruction& whole, const Piece& piece) {
    TemplateInstruction part = whole;
    part.label =
        symbols_.label(symbols_.labels[whole.label.index()] + ".piece" + std::to_string(piece.index));
    part.piece = piece;
    if (piece.index > 0) part.new_blocks.clear();
    if (auto* const collective = std::get_if<Collective>(&part.work)) {
      collective->bytes /= piece.of;
      return part;
    }
    Compute& compute = std::get<Compute>(part.work);
    Kernel kernel = symbols_.kernels[compute.kernel.index()];
    kernel.label = part.label;
    assert(kernel.m % piece.of == 0);                      // Its rows are the positions.
    const std::int64_t weights = persistent_bytes(whole);  // Every piece reads them.
    kernel.m /= piece.of;
    kernel.flops /= piece.of;
    kernel.read_bytes = (kernel.read_bytes - weights) / piece.of + weights;
    kernel.written_bytes /= piece.of;
    compute.kernel = symbols_.kernel(kernel);
    return part;
  }

  std::int64_t persistent_bytes(const TemplateInstruction& instruction) const {
    std::int64_t bytes = 0;
    for (const TemplateOperand& operand : instruction.operands) {
      if (operand.persistent)
        bytes += stage_.persistent_buffers[static_cast<std::size_t>(operand.buffer)].bytes;
    }
    return bytes;
  }

  StageTemplate& stage_;
  const StageInput& in_;
  SymbolTable& symbols_;
};

}  // namespace

std::int64_t split_collectives(StageTemplate& stage, const StageInput& input, SymbolTable& symbols) {
  std::int64_t added = 0;
  for (auto& list : stage.lists) added += Splitter(stage, input, symbols).run(list);
  return added;
}

}  // namespace orrery
