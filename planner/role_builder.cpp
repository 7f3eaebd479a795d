#include "planner/role_builder.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <tuple>

#include "planner/role_gradients.hpp"
#include "planner/role_writer.hpp"

namespace orrery {
namespace {

bool is_forward(const Pass& pass) { return pass.kind == PassKind::kForward; }
bool adds_weight_gradients(const Pass& pass) {
  return pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardWeight;
}

// What a message is for: the pass of this rank that reads it, whole or split backward alike.
using Reader = std::tuple<bool, std::int32_t, std::int32_t>;  // Forward, chunk, micro-batch.

class RoleBuilder {
 public:
  RoleBuilder(const Plan& plan, const std::vector<StageTemplate>& stages, const RoleShape& shape,
              SymbolTable& symbols)
      : stages_(stages),
        shape_(shape),
        schedule_(*shape.schedule),
        passes_(schedule_.passes[static_cast<std::size_t>(shape.position)]),
        out_(symbols),
        gradients_(plan, shape, out_, add_parameters()) {}

  Role build() {
    microbatch_buffers_.resize(stages_.size() * static_cast<std::size_t>(shape_.microbatches));
    ready_input_.assign(passes_.size(), -1);
    reserve();
    find_ends();
    find_messages();
    for (std::size_t i = 0; i < passes_.size();) {
      const bool pair = passes_[i].overlaps_next && i + 1 < passes_.size();
      const std::size_t count = pair ? 2 : 1;
      // The next inputs may arrive while this pass computes: one buffer ahead.
      for (std::size_t j = i; j <= i + count && j < passes_.size(); ++j) receive_for(j);
      run(i, count);
      i += count;
    }
    gradients_.finish();
    return std::move(out_.role);
  }

 private:
  // ---- Buffers.

  // The chunks' persistent buffers, as the role's. A tied table that two chunks use is held once.
  std::vector<RoleParameter> add_parameters() {
    std::vector<RoleParameter> parameters;
    persistent_.resize(stages_.size());
    for (std::size_t c = 0; c < stages_.size(); ++c) {
      const StageTemplate& stage = stages_[c];
      persistent_[c].assign(stage.persistent_buffers.size(), -1);
      for (const TemplateParameter& held : stage.parameters) {
        const auto known =
            std::find_if(parameters.begin(), parameters.end(),
                         [&](const RoleParameter& other) { return other.tensor == held.tensor; });
        const bool is_new = known == parameters.end();
        RoleParameter& parameter = is_new ? parameters.emplace_back() : *known;
        if (is_new) {
          parameter.tensor = held.tensor;
          parameter.block = parameter.last_block = held.block;
          parameter.elements = held.elements;
          const auto& axes = held.of_expert ? shape_.expert_gradient : shape_.gradient;
          parameter.axis = axes[c][static_cast<std::size_t>(held.block - shape_.chunks[c].first)];
          parameter.degree = held.of_expert ? shape_.expert_gradient_degree : shape_.gradient_degree;
          parameter.weights = add_persistent(stage, held.weights);
          parameter.gradient = add_persistent(stage, held.gradient);
        }
        parameter.block = std::min(parameter.block, held.block);
        parameter.last_block = std::max(parameter.last_block, held.block);
        parameter.partial = parameter.partial || held.partial;
        parameter.tied = held.tied;
        parameter.of_expert = held.of_expert;
        parameter.ready.emplace_back(static_cast<std::int32_t>(c), ready_position(held, c));
        persistent_[c][static_cast<std::size_t>(held.weights)] = parameter.weights;
        persistent_[c][static_cast<std::size_t>(held.gradient)] = parameter.gradient;
      }
    }
    return parameters;
  }

  std::int32_t add_persistent(const StageTemplate& stage, std::int32_t buffer) {
    out_.role.buffers.push_back(stage.persistent_buffers[static_cast<std::size_t>(buffer)]);
    return static_cast<std::int32_t>(std::ssize(out_.role.buffers) - 1);
  }

  // In the list of the chunk's last pass. What the pass's list doesn't add to is there before it begins.
  std::int32_t ready_position(const TemplateParameter& held, std::size_t chunk) const {
    const auto last = std::find_if(passes_.rbegin(), passes_.rend(), [&](const Pass& pass) {
      return static_cast<std::size_t>(pass.chunk) == chunk && adds_weight_gradients(pass);
    });
    return std::max(held.ready[static_cast<std::size_t>(last->kind)], 0);
  }

  void reserve() {
    std::size_t instructions = 64, buffers = out_.role.buffers.size() + 64;
    for (const Pass& pass : passes_) {
      const StageTemplate& stage = stages_[static_cast<std::size_t>(pass.chunk)];
      instructions += stage.lists[static_cast<std::size_t>(pass.kind)].size() + 2;
      if (is_forward(pass)) buffers += stage.microbatch_buffers.size();
    }
    out_.role.instructions.reserve(instructions);
    out_.role.edges.reserve(2 * instructions);
    out_.role.operands.reserve(5 * instructions);
    out_.role.ops.reserve(2 * instructions);
    out_.role.buffers.reserve(buffers);
  }

  std::size_t slot(std::int32_t chunk, std::int32_t microbatch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(shape_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }

  std::int32_t microbatch_buffer(std::int32_t chunk, std::int32_t microbatch, std::int32_t buffer) {
    const auto handed = handed_.find({chunk, microbatch, buffer});
    if (handed != handed_.end()) return handed->second;
    const StageTemplate& stage = stages_[static_cast<std::size_t>(chunk)];
    std::vector<std::int32_t>& known = microbatch_buffers_[slot(chunk, microbatch)];
    known.resize(stage.microbatch_buffers.size(), -1);
    std::int32_t& made = known[static_cast<std::size_t>(buffer)];
    if (made < 0) {
      made = static_cast<std::int32_t>(std::ssize(out_.role.buffers));
      out_.role.buffers.push_back(stage.microbatch_buffers[static_cast<std::size_t>(buffer)]);
      out_.role.buffers.back().microbatch = microbatch;
    }
    return made;
  }

  // ---- Messages.

  // The first forward and the last pass with weight gradients of each chunk.
  void find_ends() {
    first_.assign(stages_.size(), passes_.size());
    last_.assign(stages_.size(), passes_.size());
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(passes_[i].chunk);
      if (is_forward(passes_[i]) && first_[chunk] == passes_.size()) first_[chunk] = i;
      if (adds_weight_gradients(passes_[i])) last_[chunk] = i;
    }
  }

  // Messages of each neighbour to this rank, in the order in which they are sent: receives are posted in that
  // order, so that the k-th send meets the k-th receive.
  void find_messages() {
    std::map<Reader, std::size_t> reader;
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      if (passes_[i].kind != PassKind::kBackwardWeight) {
        reader[{is_forward(passes_[i]), passes_[i].chunk, passes_[i].microbatch}] = i;
      }
    }
    source_.assign(passes_.size(), -1);
    for (std::int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) {
      std::vector<std::size_t>& from = incoming_.emplace_back();
      if (rank == shape_.position) continue;
      for (const Pass& sent : schedule_.passes[static_cast<std::size_t>(rank)]) {
        const std::optional<StagePlace> to = destination_of(schedule_, rank, sent);
        if (!to || to->rank != shape_.position) continue;
        const std::size_t reading = reader.at({is_forward(sent), to->chunk, sent.microbatch});
        source_[reading] = rank;
        from.push_back(reading);
      }
    }
    posted_.assign(incoming_.size(), 0);
  }

  // Position of a neighbour relative to this rank's; the pipeline's ends are neighbours too.
  std::int32_t offset_to(std::int32_t rank) const {
    const std::int32_t offset = rank - shape_.position, ranks = schedule_.shape.ranks;
    if (offset > 1) return offset - ranks;
    return offset < -1 ? offset + ranks : offset;
  }

  // Posts the receive of a pass, and those of messages that its neighbour sends before.
  void receive_for(std::size_t reading) {
    if (source_[reading] < 0 || ready_input_[reading] >= 0) return;
    const auto source = static_cast<std::size_t>(source_[reading]);
    while (ready_input_[reading] < 0) {
      const std::size_t next = incoming_[source][posted_[source]++];
      ready_input_[next] = receive(passes_[next], source_[reading]);
    }
  }

  std::int32_t receive(const Pass& pass, std::int32_t source) {
    const StageTemplate& stage = stages_[static_cast<std::size_t>(pass.chunk)];
    const bool forward = is_forward(pass);
    const std::int32_t offset = offset_to(source);
    Instruction& instruction = out_.open(forward ? "forward.recv" : "backward.recv",
                                         offset < 0 ? kRecvPrevious : kRecvNext, Purpose::kPipeline);
    instruction.layer = stages_.size() > 1 ? shape_.chunks[static_cast<std::size_t>(pass.chunk)].first : -1;
    instruction.microbatch = pass.microbatch;
    instruction.work = Recv{shape_.pipeline, offset, forward ? stage.input_bytes : stage.output_bytes};
    out_.after(out_.last_compute());
    out_.touch(microbatch_buffer(pass.chunk, pass.microbatch,
                                 forward ? stage.input_buffer : stage.output_gradient_buffer),
               true);
    return out_.close();
  }

  // Hands the pass's result on: to a neighbour, or to another chunk of this rank.
  void deliver(std::size_t index, std::int32_t ready) {
    const Pass& pass = passes_[index];
    const std::optional<StagePlace> to = destination_of(schedule_, shape_.position, pass);
    if (!to) return;
    const StageTemplate& stage = stages_[static_cast<std::size_t>(pass.chunk)];
    const std::int32_t buffer = microbatch_buffer(pass.chunk, pass.microbatch,
                                                  stage.sent_buffer[static_cast<std::size_t>(pass.kind)]);
    const bool forward = is_forward(pass);
    if (to->rank == shape_.position) {
      const StageTemplate& reader = stages_[static_cast<std::size_t>(to->chunk)];
      handed_[{to->chunk, pass.microbatch, forward ? reader.input_buffer : reader.output_gradient_buffer}] =
          buffer;
      const auto reading = std::find_if(passes_.begin(), passes_.end(), [&](const Pass& other) {
        return other.chunk == to->chunk && other.microbatch == pass.microbatch &&
               is_forward(other) == forward && other.kind != PassKind::kBackwardWeight;
      });
      ready_input_[static_cast<std::size_t>(reading - passes_.begin())] = ready;
      return;
    }
    const std::int32_t offset = offset_to(to->rank);
    Instruction& instruction = out_.open(forward ? "forward.send" : "backward.send",
                                         offset < 0 ? kSendPrevious : kSendNext, Purpose::kPipeline);
    instruction.layer = stages_.size() > 1 ? shape_.chunks[static_cast<std::size_t>(pass.chunk)].first : -1;
    instruction.microbatch = pass.microbatch;
    instruction.work = Send{shape_.pipeline, offset, forward ? stage.output_bytes : stage.input_bytes};
    out_.after(ready);
    out_.touch(buffer, false);
    out_.close();
  }

  // ---- Passes.

  // Runs passes [index, index + count): two that overlap take turns, launch by launch, so that the one
  // computes while the other communicates.
  void run(std::size_t index, std::size_t count) {
    std::array<std::size_t, 2> done{};
    const auto size = [&](std::size_t p) { return list(index + p).size(); };
    for (std::size_t p = 0; p < count; ++p) placed_[p].resize(size(p));
    while (true) {
      std::size_t next = count;
      for (std::size_t p = 0; p < count; ++p) {
        if (done[p] == size(p)) continue;
        // The one that is less far gone; the first on a tie.
        if (next == count || done[p] * size(next) < done[next] * size(p)) next = p;
      }
      if (next == count) break;
      for (bool more = true; more;) {
        more = list(index + next)[done[next]].with_next;
        issue(index + next, done[next]++, placed_[next]);
      }
    }
    for (std::size_t p = 0; p < count; ++p) {
      const StageTemplate& stage = stages_[static_cast<std::size_t>(passes_[index + p].chunk)];
      const std::int32_t ready = stage.sent_ready[static_cast<std::size_t>(passes_[index + p].kind)];
      deliver(index + p, ready < 0 ? -1 : placed_[p][static_cast<std::size_t>(ready)]);
    }
  }

  const std::vector<TemplateInstruction>& list(std::size_t index) const {
    const Pass& pass = passes_[index];
    return stages_[static_cast<std::size_t>(pass.chunk)].lists[static_cast<std::size_t>(pass.kind)];
  }

  void issue(std::size_t index, std::size_t position, std::vector<std::int32_t>& placed) {
    const Pass& pass = passes_[index];
    const auto chunk = static_cast<std::size_t>(pass.chunk);
    const TemplateInstruction& planned = list(index)[position];
    out_.open(planned, pass.microbatch);
    for (const std::int32_t dependency : planned.after) {
      out_.after(placed[static_cast<std::size_t>(dependency)]);
    }
    if (planned.reads_input) out_.after(ready_input_[index]);
    if (index == first_[chunk]) gradients_.await_parameters(planned.new_blocks, position == 0);
    for (const TemplateOperand& operand : planned.operands) {
      out_.touch(operand.persistent ? persistent_[chunk][static_cast<std::size_t>(operand.buffer)]
                                    : microbatch_buffer(pass.chunk, pass.microbatch, operand.buffer),
                 operand.writes);
    }
    placed[position] = out_.close();
    if (index == last_[chunk]) {
      gradients_.passed(pass.chunk, static_cast<std::int32_t>(position), placed[position]);
    }
  }

  const std::vector<StageTemplate>& stages_;
  const RoleShape& shape_;
  const Schedule& schedule_;
  const std::vector<Pass>& passes_;
  RoleWriter out_;
  std::vector<std::vector<std::int32_t>> persistent_;  // By chunk and template buffer: the role's.
  RoleGradients gradients_;
  // By chunk and micro-batch, then by buffer of the template: the role's; −1: not used yet.
  std::vector<std::vector<std::int32_t>> microbatch_buffers_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t>
      handed_;                                       // From another chunk.
  std::vector<std::size_t> first_, last_;            // By chunk.
  std::vector<std::int32_t> source_;                 // By pass: who sends its input; −1: nobody.
  std::vector<std::int32_t> ready_input_;            // By pass: the instruction that brings its input.
  std::vector<std::vector<std::size_t>> incoming_;   // By rank of the pipeline: the passes it sends to.
  std::vector<std::size_t> posted_;                  // How many of them have their receive.
  std::array<std::vector<std::int32_t>, 2> placed_;  // Template index → instruction, of what runs now.
};

}  // namespace

Role build_role(const Plan& plan, const std::vector<StageTemplate>& stages, const RoleShape& shape,
                SymbolTable& symbols) {
  return RoleBuilder(plan, stages, shape, symbols).build();
}

}  // namespace orrery
