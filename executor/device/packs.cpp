#include "executor/device/packs.hpp"

#include <algorithm>
#include <set>

namespace orrery::device {
namespace {

// Of an access: what cuBLASLt and cuDNN want rows to begin at, in elements of two bytes.
constexpr std::int64_t kColumns = 8;

bool has(const std::vector<DimId>& shape, DimId dim) {
  return std::find(shape.begin(), shape.end(), dim) != shape.end();
}

// The projection's own output that this is, or is the gradient of, or has become by rotation.
TensorId projected(const Graph& graph, TensorId tensor) {
  const Tensor& data = graph[tensor];
  if (data.kind == TensorKind::kGradient) return data.gradient_of;
  if (!data.producer.valid()) return tensor;
  const Op& op = graph[data.producer];
  if (op.kind != OpKind::kRope) return tensor;
  const auto at = std::find(op.outputs.begin(), op.outputs.end(), tensor) - op.outputs.begin();
  return op.inputs[static_cast<std::size_t>(at)];
}

// The projection whose parts these are, in order and all of them; invalid: there is none.
OpId projection_of(const Graph& graph, const std::vector<TensorId>& parts, bool weights) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.kind != OpKind::kMatmul || op.outputs.size() != parts.size()) continue;
    const auto first = weights ? op.inputs.begin() + 1 : op.outputs.begin();
    if (std::equal(parts.begin(), parts.end(), first)) return OpId(static_cast<std::int64_t>(o));
  }
  return {};
}

// Which operands of an op may be packed: it is these that launches have strides for.
struct Strided {
  std::size_t first_input = 0, end_input = 0, first_output = 0, end_output = 0;
};
Strided strided(const Op& op) {
  const std::size_t in = op.inputs.size(), out = op.outputs.size();
  switch (op.kind) {
    case OpKind::kMatmul: return {1, 1 + out, 0, out};
    case OpKind::kMatmulGradInput: return {0, in, 0, 0};
    case OpKind::kMatmulGradWeight: return {1, in, 0, in - 1};
    case OpKind::kRope:
    case OpKind::kRopeGrad: return {0, in, 0, out};
    case OpKind::kAttention: return {0, 3, 0, 0};
    case OpKind::kAttentionGrad: return {0, 3, 0, 3};
    case OpKind::kGated: return {0, 2, 0, 0};
    case OpKind::kGatedGrad: return {0, 2, 0, 2};
    default: return {};
  }
}

}  // namespace

Packs::Packs(host::Tables& tables, RankId rank)
    : tables_(tables),
      rank_(rank),
      role_(tables.role(rank)),
      pack_of_(role_.buffers.size(), -1),
      places_(role_.buffers.size()) {
  find_packs();
  if (packs_.empty()) return;
  check_touchers();
  pair_weights();
  place();
}

// Whole chains whose buffers touch each other.
void Packs::find_packs() {
  std::vector<std::int64_t> follower(role_.buffers.size(), -1);
  for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
    if (role_.buffers[b].behind.valid())
      follower[role_.buffers[b].behind.index()] = static_cast<std::int64_t>(b);
  }
  for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
    if (role_.buffers[b].behind.valid() || follower[b] < 0) continue;
    Pack pack;
    for (auto at = static_cast<std::int64_t>(b); at >= 0; at = follower[static_cast<std::size_t>(at)]) {
      pack.buffers.emplace_back(at);
    }
    if (!describe(pack)) continue;
    for (const BufferId buffer : pack.buffers) {
      pack_of_[buffer.index()] = static_cast<std::int32_t>(packs_.size());
    }
    packs_.push_back(std::move(pack));
  }
}

// Whether they are columns of one matrix.
bool Packs::describe(Pack& pack) const {
  const Graph& graph = tables_.graph();
  const Buffer& first = role_.buffers[pack.buffers.front().index()];
  pack.weights = first.persistent && first.category == MemoryCategory::kParameters;
  pack.gradients = first.persistent && first.category == MemoryCategory::kGradients;
  if (first.persistent != (pack.weights || pack.gradients)) return false;
  std::vector<TensorId> parts;
  std::int64_t end = first.offset;
  for (const BufferId id : pack.buffers) {
    const Buffer& buffer = role_.buffers[id.index()];
    if (!buffer.tensor.valid() || buffer.offset < 0 || buffer.offset != end) return false;
    end += buffer.bytes;
    parts.push_back(first.persistent ? buffer.tensor : projected(graph, buffer.tensor));
  }
  pack.projection = projection_of(graph, parts, first.persistent);
  if (!pack.projection.valid()) return false;
  const std::vector<DimId>& x = graph[graph[pack.projection].inputs[0]].shape;
  std::int64_t rows = -1;
  DType dtype = {};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const host::TensorView view = tables_.view(rank_, pack.buffers[i]);
    const std::vector<DimId>& shape = graph[parts[i]].shape;
    const host::Shard& shard = tables_.shard(rank_, pack.buffers[i]);
    std::int64_t columns = 1;
    bool in_columns = false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool column = !has(x, shape[d]);
      if (in_columns && !column) return false;  // Columns come last.
      in_columns = column;
      if (column) columns *= std::ssize(shard.indices[d]);
    }
    // Products of a batch, as experts have them, share a dimension with both.
    const std::vector<DimId>& weight = graph[graph[pack.projection].inputs[1 + i]].shape;
    const std::vector<DimId>& made = graph[graph[pack.projection].outputs[i]].shape;
    const bool batch =
        std::any_of(weight.begin(), weight.end(), [&](DimId dim) { return has(x, dim) && has(made, dim); });
    if (batch || columns % kColumns != 0 || columns == 0 || view.elements % columns != 0) return false;
    if (view.elements * size_bytes(view.dtype) != role_.buffers[pack.buffers[i].index()].bytes) return false;
    if (i > 0 && (view.elements / columns != rows || view.dtype != dtype)) return false;
    rows = view.elements / columns;
    dtype = view.dtype;
    pack.columns.push_back(columns);
  }
  return rows > 0;
}

void Packs::check_touchers() {
  for (const Instruction& instruction : role_.instructions) {
    std::set<std::int32_t> touched;
    for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
      const BufferId buffer = role_.operands[static_cast<std::size_t>(o)].buffer;
      if (pack_of_[buffer.index()] >= 0) touched.insert(pack_of_[buffer.index()]);
    }
    for (const std::int32_t p : touched) {
      Pack& pack = packs_[static_cast<std::size_t>(p)];
      pack.usable = pack.usable && allows(pack, instruction);
    }
  }
}

bool Packs::allows(const Pack& pack, const Instruction& instruction) const {
  if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
    const auto begin = role_.operands.begin();
    const bool in_place = std::all_of(begin + instruction.operands.begin, begin + instruction.operands.end,
                                      [](const Operand& operand) { return operand.writes; });
    return in_place && one_role(collective->axis);
  }
  const auto* const compute = std::get_if<Compute>(&instruction.work);
  if (compute == nullptr || instruction.piece.of != 1 || instruction.part >= 0) return false;
  const Kernel& kernel = tables_.program().kernels[compute->kernel.index()];
  if (kernel.kind == KernelKind::kAccumulate) return false;
  if (kernel.kind == KernelKind::kOptimizer) return pack.weights || pack.gradients;
  if (instruction.ops.begin == instruction.ops.end) {  // The norm, of whole packs.
    return pack.gradients && std::all_of(pack.buffers.begin(), pack.buffers.end(), [&](BufferId buffer) {
             return tables_.counts(rank_, buffer) == tables_.counts(rank_, pack.buffers.front());
           });
  }
  const Graph& graph = tables_.graph();
  const auto packed = [&](TensorId tensor) {
    const bool gradient = graph[tensor].kind == TensorKind::kParameterGradient;
    const TensorId held = gradient ? graph[tensor].gradient_of : tensor;
    return gradient == pack.gradients &&
           std::any_of(pack.buffers.begin(), pack.buffers.end(),
                       [&](BufferId buffer) { return role_.buffers[buffer.index()].tensor == held; });
  };
  for (std::int32_t o = instruction.ops.begin; o < instruction.ops.end; ++o) {
    const Op& op = graph[role_.ops[static_cast<std::size_t>(o)]];
    const Strided known = strided(op);
    // A gate and what passes it are read with one stride.
    if (op.kind == OpKind::kGated || op.kind == OpKind::kGatedGrad) {
      if (packed(op.inputs[0]) != packed(op.inputs[1])) return false;
      if (op.outputs.size() == 2 && packed(op.outputs[0]) != packed(op.outputs[1])) return false;
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (packed(op.inputs[i]) && (i < known.first_input || i >= known.end_input)) return false;
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (packed(op.outputs[i]) && (i < known.first_output || i >= known.end_output)) return false;
    }
  }
  return true;
}

// Ranks that add up or hand on what lies in place have to have it in the same order.
bool Packs::one_role(AxisId axis) const {
  const std::vector<RoleId>& role_of = tables_.program().role_of;
  const std::vector<RankId>& group = tables_.group(rank_, axis);
  return std::all_of(group.begin(), group.end(),
                     [&](RankId rank) { return role_of[rank.index()] == role_of[rank_.index()]; });
}

// The optimiser takes element i of the weights with element i of their gradients: both are packed or neither.
void Packs::pair_weights() {
  for (Pack& pack : packs_) {
    if (!pack.weights && !pack.gradients) continue;
    const bool paired = std::any_of(packs_.begin(), packs_.end(), [&](const Pack& other) {
      return other.usable && other.weights == pack.gradients && other.gradients == pack.weights &&
             other.projection == pack.projection;
    });
    if (!paired) pack.usable = false;
  }
}

void Packs::place() {
  for (const Pack& pack : packs_) {
    if (!pack.usable) continue;
    std::int64_t stride = 0;
    for (const std::int64_t columns : pack.columns) stride += columns;
    const host::TensorView first = tables_.view(rank_, pack.buffers.front());
    std::int64_t column = 0;
    for (std::size_t i = 0; i < pack.buffers.size(); ++i) {
      places_[pack.buffers[i].index()] = {first.data + column * size_bytes(first.dtype), pack.columns[i],
                                          stride};
      column += pack.columns[i];
      if (!pack.weights) continue;
      persistent_.emplace(tables_.view(rank_, pack.buffers[i]).data, pack.buffers[i].index());
    }
  }
}

PackedPlaces Packs::places(const Instruction& instruction) const {
  PackedPlaces found;
  for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
    const BufferId buffer = role_.operands[static_cast<std::size_t>(o)].buffer;
    const PackedPlace& place = places_[buffer.index()];
    if (place.data != nullptr) found.emplace(tables_.view(rank_, buffer).data, place);
  }
  return found;
}

std::vector<Stretch> Packs::stretches(const host::TensorView& part) const {
  const std::int64_t width = size_bytes(part.dtype);
  auto found = persistent_.upper_bound(part.data);
  if (found == persistent_.begin()) return {{0, part.elements, {part.data, part.dtype}, 0, 0}};
  --found;
  const std::byte* const begin = found->first;
  if (part.data >= begin + role_.buffers[found->second].bytes)
    return {{0, part.elements, {part.data, part.dtype}, 0, 0}};
  const PackedPlace& place = places_[found->second];
  std::vector<Stretch> stretches;
  for (std::int64_t done = 0; done < part.elements;) {
    const std::int64_t at = (part.data - begin) / width + done, left = part.elements - done;
    const std::int64_t row = at / place.columns, column = at % place.columns;
    Stretch& next = stretches.emplace_back();
    next.skipped = done;
    next.array = {place.data + (row * place.stride + column) * width, part.dtype};
    if (column == 0 && left >= place.columns) {
      next.elements = left / place.columns * place.columns;
      next.width = place.columns;
      next.stride = place.stride;
    } else {
      next.elements = std::min(left, place.columns - column);
    }
    done += next.elements;
  }
  return stretches;
}

}  // namespace orrery::device
