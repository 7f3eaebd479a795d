#include "executor/host/step.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "executor/host/step_parts.hpp"

namespace orrery::host {
namespace {

// How far two sums of the same terms in another order may lie apart, relative to their size.
constexpr double kRounding = 1e-9;

class Step {
 public:
  Step(const Graph& graph, const Program& program, const StepInput& input)
      : graph_(graph), program_(program), input_(input) {
    const auto at = coordinates(program);
    for (std::int32_t r = 0; r < program.world_size(); ++r) {
      if (!program.role_of[static_cast<std::size_t>(r)].valid()) continue;
      std::vector<Coordinate> here;
      for (const auto& axis : at) here.push_back(axis[static_cast<std::size_t>(r)]);
      Rank& rank = ranks_.emplace_back(RankState(graph, program, RankId(r), std::move(here)));
      rank.done.assign(rank.state.role().instructions.size(), false);
      rank.streams.resize(rank.state.role().streams.size());
      for (std::size_t i = 0; i < rank.done.size(); ++i) {
        rank.streams[rank.state.role().instructions[i].stream.index()].push_back(i);
      }
      rank.next.assign(rank.streams.size(), 0);
      number_meetings(rank);
      fill(rank);
    }
  }

  StepResult run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (Rank& rank : ranks_) progress = advance(rank) || progress;
    }
    for (const Rank& rank : ranks_) {
      const auto waiting = std::find(rank.done.begin(), rank.done.end(), false);
      if (waiting == rank.done.end()) continue;
      const auto index = static_cast<std::size_t>(waiting - rank.done.begin());
      fail(ErrorKind::kRuntime, "rank {}: {} waits for ever", rank.state.rank().value,
           instruction_name(program_, rank.state.role().instructions[index]));
    }
    return collect();
  }

 private:
  struct Rank {
    explicit Rank(RankState&& made) : state(std::move(made)) {}
    RankState state;
    std::vector<bool> done;                         // By instruction.
    std::vector<bool> waiting;                      // By instruction: it has come to its meeting.
    std::vector<std::vector<std::size_t>> streams;  // By stream: its instructions.
    std::vector<std::size_t> next;                  // By stream.
    std::vector<std::int32_t> meeting;              // By instruction: its number among those of its kind.
  };
  // Axis, group, number; and for messages the positions of sender and receiver.
  using Meeting = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

  // The k-th collective on an axis meets the others' k-th; the k-th send to a rank its k-th receive from
  // here.
  void number_meetings(Rank& rank) {
    std::map<std::tuple<std::size_t, std::int32_t, std::int32_t>, std::int32_t> count;
    rank.waiting.assign(rank.done.size(), false);
    for (const Instruction& instruction : rank.state.role().instructions) {
      std::int32_t number = -1;
      if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
        number = count[{instruction.work.index(), collective->axis.value, 0}]++;
      } else if (const auto* const send = std::get_if<Send>(&instruction.work)) {
        number = count[{instruction.work.index(), send->axis.value, peer(rank, send->axis, send->offset)}]++;
      } else if (const auto* const recv = std::get_if<Recv>(&instruction.work)) {
        number = count[{instruction.work.index(), recv->axis.value, peer(rank, recv->axis, recv->offset)}]++;
      }
      rank.meeting.push_back(number);
    }
  }

  const std::vector<RankId>& group_of(const Rank& rank, AxisId axis) const {
    const Coordinate& here = rank.state.at()[axis.index()];
    return program_.axes[axis.index()].groups[static_cast<std::size_t>(here.group)];
  }

  std::int32_t peer(const Rank& rank, AxisId axis, std::int32_t offset) const {
    const auto size = static_cast<std::int32_t>(group_of(rank, axis).size());
    return ((rank.state.at()[axis.index()].position + offset) % size + size) % size;
  }

  // Weights from the caller; gradients are sums that begin at zero.
  void fill(Rank& rank) {
    const Role& role = rank.state.role();
    for (std::size_t b = 0; b < role.buffers.size(); ++b) {
      const BufferId id(static_cast<std::int64_t>(b));
      const Buffer& buffer = role.buffers[b];
      if (!buffer.persistent || !buffer.tensor.valid()) continue;
      Values values(rank.state.shard(id).size(), 0.0);
      if (buffer.category == MemoryCategory::kParameters) {
        values = part_of(input_.parameters[buffer.tensor.index()], buffer.tensor, rank.state.shard(id));
      }
      rank.state.store(id, values);
    }
  }

  // A rank's part of a whole tensor; padding is zero.
  Values part_of(const Values& whole, TensorId tensor, const Shard& shard) const {
    const std::vector<std::int64_t> sizes = whole_sizes(tensor);
    Values values;
    std::vector<std::size_t> at = positions_in_whole(shard, padded_sizes(tensor));
    for (const std::size_t position : at) {
      const std::int64_t index = unpadded(position, tensor, sizes);
      values.push_back(index < 0 ? 0.0 : whole[static_cast<std::size_t>(index)]);
    }
    return values;
  }

  std::vector<std::int64_t> padded_sizes(TensorId tensor) const {
    std::vector<std::int64_t> sizes;
    for (const DimId dim : graph_[tensor].shape) sizes.push_back(program_.sizes[dim.index()]);
    return sizes;
  }
  std::vector<std::int64_t> whole_sizes(TensorId tensor) const {
    std::vector<std::int64_t> sizes = padded_sizes(tensor);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t fixed = graph_[graph_[tensor].shape[d]].size;
      if (fixed > 0) sizes[d] = fixed;
    }
    return sizes;
  }
  // Position in the tensor without padding of a position with it; −1: it is padding.
  std::int64_t unpadded(std::size_t position, TensorId tensor, const std::vector<std::int64_t>& sizes) const {
    const std::vector<std::int64_t> padded = padded_sizes(tensor);
    auto rest = static_cast<std::int64_t>(position);
    std::int64_t index = 0, stride = 1;
    for (std::size_t d = padded.size(); d-- > 0; rest /= padded[d]) {
      const std::int64_t here = rest % padded[d];
      if (here >= sizes[d]) return -1;
      index += here * stride;
      stride *= sizes[d];
    }
    return index;
  }

  // ---- Running.

  bool advance(Rank& rank) {
    bool progress = false;
    for (std::size_t s = 0; s < rank.streams.size(); ++s) {
      while (rank.next[s] < rank.streams[s].size() && step(rank, rank.streams[s][rank.next[s]])) {
        ++rank.next[s];
        progress = true;
      }
    }
    return progress;
  }

  // Whether the instruction is done now.
  bool step(Rank& rank, std::size_t index) {
    if (rank.done[index]) return true;
    const Role& role = rank.state.role();
    const Instruction& instruction = role.instructions[index];
    for (std::int32_t e = instruction.after.begin; e < instruction.after.end; ++e) {
      const Edge& edge = role.edges[static_cast<std::size_t>(e)];
      if (!edge.previous_step && !rank.done[static_cast<std::size_t>(edge.instruction)]) return false;
    }
    if (std::holds_alternative<Compute>(instruction.work)) {
      read_inputs(rank, instruction);
      run_compute(graph_, program_, rank.state, instruction);
      note_loss(rank, instruction);
      rank.done[index] = true;
    } else if (std::holds_alternative<Copy>(instruction.work)) {
      rank.done[index] = true;
    } else if (!rank.waiting[index]) {
      rank.waiting[index] = true;
      meet(rank, index);
    }
    return rank.done[index];
  }

  void meet(Rank& rank, std::size_t index) {
    const Instruction& instruction = rank.state.role().instructions[index];
    const std::int32_t number = rank.meeting[index];
    if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
      const Coordinate& here = rank.state.at()[collective->axis.index()];
      auto& arrived = collectives_[{collective->axis.value, here.group, number, -1, -1}];
      arrived.emplace_back(&rank, index);
      if (arrived.size() == group_of(rank, collective->axis).size()) exchange(collective->axis, arrived);
      return;
    }
    const auto* const send = std::get_if<Send>(&instruction.work);
    const auto* const recv = std::get_if<Recv>(&instruction.work);
    const AxisId axis = send != nullptr ? send->axis : recv->axis;
    const std::int32_t other = peer(rank, axis, send != nullptr ? send->offset : recv->offset);
    const Coordinate& here = rank.state.at()[axis.index()];
    const std::int32_t from = send != nullptr ? here.position : other;
    const std::int32_t to = send != nullptr ? other : here.position;
    auto& posted = messages_[{axis.value, here.group, number, from, to}];
    if (!posted) {
      posted.emplace(&rank, index);
      return;
    }
    const auto [sender, sent] = send != nullptr ? std::pair(&rank, index) : *posted;
    const auto [receiver, received] = send != nullptr ? *posted : std::pair(&rank, index);
    const auto source = sender->state.operands(sender->state.role().instructions[sent]);
    const auto target = receiver->state.operands(receiver->state.role().instructions[received]);
    for (std::size_t o = 0; o < source.size(); ++o) {
      receiver->state.store(target[o].buffer, sender->state.load(source[o].buffer));
    }
    sender->done[sent] = receiver->done[received] = true;
  }

  void exchange(AxisId axis, const std::vector<std::pair<Rank*, std::size_t>>& arrived) {
    std::vector<Member> group(arrived.size());
    for (const auto& [rank, index] : arrived) {
      const auto position = static_cast<std::size_t>(rank->state.at()[axis.index()].position);
      group[position] = {&rank->state, &rank->state.role().instructions[index]};
    }
    run_collective(graph_, program_, group);
    for (const auto& [rank, index] : arrived) rank->done[index] = true;
  }

  std::int32_t global_microbatch(const Rank& rank, std::int32_t microbatch) const {
    if (program_.first_microbatch.empty()) return microbatch;
    return program_.first_microbatch[rank.state.rank().index()] + microbatch;
  }

  // Token ids, labels and what no gradient changes are there from the beginning: put where a reader looks for
  // them.
  void read_inputs(Rank& rank, const Instruction& instruction) {
    for (const Operand& operand : rank.state.operands(instruction)) {
      const Buffer& buffer = rank.state.role().buffers[operand.buffer.index()];
      const TensorKind kind = graph_[buffer.tensor].kind;
      if (kind != TensorKind::kInput && kind != TensorKind::kBuffer) continue;
      const Values whole = kind == TensorKind::kBuffer
                               ? input_.parameters[buffer.tensor.index()]
                               : input_.inputs(global_microbatch(rank, buffer.microbatch), buffer.tensor);
      rank.state.store(operand.buffer, part_of(whole, buffer.tensor, rank.state.shard(operand.buffer)));
    }
  }

  // ---- Results.

  // Ranks that hold other tokens of a micro-batch have other parts of its loss; those of one tensor-parallel
  // group the same.
  void note_loss(const Rank& rank, const Instruction& instruction) {
    for (const Operand& operand : rank.state.operands(instruction)) {
      const Buffer& buffer = rank.state.role().buffers[operand.buffer.index()];
      const Tensor& tensor = graph_[buffer.tensor];
      const bool is_loss = operand.writes && tensor.shape.empty() && tensor.producer.valid() &&
                           graph_[tensor.producer].kind == OpKind::kCrossEntropy;
      if (!is_loss || (instruction.part >= 0 && instruction.part < 2)) continue;
      std::vector<std::int32_t> key = {global_microbatch(rank, buffer.microbatch)};
      for (std::size_t a = 0; a < program_.axes.size(); ++a) {
        if (program_.axes[a].name == "cp") key.push_back(rank.state.at()[a].position);
      }
      losses_[key] = rank.state.load(operand.buffer)[0];
    }
  }

  StepResult collect() {
    StepResult result;
    for (const auto& [key, loss] : losses_) {
      const auto microbatch = static_cast<std::size_t>(key.front());
      if (result.losses.size() <= microbatch) result.losses.resize(microbatch + 1, 0.0);
      result.losses[microbatch] += loss;
    }
    result.gradients.resize(graph_.tensors.size());
    for (const Rank& rank : ranks_) {
      const Role& role = rank.state.role();
      for (std::size_t b = 0; b < role.buffers.size(); ++b) {
        const Buffer& buffer = role.buffers[b];
        if (!buffer.persistent || !buffer.tensor.valid() || buffer.category != MemoryCategory::kGradients)
          continue;
        merge(rank, BufferId(static_cast<std::int64_t>(b)), result.gradients[buffer.tensor.index()]);
      }
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const bool missing = std::any_of(result.gradients[t].begin(), result.gradients[t].end(),
                                       [](double value) { return std::isnan(value); });
      if (graph_.tensors[t].kind == TensorKind::kParameter && (missing || result.gradients[t].empty())) {
        fail(ErrorKind::kRuntime, "no rank ends with the whole gradient of {}", graph_.tensors[t].name);
      }
    }
    return result;
  }

  // Every rank that has an element has the same.
  void merge(const Rank& rank, BufferId id, Values& whole) const {
    const TensorId tensor = rank.state.role().buffers[id.index()].tensor;
    const std::vector<std::int64_t> sizes = whole_sizes(tensor);
    if (whole.empty()) {
      std::size_t count = 1;
      for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
      whole.assign(count, kNoValue);
    }
    const Values values = rank.state.load(id);
    const std::vector<std::size_t> at = positions_in_whole(rank.state.shard(id), padded_sizes(tensor));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t index = unpadded(at[i], tensor, sizes);
      if (index < 0 || std::isnan(values[i])) continue;
      double& known = whole[static_cast<std::size_t>(index)];
      if (std::isnan(known)) known = values[i];
      if (std::abs(known - values[i]) > kRounding * std::max(1.0, std::abs(known))) {
        fail(ErrorKind::kRuntime,
             "rank {} ends with {} for element {} of the gradient of {}, another rank with {}",
             rank.state.rank().value, values[i], index, graph_[tensor].name, known);
      }
    }
  }

  const Graph& graph_;
  const Program& program_;
  const StepInput& input_;
  std::vector<Rank> ranks_;
  std::map<Meeting, std::vector<std::pair<Rank*, std::size_t>>> collectives_;
  std::map<Meeting, std::optional<std::pair<Rank*, std::size_t>>> messages_;
  std::map<std::vector<std::int32_t>, double> losses_;
};

}  // namespace

StepResult run_step(const Graph& graph, const Program& program, const StepInput& input) {
  return Step(graph, program, input).run();
}

}  // namespace orrery::host
