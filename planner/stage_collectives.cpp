// What moves a tensor between two placements, and what sums partial results.

#include <algorithm>
#include <cassert>

#include "planner/stage_builder.hpp"

namespace orrery {
namespace {

// The split that `finer` has and `coarser` lacks.
const Split* extra_split(const Placement& finer, const Placement& coarser) {
  const auto found = std::find_if(finer.splits.begin(), finer.splits.end(), [&](const Split& split) {
    return std::find(coarser.splits.begin(), coarser.splits.end(), split) == coarser.splits.end();
  });
  return found == finer.splits.end() ? nullptr : &*found;
}

}  // namespace

TemplateInstruction StageBuilder::collective(const std::string& name, std::int32_t layer, CollectiveKind kind,
                                             AxisId axis, std::int64_t bytes, DType dtype) {
  TemplateInstruction instruction;
  instruction.label = symbols_.label(name);
  instruction.layer = layer;
  if (axis == sharding_.axes().context) {
    instruction.stream = kContextStream;
    instruction.purpose = Purpose::kContextParallel;
  } else if (axis == sharding_.axes().expert) {
    instruction.stream = kExpertStream;
    instruction.purpose = Purpose::kExpertParallel;
  } else {
    instruction.stream = kTensorStream;
    instruction.purpose =
        kind == CollectiveKind::kAllReduce ? Purpose::kTensorParallel : Purpose::kSequenceParallel;
  }
  instruction.work = Collective{kind, axis, bytes, dtype};
  return instruction;
}

// A tensor gathered from its stored placement to another one; once per block and phase, as Megatron-LM does
// (keeping it from forward to backward would cost its memory).
StageBuilder::Place StageBuilder::rearranged(TensorId tensor, PlacementId placement, std::int32_t block,
                                             std::int32_t not_before) {
  const auto found = rearranged_.find({tensor, placement});
  if (found != rearranged_.end()) return found->second;
  const auto& placements = sharding_.placements();
  const Split& lost =
      *extra_split(placements[sharding_.stored(tensor).index()], placements[placement.index()]);
  const bool again = pass_ == PassKind::kBackwardWeight || (pass_ != PassKind::kForward && prefix_.empty() &&
                                                            graph_[tensor].kind == TensorKind::kActivation);
  const std::string name = prefix_ + without_layer(graph_[tensor].name) + ".gather" + (again ? "_again" : "");
  TemplateInstruction move = collective(name, block, CollectiveKind::kAllGather, lost.axis,
                                        sharding_.bytes(tensor, placement), graph_[tensor].dtype);
  read(move, tensor);
  depend(move, not_before);
  Place place;
  place.buffer = add_buffer(name + ".whole", block, MemoryCategory::kCommunication, tensor, placement);
  touch(move, {place.buffer, false, true});
  place.ready = append(std::move(move));
  rearranged_[{tensor, placement}] = place;
  return place;
}

void StageBuilder::rearrange_inputs(OpId op, std::int32_t not_before) {
  for (const TensorId input : graph_[op].inputs) {
    const PlacementId needed = sharding_.needed(op, input);
    if (needed != sharding_.stored(input)) rearranged(input, needed, graph_[op].block, not_before);
  }
}

// The weight's gradient needs its input's whole sequence too: gather it while the input's gradient is
// computed.
void StageBuilder::rearrange_ahead(const Launch& launch, const Launch* next) {
  if (next == nullptr) return;
  const Op& op = graph_[launch.ops.front()];
  const Op& following = graph_[next->ops.front()];
  if (op.kind == OpKind::kMatmulGradInput && following.kind == OpKind::kMatmulGradWeight &&
      op.forward_of == following.forward_of) {
    rearrange_inputs(next->ops.front(), last_compute());
  }
}

// Brings an output from where its op leaves it to where it is stored. A partial one is summed over its group,
// in place or to each rank's part of the sequence; rows go between their tokens and their experts.
void StageBuilder::settle(OpId id, TensorId output, std::int32_t made) {
  const Op& op = graph_[id];
  const AxisId axis = sharding_.partial_over(id, output);
  const PlacementId left = sharding_.made(id, output), summed = sharding_.summed(id, output),
                    stored = sharding_.stored(output);
  Place& place = places_.at(output.value);
  const std::string name = prefix_ + without_layer(graph_[output].name);
  const auto buffer_at = [&](PlacementId placement, const char* what) {
    if (placement == stored) return place.buffer;
    return add_buffer(name + what, op.block, MemoryCategory::kCommunication, output, placement);
  };
  std::int32_t source = buffer_at(left, axis.valid() ? ".partial" : ".made");
  touch(list()[static_cast<std::size_t>(made)], {source, false, true});
  if (axis.valid()) {
    const bool scatter = left != summed;
    const std::string of = op.outputs.size() == 1 ? op.name : graph_[output].name;
    TemplateInstruction sum =
        collective(prefix_ + without_layer(of) + (scatter ? ".scatter" : ".reduce"), op.block,
                   scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, axis,
                   sharding_.bytes(output, left), graph_[output].dtype);
    const std::int32_t target = scatter ? buffer_at(summed, ".summed") : source;
    depend(sum, made);
    touch(sum, {source, false, !scatter});
    touch(sum, {target, false, true});
    made = append(std::move(sum));
    source = target;
  }
  if (summed != stored) {
    TemplateInstruction move =
        collective(name + ".exchange", op.block, CollectiveKind::kAllToAll, sharding_.axes().expert,
                   sharding_.bytes(output, stored), graph_[output].dtype);
    depend(move, made);
    touch(move, {source, false, false});
    touch(move, {place.buffer, false, true});
    made = append(std::move(move));
  }
  place.ready = made;
}

}  // namespace orrery
