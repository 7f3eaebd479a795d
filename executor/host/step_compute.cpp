// A compute instruction in double precision: binds the inputs and outputs of each op to the operands of the
// instruction, and to what the ops before it in the same launch have made.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "executor/host/local_view.hpp"
#include "executor/host/step_parts.hpp"

namespace orrery::host {
namespace {

struct Bound {
  Values values;
  Shard shard;
  BufferId buffer;  // Invalid: of this launch alone.
};

class Launch {
 public:
  Launch(const Graph& graph, const Program& program, RankState& rank, const Instruction& instruction)
      : graph_(graph),
        program_(program),
        rank_(rank),
        instruction_(instruction),
        operands_(rank.operands(instruction)),
        local_(graph, program) {}

  void run() {
    const KernelId kernel = std::get<Compute>(instruction_.work).kernel;
    if (program_.kernels[kernel.index()].kind == KernelKind::kAccumulate) accumulate();
    if (instruction_.ops.begin == instruction_.ops.end) return cast();
    for (std::int32_t o = instruction_.ops.begin; o < instruction_.ops.end; ++o) {
      const Op& op = graph_[rank_.role().ops[static_cast<std::size_t>(o)]];
      if (attends(op) && instruction_.part % 2 == 1) {
        add_ring_step(op, rank_, operands_);
      } else if (instruction_.part >= 0 && !attends(op)) {
        run_loss_part(op);
      } else {
        run(op);
      }
    }
  }

 private:
  [[noreturn]] void fault(const std::string& what) const {
    fail(ErrorKind::kRuntime, "rank {}, {}: {}", rank_.rank().value, instruction_name(program_, instruction_),
         what);
  }

  const Buffer& buffer_of(const Operand& operand) const {
    return rank_.role().buffers[operand.buffer.index()];
  }

  // The operand that holds the tensor. A parameter and its gradient are told apart by category.
  std::optional<BufferId> find(TensorId tensor, bool writes) const {
    const Tensor& wanted = graph_[tensor];
    const bool gradient = wanted.kind == TensorKind::kParameterGradient;
    const TensorId held = gradient ? wanted.gradient_of : tensor;
    std::optional<BufferId> found;
    for (const Operand& operand : operands_) {
      const Buffer& buffer = buffer_of(operand);
      if (buffer.tensor != held || (buffer.category == MemoryCategory::kGradients) != gradient) continue;
      if (writes && !operand.writes) continue;
      if (found) fault("holds " + wanted.name + " twice");
      found = operand.buffer;
    }
    return found;
  }

  Bound input(TensorId tensor) {
    if (const auto made = made_.find(tensor); made != made_.end()) return made->second;
    const auto buffer = find(tensor, false);
    if (!buffer) fault("reads " + graph_[tensor].name + ", which is none of its operands");
    Bound bound = {rank_.load(*buffer), rank_.shard(*buffer), *buffer};
    if (instruction_.piece.of > 1) {
      bound.shard = piece(tensor, *buffer);
      bound.values = picked(bound.values, bound.shard, rank_.shard(*buffer));
    }
    return bound;
  }

  // What the instruction works on of a buffer.
  Shard piece(TensorId tensor, BufferId buffer) const {
    return piece_of(graph_, tensor, rank_.shard(buffer), instruction_.piece, instruction_.piece.segments);
  }

  static Values picked(const Values& values, const Shard& wanted, const Shard& from) {
    Values found;
    for (const std::int64_t at : positions_in(wanted, from))
      found.push_back(values[static_cast<std::size_t>(at)]);
    return found;
  }

  void note(const Op& op, TensorId tensor, const Shard& shard, bool keys) {
    const std::string wrong = local_.note(op, tensor, shard, keys);
    if (!wrong.empty()) fault(wrong);
  }

  // Adds what is only read to what is written and holds the same tensor.
  void accumulate() {
    for (const Operand& target : operands_) {
      if (!target.writes) continue;
      Values sum = rank_.load(target.buffer);
      for (const Operand& source : operands_) {
        if (source.writes || buffer_of(source).tensor != buffer_of(target).tensor) continue;
        const Values values = rank_.load(source.buffer);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      rank_.store(target.buffer, sum);
    }
  }

  void run(const Op& op) {
    local_.clear();
    std::vector<Bound> inputs, outputs;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      inputs.push_back(input(op.inputs[i]));
      note(op, op.inputs[i], inputs.back().shard, attends(op) && (i == 1 || i == 2));
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const TensorId tensor = op.outputs[i];
      Bound& output = outputs.emplace_back();
      const auto buffer = find(tensor, true);
      if (buffer) {
        output.buffer = *buffer;
        output.shard = piece(tensor, *buffer);
        note(op, tensor, output.shard, op.kind == OpKind::kAttentionGrad && (i == 1 || i == 2));
      } else {
        for (const DimId dim : graph_[tensor].shape) output.shard.indices.push_back(local_.indices(dim));
      }
      output.values = Values(output.shard.size(), kNoValue);
      // Gradients of parameters are sums; one that doesn't outlive the step begins with its first writer.
      if (graph_[tensor].kind == TensorKind::kParameterGradient && buffer) {
        output.values = rank_.written(*buffer) ? rank_.load(*buffer) : Values(output.shard.size(), 0.0);
      }
    }
    if (op.kind == OpKind::kMatmul && op.attributes.bias &&
        !adds_bias(graph_, program_, op, placement_of(inputs[1]), rank_.at())) {
      for (std::size_t i = 1 + op.outputs.size(); i < inputs.size(); ++i) {
        std::fill(inputs[i].values.begin(), inputs[i].values.end(), 0.0);
      }
    }
    std::vector<Values*> in, out;
    for (Bound& bound : inputs) in.push_back(&bound.values);
    for (Bound& bound : outputs) out.push_back(&bound.values);
    OpView seen = local_.view();
    seen.first_keys = instruction_.part <= 0;
    run_op(graph_, op, seen, in, out);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (outputs[i].buffer.valid()) rank_.store(outputs[i].buffer, outputs[i].shard, outputs[i].values);
      made_[op.outputs[i]] = std::move(outputs[i]);
    }
  }

  PlacementId placement_of(const Bound& bound) const {
    return bound.buffer.valid() ? rank_.role().buffers[bound.buffer.index()].placement : PlacementId();
  }

  // Between two buffers of one activation: the same values in another type. What else the graph has no op for
  // (the optimiser) isn't run.
  void cast() {
    if (operands_.size() != 2) return;
    const Operand& from = operands_[0];
    const Operand& to = operands_[1];
    const bool same = buffer_of(from).tensor == buffer_of(to).tensor &&
                      buffer_of(from).category == MemoryCategory::kActivations &&
                      buffer_of(to).category == MemoryCategory::kActivations;
    if (same && !from.writes && to.writes) rank_.store(to.buffer, rank_.load(from.buffer));
  }

  // The loss over a divided vocabulary. Operands, in order: logits (, labels), maximum (, sum of
  // exponentials, label's logit) and what is written last.
  void run_loss_part(const Op& op) {
    std::vector<Values> values;
    for (const Operand& operand : operands_) values.push_back(rank_.load(operand.buffer));
    const auto store = [&](std::size_t operand) { rank_.store(operands_[operand].buffer, values[operand]); };
    for (const Operand& operand : operands_)
      note(op, buffer_of(operand).tensor, rank_.shard(operand.buffer), false);
    const OpView seen = local_.view();
    const Values& logits = values[0];
    if (instruction_.part == 0) {
      const std::size_t vocab = logits.size() / values[1].size();
      for (std::size_t t = 0; t < values[1].size(); ++t) {
        values[1][t] = -std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < vocab; ++i) {
          if (counts(seen, i)) values[1][t] = std::max(values[1][t], logits[t * vocab + i]);
        }
      }
      store(1);
    } else if (instruction_.part == 1) {
      const std::size_t vocab = logits.size() / values[1].size();
      for (std::size_t t = 0; t < values[1].size(); ++t) {
        values[3][t] = values[4][t] = 0;
        for (std::size_t i = 0; i < vocab; ++i) {
          if (!counts(seen, i)) continue;
          values[3][t] += std::exp(logits[t * vocab + i] - values[2][t]);
          const bool is_label =
              static_cast<double>(seen.vocab_begin) + static_cast<double>(i) == values[1][t];
          if (is_label) values[4][t] = logits[t * vocab + i];
        }
      }
      store(3);
      store(4);
    } else {
      values[3][0] = 0;
      for (std::size_t t = 0; t < values[0].size(); ++t) {
        values[4][t] = values[0][t] + std::log(values[1][t]);
        values[3][0] += (values[4][t] - values[2][t]) / static_cast<double>(seen.loss_tokens);
      }
      store(3);
      store(4);
    }
  }

  static bool counts(const OpView& view, std::size_t entry) {
    return view.vocab_begin + static_cast<std::int64_t>(entry) < view.vocab;
  }

  const Graph& graph_;
  const Program& program_;
  RankState& rank_;
  const Instruction& instruction_;
  const std::vector<Operand> operands_;
  std::map<TensorId, Bound> made_;
  LocalView local_;
};

}  // namespace

void run_compute(const Graph& graph, const Program& program, RankState& rank,
                 const Instruction& instruction) {
  Launch(graph, program, rank, instruction).run();
}

}  // namespace orrery::host
