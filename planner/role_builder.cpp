#include "planner/role_builder.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <tuple>

#include "planner/role_gathers.hpp"
#include "planner/role_gradients.hpp"
#include "planner/role_optimizer.hpp"
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
              const StateShards& shards, SymbolTable& symbols)
      : stages_(stages),
        shape_(shape),
        schedule_(*shape.schedule),
        passes_(schedule_.passes[static_cast<std::size_t>(shape.position)]),
        out_(symbols),
        state_(make_state(plan, shards)),
        gradients_(state_, shape.microbatches),
        optimizer_(state_),
        gathers_(state_, optimizer_) {}

  Role build() {
    microbatch_buffers_.resize(stages_.size() * static_cast<std::size_t>(shape_.microbatches));
    ready_input_.assign(passes_.size(), -1);
    reserve();
    find_ends();
    find_messages();
    if (state_.plan.zero_stage >= 3) expect_parameters();
    for (std::size_t i = 0; i < passes_.size();) {
      const std::size_t count = together(i);
      // The next inputs may arrive while this pass computes: one buffer ahead.
      for (std::size_t j = i; j <= i + count && j < passes_.size(); ++j) receive_for(j);
      run(i, count);
      i += count;
    }
    gradients_.finish(shape_.tensor, shape_.embedding);
    optimizer_.finish(shape_.world, gradients_);
    return std::move(out_.role);
  }

 private:
  // ---- Buffers.

  RoleDraft make_state(const Plan& plan, const StateShards& shards) {
    RoleDraft state{plan, out_, add_parameters(plan, shards), {}};
    state.buckets = make_buckets(plan, state.parameters);
    return state;
  }

  // The chunks' persistent buffers, as the role's. A tied table that two chunks use is held once.
  std::vector<RoleParameter> add_parameters(const Plan& plan, const StateShards& shards) {
    std::vector<RoleParameter> parameters;
    persistent_.resize(stages_.size());
    for (std::size_t c = 0; c < stages_.size(); ++c) {
      const StageTemplate& stage = stages_[c];
      persistent_[c].resize(stage.persistent_buffers.size());
      for (const TemplateParameter& held : stage.parameters) {
        const auto known =
            std::find_if(parameters.begin(), parameters.end(),
                         [&](const RoleParameter& other) { return other.tensor == held.tensor; });
        const auto p = static_cast<std::size_t>(known - parameters.begin());
        if (known == parameters.end()) {
          parameters.push_back(add_parameter(plan, shards, c, held, parameters));
        }
        RoleParameter& parameter = parameters[p];
        parameter.block = std::min(parameter.block, held.block);
        parameter.last_block = std::max(parameter.last_block, held.block);
        parameter.partial = parameter.partial || held.partial;
        GradientUse& use = parameter.uses.emplace_back();
        use.chunk = static_cast<std::int32_t>(c);
        use.block = held.block;
        for (std::size_t kind = 0; kind < kPassKindCount; ++kind)
          use.position[kind] = std::max(held.ready[kind], 0);
        persistent_[c][static_cast<std::size_t>(held.weights)] = {p, false};
        persistent_[c][static_cast<std::size_t>(held.gradient)] = {p, true};
      }
    }
    return parameters;
  }

  RoleParameter add_parameter(const Plan& plan, const StateShards& shards, std::size_t chunk,
                              const TemplateParameter& held, const std::vector<RoleParameter>& earlier) {
    const StageTemplate& stage = stages_[chunk];
    const BlockReductions& reductions = held.of_expert ? shape_.expert_gradient : shape_.gradient;
    RoleParameter parameter;
    parameter.tensor = held.tensor;
    parameter.block = parameter.last_block = held.block;
    parameter.elements = held.elements;
    parameter.axes = reductions[chunk][static_cast<std::size_t>(held.block - shape_.chunks[chunk].first)];
    parameter.tied = held.tied;
    parameter.of_expert = held.of_expert;
    parameter.whole_weights = stage.persistent_buffers[static_cast<std::size_t>(held.weights)];
    parameter.whole_gradient = stage.persistent_buffers[static_cast<std::size_t>(held.gradient)];
    if (shards_gradients(plan, parameter.axes))
      parameter.shard = shards.of(held.tensor, parameter.axes.shard);
    const auto add = [&](const Buffer& whole, bool divided) {
      Buffer buffer = whole;
      // Parts of what is divided are no columns of one matrix.
      if (divided || !whole.behind.valid()) {
        buffer.behind = {};
      } else {
        const Held& before = persistent_[chunk][whole.behind.index()];
        const RoleParameter& its = earlier[before.parameter];
        buffer.behind = BufferId(before.gradient ? its.gradient : its.weights);
      }
      if (divided) {
        buffer.placement = parameter.shard.placement;
        buffer.bytes = whole.bytes / parameter.elements * parameter.shard.elements;
      }
      out_.role.buffers.push_back(buffer);
      return static_cast<std::int32_t>(std::ssize(out_.role.buffers) - 1);
    };
    parameter.weights = add(parameter.whole_weights, shards_parameters(plan, parameter.axes));
    parameter.gradient = add(parameter.whole_gradient, shards_gradients(plan, parameter.axes));
    return parameter;
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
      Buffer of_role = stage.microbatch_buffers[static_cast<std::size_t>(buffer)];
      of_role.microbatch = microbatch;
      for (BufferId* const other : {&of_role.behind, &of_role.in_place_of}) {  // Which may be made only now.
        if (other->valid()) *other = BufferId(microbatch_buffer(chunk, microbatch, other->value));
      }
      made = static_cast<std::int32_t>(std::ssize(out_.role.buffers));
      out_.role.buffers.push_back(of_role);
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

  // How many passes from here run together.
  std::size_t together(std::size_t index) const {
    return passes_[index].overlaps_next && index + 1 < passes_.size() ? 2 : 1;
  }

  // The launches of passes [index, index + count) in their order: two passes that overlap take turns, launch
  // by launch, so that the one computes while the other communicates. Visits (pass − index, position).
  template <class Visit>
  void in_turn(std::size_t index, std::size_t count, Visit visit) const {
    std::array<std::size_t, 2> done{};
    const auto size = [&](std::size_t p) { return list(index + p).size(); };
    while (true) {
      std::size_t next = count;
      for (std::size_t p = 0; p < count; ++p) {
        if (done[p] == size(p)) continue;
        // The one that is less far gone; the first on a tie.
        if (next == count || done[p] * size(next) < done[next] * size(p)) next = p;
      }
      if (next == count) break;
      // What has to stay together does: a message sent and the one received beside it.
      for (bool more = true; more;) {
        more = list(index + next)[done[next]].with_next;
        visit(next, done[next]++);
      }
    }
  }

  void run(std::size_t index, std::size_t count) {
    for (std::size_t p = 0; p < count; ++p) placed_[p].resize(list(index + p).size());
    in_turn(index, count,
            [&](std::size_t p, std::size_t position) { issue(index + p, position, placed_[p]); });
    for (std::size_t p = 0; p < count; ++p) {
      const StageTemplate& stage = stages_[static_cast<std::size_t>(passes_[index + p].chunk)];
      const std::int32_t ready = stage.sent_ready[static_cast<std::size_t>(passes_[index + p].kind)];
      deliver(index + p, ready < 0 ? -1 : placed_[p][static_cast<std::size_t>(ready)]);
    }
  }

  // What the launch reads of gathered parameters.
  template <class Visit>
  void each_gathered(std::size_t index, const TemplateInstruction& planned, Visit visit) const {
    const auto chunk = static_cast<std::size_t>(passes_[index].chunk);
    for (const TemplateOperand& operand : planned.operands) {
      if (!operand.persistent) continue;
      const Held& held = persistent_[chunk][static_cast<std::size_t>(operand.buffer)];
      if (!held.gradient && gathers_.holds(held.parameter)) visit(held.parameter);
    }
  }

  void expect_parameters() {
    for (std::size_t i = 0; i < passes_.size(); i += together(i)) {
      in_turn(i, together(i), [&](std::size_t p, std::size_t position) {
        const TemplateInstruction& planned = list(i + p)[position];
        each_gathered(i + p, planned, [&](std::size_t parameter) {
          gathers_.expect(i + p, passes_[i + p], parameter, planned.layer);
        });
      });
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
    std::vector<std::int32_t> gathers;
    each_gathered(index, planned,
                  [&](std::size_t parameter) { gathers.push_back(gathers_.enter(index, parameter)); });
    const std::size_t first_edge = out_.role.edges.size();
    out_.open(planned, pass.microbatch);
    for (const std::int32_t dependency : planned.after) {
      out_.after(placed[static_cast<std::size_t>(dependency)]);
    }
    if (planned.reads_input) out_.after(ready_input_[index]);
    for (const std::int32_t gather : gathers) out_.after(gather);
    if (index == first_[chunk]) optimizer_.await_parameters(planned.new_blocks, position == 0);
    await_earlier_passes(index, planned, first_edge);
    for (const TemplateOperand& operand : planned.operands) {
      out_.touch(buffer_of(index, operand), operand.writes);
    }
    placed[position] = out_.close();
    note_writes(index, planned, placed[position]);
    if (adds_weight_gradients(pass)) {
      gradients_.passed(pass, index == last_[chunk], static_cast<std::int32_t>(position),
                        position + 1 == list(index).size(), placed[position]);
    }
  }

  // What another pass has made on another stream: the list's own dependencies know nothing of it. Streams are
  // in order, so only what is later than all that this stream has waited for needs an edge.
  void await_earlier_passes(std::size_t index, const TemplateInstruction& planned, std::size_t first_edge) {
    auto& waited = waited_[static_cast<std::size_t>(planned.stream)];
    const auto stream_of = [&](std::int32_t instruction) {
      return out_.role.instructions[static_cast<std::size_t>(instruction)].stream;
    };
    for (std::size_t e = first_edge; e < out_.role.edges.size(); ++e) {
      const Edge& edge = out_.role.edges[e];
      if (edge.previous_step) continue;
      std::int32_t& last = waited[stream_of(edge.instruction).index()];
      last = std::max(last, edge.instruction);
    }
    for (const TemplateOperand& operand : planned.operands) {
      if (operand.persistent || operand.writes) continue;
      const auto buffer = static_cast<std::size_t>(buffer_of(index, operand));
      const std::int32_t writer = buffer < writer_.size() ? writer_[buffer] : -1;
      if (writer < 0 || stream_of(writer).value == planned.stream) continue;
      std::int32_t& last = waited[stream_of(writer).index()];
      if (last >= writer) continue;
      last = writer;
      out_.after(writer);
    }
  }
  void note_writes(std::size_t index, const TemplateInstruction& planned, std::int32_t instruction) {
    for (const TemplateOperand& operand : planned.operands) {
      if (operand.persistent || !operand.writes) continue;
      const auto buffer = static_cast<std::size_t>(buffer_of(index, operand));
      if (writer_.size() <= buffer) writer_.resize(buffer + 1, -1);
      writer_[buffer] = instruction;
    }
  }

  std::int32_t buffer_of(std::size_t index, const TemplateOperand& operand) {
    const Pass& pass = passes_[index];
    if (!operand.persistent) return microbatch_buffer(pass.chunk, pass.microbatch, operand.buffer);
    const Held& held =
        persistent_[static_cast<std::size_t>(pass.chunk)][static_cast<std::size_t>(operand.buffer)];
    if (held.gradient) return gradients_.buffer(pass, held.parameter);
    return gathers_.holds(held.parameter) ? gathers_.buffer(index, held.parameter)
                                          : state_.parameters[held.parameter].weights;
  }

  const std::vector<StageTemplate>& stages_;
  const RoleShape& shape_;
  const Schedule& schedule_;
  const std::vector<Pass>& passes_;
  RoleWriter out_;
  // A persistent buffer of a template: a parameter of the role, or its gradient.
  struct Held {
    std::size_t parameter = 0;
    bool gradient = false;
  };
  std::vector<std::vector<Held>> persistent_;  // By chunk and template buffer.
  RoleDraft state_;
  RoleGradients gradients_;
  RoleOptimizer optimizer_;
  RoleGathers gathers_;
  // By chunk and micro-batch, then by buffer of the template: the role's; −1: not used yet.
  std::vector<std::vector<std::int32_t>> microbatch_buffers_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t>
      handed_;                                      // From another chunk.
  std::vector<std::size_t> first_, last_;           // By chunk.
  std::vector<std::int32_t> source_;                // By pass: who sends its input; −1: nobody.
  std::vector<std::int32_t> ready_input_;           // By pass: the instruction that brings its input.
  std::vector<std::vector<std::size_t>> incoming_;  // By rank of the pipeline: the passes it sends to.
  std::vector<std::size_t> posted_;                 // How many of them have their receive.
  std::vector<std::int32_t> writer_;  // By buffer: the last launch of a pass to write it; −1: none.
  // By stream: of each stream, the last instruction that it has waited for.
  std::vector<std::vector<std::int32_t>> waited_ =
      std::vector(kLoweredStreams, std::vector<std::int32_t>(kLoweredStreams, -1));
  std::array<std::vector<std::int32_t>, 2> placed_;  // Template index → instruction, of what runs now.
};

}  // namespace

Role build_role(const Plan& plan, const std::vector<StageTemplate>& stages, const RoleShape& shape,
                const StateShards& shards, SymbolTable& symbols) {
  return RoleBuilder(plan, stages, shape, shards, symbols).build();
}

}  // namespace orrery
