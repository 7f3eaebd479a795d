// A compute instruction: its ops on the rank's memory, with what none of its operands holds in scratch.

#include <algorithm>
#include <map>
#include <optional>

#include "executor/host/local_view.hpp"
#include "executor/runtime/bind_parts.hpp"

namespace orrery::host {
namespace {

// A tensor as an op sees it.
struct Seen {
  TensorView view;
  Shard shard;
  BufferId buffer;  // Invalid: of this launch alone.
};

class ComputeBinder {
 public:
  ComputeBinder(Tables& tables, RankId rank, std::int32_t index, std::byte* scratch, LaunchScratch& layout,
                std::vector<bool>& begun)
      : tables_(tables),
        graph_(tables.graph()),
        program_(tables.program()),
        rank_(rank),
        role_(tables.role(rank)),
        instruction_(role_.instructions[static_cast<std::size_t>(index)]),
        operands_(tables.operands(rank, instruction_)),
        scratch_(scratch),
        layout_(layout),
        begun_(begun),
        local_(tables.graph(), tables.program()) {}

  std::vector<Action> bind() {
    layout_.begin();
    const Kernel& kernel = program_.kernels[std::get<Compute>(instruction_.work).kernel.index()];
    if (kernel.kind == KernelKind::kOptimizer) {
      update();
    } else if (kernel.kind == KernelKind::kAccumulate) {
      accumulate();
    } else if (instruction_.ops.begin == instruction_.ops.end) {
      without_ops();
    } else {
      for (std::int32_t o = instruction_.ops.begin; o < instruction_.ops.end; ++o) {
        launch(role_.ops[static_cast<std::size_t>(o)]);
      }
    }
    note_loss();
    return std::move(actions_);
  }

 private:
  [[noreturn]] void fault(const std::string& what) const { refuse(tables_, rank_, instruction_, what); }
  const Buffer& buffer_of(const Operand& operand) const { return role_.buffers[operand.buffer.index()]; }
  TensorView view(BufferId buffer) { return tables_.view(rank_, buffer); }
  TensorView take(DType dtype, std::int64_t elements) {
    TensorView view = layout_.take(dtype, elements);
    view.data = scratch_ + reinterpret_cast<std::uintptr_t>(view.data);
    return view;
  }

  // ---- Without an op of the Graph.

  // What is written and holds the tensor of what is only read.
  void accumulate() {
    for (const Operand& target : operands_) {
      if (!target.writes) continue;
      for (const Operand& source : operands_) {
        if (source.writes || buffer_of(source).tensor != buffer_of(target).tensor) continue;
        actions_.emplace_back(Add{view(target.buffer), view(source.buffer)});
      }
    }
  }

  // The gradients' norm, or one activation in two types.
  void without_ops() {
    const auto reads_gradient = [&](const Operand& operand) {
      return !operand.writes && buffer_of(operand).category == MemoryCategory::kGradients;
    };
    if (!operands_.empty() && std::all_of(operands_.begin(), operands_.end(), reads_gradient)) return norm();
    if (operands_.size() != 2 || operands_[0].writes || !operands_[1].writes) {
      fault("does something that no op of the graph says");
    }
    actions_.emplace_back(Convert{view(operands_[1].buffer), view(operands_[0].buffer)});
  }

  void norm() {
    SumSquares sum;
    for (const Operand& operand : operands_) {
      const Elements own = tables_.divided(rank_)[operand.buffer.index()].own;
      if (own.size() == 0 || !tables_.counts(rank_, operand.buffer)) continue;
      TensorView part = view(operand.buffer);
      part.data += own.begin * size_bytes(part.dtype);
      part.elements = own.size();
      sum.parts.push_back(part);
    }
    sum.alone =
        std::none_of(role_.instructions.begin(), role_.instructions.end(), [](const Instruction& other) {
          return std::holds_alternative<Collective>(other.work) && other.operands.begin == other.operands.end;
        });
    actions_.emplace_back(std::move(sum));
  }

  void update() {
    Update update;
    for (const UpdateSegment& segment : update_segments(tables_, rank_, instruction_)) {
      // ZeRO 2: the gradient is a part of what the weights are whole of.
      const std::vector<Run> runs =
          runs_between(tables_.shard(rank_, segment.gradient), tables_.shard(rank_, segment.weights));
      for (const Run& run : runs) {
        const std::int64_t begin = std::max(run.to, segment.at);
        const std::int64_t end = std::min(run.to + run.count, segment.at + segment.count);
        if (begin >= end) continue;
        update.slices.push_back(slice(segment, begin, run.from + begin - run.to, end - begin));
      }
    }
    actions_.emplace_back(std::move(update));
  }

  UpdateSlice slice(const UpdateSegment& segment, std::int64_t gradient_at, std::int64_t weights_at,
                    std::int64_t count) {
    const auto part = [&](BufferId buffer, std::int64_t at) {
      TensorView of = view(buffer);
      return TensorView{of.data + at * size_bytes(of.dtype), of.dtype, count};
    };
    UpdateSlice slice;
    slice.gradient = part(segment.gradient, gradient_at);
    slice.weights = part(segment.weights, weights_at);
    auto* const state = reinterpret_cast<float*>(view(segment.state).data);
    const bool fp32 = slice.weights.dtype == DType::kFp32;
    float* const moments = fp32 ? state : state + segment.capacity;
    const std::int64_t at = segment.state_at + gradient_at - segment.at;
    slice.master = fp32 ? reinterpret_cast<float*>(slice.weights.data) : state + at;
    slice.first_moment = moments + at;
    slice.second_moment = moments + segment.capacity + at;
    slice.decays = graph_[role_.buffers[segment.weights.index()].tensor].shape.size() > 1;
    return slice;
  }

  // ---- Ops.

  // The operand that holds the tensor. A parameter and its gradient are told apart by category.
  std::optional<BufferId> find(TensorId tensor, bool writes) const {
    const Tensor& wanted = graph_[tensor];
    const bool gradient = wanted.kind == TensorKind::kParameterGradient;
    const TensorId held = gradient ? wanted.gradient_of : tensor;
    for (const Operand& operand : operands_) {
      const Buffer& buffer = buffer_of(operand);
      if (buffer.tensor != held || (buffer.category == MemoryCategory::kGradients) != gradient) continue;
      if (!writes || operand.writes) return operand.buffer;
    }
    return std::nullopt;
  }

  Shard piece(TensorId tensor, BufferId buffer) {
    return piece_of(graph_, tensor, tables_.shard(rank_, buffer), instruction_.piece,
                    instruction_.piece.segments);
  }

  void launch(OpId id) {
    const Op& op = graph_[id];
    if (attends(op) && instruction_.part % 2 == 1) {
      RunRingStep step;
      step.kind = op.kind;
      step.in_place = operands_[0].writes;
      local_.clear();
      note(op, buffer_of(operands_[0]).tensor, tables_.shard(rank_, operands_[0].buffer), false);
      step.view = local_.view();
      for (const Operand& operand : operands_) step.operands.push_back(view(operand.buffer));
      actions_.emplace_back(std::move(step));
    } else if (instruction_.part >= 0 && !attends(op)) {
      loss_part(op);
    } else {
      run(id, op);
    }
  }

  void loss_part(const Op& op) {
    RunLossPart part;
    part.part = instruction_.part;
    local_.clear();
    for (const Operand& operand : operands_) {
      fill_input(operand.buffer);
      note(op, buffer_of(operand).tensor, tables_.shard(rank_, operand.buffer), false);
      part.operands.push_back(view(operand.buffer));
    }
    part.view = local_.view();
    actions_.emplace_back(std::move(part));
  }

  void run(OpId id, const Op& op) {
    local_.clear();
    RunOp launch;
    launch.op = id;
    std::vector<Seen> inputs;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      inputs.push_back(input(op.inputs[i]));
      note(op, op.inputs[i], inputs.back().shard, attends(op) && (i == 1 || i == 2));
    }
    drop_bias(op, inputs);
    for (const Seen& seen : inputs) launch.inputs.push_back(seen.view);
    std::vector<Seen> outputs;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) outputs.push_back(output(op, i));
    for (const Seen& seen : outputs) launch.outputs.push_back(seen.view);
    launch.view = local_.view();
    launch.view.first_keys = instruction_.part <= 0;
    actions_.emplace_back(std::move(launch));
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (outputs[i].buffer.valid() && instruction_.piece.of > 1 &&
          outputs[i].view.data != view(outputs[i].buffer).data) {
        move(view(outputs[i].buffer), outputs[i].view,
             runs_between(tables_.shard(rank_, outputs[i].buffer), outputs[i].shard));
      }
      made_[op.outputs[i]] = std::move(outputs[i]);
    }
  }

  Seen input(TensorId tensor) {
    if (const auto made = made_.find(tensor); made != made_.end()) return made->second;
    const auto buffer = find(tensor, false);
    if (!buffer) fault("reads " + graph_[tensor].name + ", which is none of its operands");
    fill_input(*buffer);
    Seen seen = {view(*buffer), tables_.shard(rank_, *buffer), *buffer};
    if (instruction_.piece.of == 1) return seen;
    Shard wanted = piece(tensor, *buffer);
    if (wanted.indices == seen.shard.indices) return seen;
    const TensorView part = take(seen.view.dtype, static_cast<std::int64_t>(wanted.size()));
    move(part, seen.view, runs_between(wanted, seen.shard));
    return {part, std::move(wanted), *buffer};
  }

  void move(const TensorView& to, const TensorView& from, const std::vector<Run>& runs) {
    const std::int64_t width = size_bytes(to.dtype);
    for (const Run& run : runs) {
      actions_.emplace_back(
          CopyBytes{to.data + run.to * width, from.data + run.from * width, run.count * width});
    }
  }

  // Token ids, labels and what no gradient changes.
  void fill_input(BufferId id) {
    const Buffer& buffer = role_.buffers[id.index()];
    const TensorKind kind = graph_[buffer.tensor].kind;
    if (kind == TensorKind::kBuffer)
      actions_.emplace_back(Zero{view(id)});  // A balancing bias before it has moved.
    if (kind != TensorKind::kInput) return;
    const std::int32_t first =
        program_.first_microbatch.empty() ? 0 : program_.first_microbatch[rank_.index()];
    actions_.emplace_back(
        FillInput{view(id), buffer.tensor, first + buffer.microbatch,
                  runs_between(tables_.shard(rank_, id), whole(graph_, program_, buffer.tensor))});
  }

  Seen output(const Op& op, std::size_t i) {
    const TensorId tensor = op.outputs[i];
    const auto buffer = find(tensor, true);
    Seen seen;
    if (!buffer) {
      for (const DimId dim : graph_[tensor].shape) seen.shard.indices.push_back(local_.indices(dim));
      const bool sum = graph_[tensor].kind == TensorKind::kParameterGradient;
      seen.view =
          take(sum ? DType::kFp32 : graph_[tensor].dtype, static_cast<std::int64_t>(seen.shard.size()));
      if (sum) actions_.emplace_back(Zero{seen.view});
      return seen;
    }
    seen.buffer = *buffer;
    seen.shard = piece(tensor, *buffer);
    seen.view = view(*buffer);
    note(op, tensor, seen.shard, op.kind == OpKind::kAttentionGrad && (i == 1 || i == 2));
    if (graph_[tensor].kind == TensorKind::kParameterGradient) {
      // Gradients of parameters are sums; each begins with its first writer.
      if (!begun_[buffer->index()]) actions_.emplace_back(Zero{seen.view});
      begun_[buffer->index()] = true;
    } else if (instruction_.piece.of > 1 && seen.shard.indices != tables_.shard(rank_, *buffer).indices) {
      seen.view = take(seen.view.dtype, static_cast<std::int64_t>(seen.shard.size()));
    }
    return seen;
  }

  // Where a contracted dimension is divided the result is a partial sum, and only the first rank brings the
  // bias.
  void drop_bias(const Op& op, std::vector<Seen>& inputs) {
    if (op.kind != OpKind::kMatmul || !op.attributes.bias ||
        adds_bias(graph_, program_, op, placement_of(inputs[1]), tables_.at(rank_)))
      return;
    for (std::size_t i = 1 + op.outputs.size(); i < inputs.size(); ++i) {
      inputs[i].view = take(inputs[i].view.dtype, inputs[i].view.elements);
      actions_.emplace_back(Zero{inputs[i].view});
    }
  }
  PlacementId placement_of(const Seen& seen) const {
    return seen.buffer.valid() ? role_.buffers[seen.buffer.index()].placement : PlacementId();
  }

  void note(const Op& op, TensorId tensor, const Shard& shard, bool keys) {
    const std::string wrong = local_.note(op, tensor, shard, keys);
    if (!wrong.empty()) fault(wrong);
  }

  // The mean loss of a micro-batch, once its last part is there.
  void note_loss() {
    if (instruction_.part >= 0 && instruction_.part < 2) return;
    for (const Operand& operand : operands_) {
      const Buffer& buffer = buffer_of(operand);
      const Tensor& tensor = graph_[buffer.tensor];
      if (!operand.writes || !tensor.shape.empty() || !tensor.producer.valid() ||
          graph_[tensor.producer].kind != OpKind::kCrossEntropy) {
        continue;
      }
      actions_.emplace_back(NoteLoss{view(operand.buffer), buffer.microbatch});
    }
  }

  Tables& tables_;
  const Graph& graph_;
  const Program& program_;
  RankId rank_;
  const Role& role_;
  const Instruction& instruction_;
  const std::vector<Operand> operands_;
  std::byte* scratch_;
  LaunchScratch& layout_;
  std::vector<bool>& begun_;
  std::vector<Action> actions_;
  std::map<TensorId, Seen> made_;
  LocalView local_;
};

}  // namespace

TensorView LaunchScratch::take(DType dtype, std::int64_t elements) {
  TensorView view;
  view.data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(used_));
  view.dtype = dtype;
  view.elements = elements;
  used_ += (elements * size_bytes(dtype) + 63) / 64 * 64;
  largest_ = std::max(largest_, used_);
  return view;
}

std::vector<Action> bind_compute(Tables& tables, RankId rank, std::int32_t instruction, std::byte* scratch,
                                 LaunchScratch& layout, std::vector<bool>& begun) {
  return ComputeBinder(tables, rank, instruction, scratch, layout, begun).bind();
}

}  // namespace orrery::host
