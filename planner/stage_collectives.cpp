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

// A tensor brought from its stored placement to another one, for the launch that is being emitted. Rows first
// go to their experts, then are gathered.
StageBuilder::Place StageBuilder::rearranged(TensorId tensor, PlacementId placement, std::int32_t block) {
  const auto found = rearranged_.find({tensor, placement});
  if (found != rearranged_.end()) return found->second;
  const auto& placements = sharding_.placements();
  const Placement& wanted = placements[placement.index()];
  const Placement& stored = placements[sharding_.stored(tensor).index()];
  const bool divides_anew = extra_split(wanted, stored) != nullptr;
  const PlacementId of_experts = sharding_.of_experts(tensor);
  const bool in_two_steps = divides_anew && of_experts != placement && of_experts != sharding_.stored(tensor);
  if (in_two_steps) rearranged(tensor, of_experts, block);
  const PlacementId from = in_two_steps ? of_experts : sharding_.stored(tensor);
  const bool exchanges = divides_anew && !in_two_steps;
  const Split& lost = *extra_split(placements[from.index()], wanted);
  const bool again = pass_ == PassKind::kBackwardWeight || (pass_ != PassKind::kForward && prefix_.empty() &&
                                                            graph_[tensor].kind == TensorKind::kActivation);
  std::string name = prefix_ + without_layer(graph_[tensor].name) + (exchanges ? ".exchange" : ".gather") +
                     (again ? "_again" : "");
  const std::int32_t times = ++moves_[{name, block}];
  if (times > 1) name += "_" + std::to_string(times);
  TemplateInstruction move =
      collective(name, block, exchanges ? CollectiveKind::kAllToAll : CollectiveKind::kAllGather, lost.axis,
                 sharding_.bytes(tensor, placement), graph_[tensor].dtype);
  move.region = region_;
  const auto source = rearranged_.find({tensor, from});
  if (source != rearranged_.end()) {
    touch(move, {source->second.buffer, false, false});
  } else {
    read(move, tensor);
  }
  Place place;
  place.buffer = add_buffer(name + ".whole", block, MemoryCategory::kCommunication, tensor, placement);
  touch(move, {place.buffer, false, true});
  append(std::move(move));
  rearranged_[{tensor, placement}] = place;
  return place;
}

void StageBuilder::rearrange_inputs(OpId op) {
  for (const TensorId input : graph_[op].inputs) {
    const PlacementId needed = sharding_.needed(op, input);
    if (needed != sharding_.stored(input)) rearranged(input, needed, graph_[op].block);
  }
}

// Sums a partial output over its group: in place, or to each rank's part of the sequence.
void StageBuilder::reduce(OpId id, TensorId output, std::int32_t made) {
  const Op& op = graph_[id];
  const PlacementId from = sharding_.made(id, output);
  const bool scatter = from != sharding_.stored(output);
  const std::string of = op.outputs.size() == 1 ? op.name : graph_[output].name;
  TemplateInstruction sum =
      collective(prefix_ + without_layer(of) + (scatter ? ".scatter" : ".reduce"), op.block,
                 scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                 sharding_.partial_over(id, output), sharding_.bytes(output, from), graph_[output].dtype);
  const Place& place = places_.at(output.value);
  std::int32_t source = place.buffer;
  if (scatter) {
    source = add_buffer(prefix_ + without_layer(graph_[output].name) + ".partial", op.block,
                        MemoryCategory::kCommunication, output, from);
  }
  touch(list()[static_cast<std::size_t>(made)], {source, false, true});
  touch(sum, {source, false, !scatter});
  touch(sum, {place.buffer, false, true});
  append(std::move(sum));
}

}  // namespace orrery
