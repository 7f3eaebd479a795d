// What a backward needs and the forward didn't keep is made again, before the first op that reads it.

#include <algorithm>

#include "planner/recompute.hpp"
#include "planner/stage_builder.hpp"

namespace orrery {

bool StageBuilder::recomputes(std::int32_t block) const {
  if (in_.plan.recompute == Recompute::kNone || block < 1 || block > graph_.layers) return false;
  const std::int32_t first_layer = std::max(in_.blocks.first, 1);
  return in_.plan.recompute_layers == 0 || block - first_layer < in_.plan.recompute_layers;
}

// A backward begins without what its layers drop, and without what nobody meant to keep.
void StageBuilder::drop_tensors() {
  for (std::int32_t block = in_.blocks.first; block < in_.blocks.last; ++block) {
    if (!drops_tensors() || !recomputes(block)) continue;
    for (const OpId op : in_.index.forward[static_cast<std::size_t>(block)]) {
      for (const TensorId output : graph_[op].outputs) {
        if (!kept(output)) places_.erase(output.value);
      }
    }
  }
}

bool StageBuilder::kept(TensorId tensor) const {
  if ((*in_.recomputed)[tensor.index()]) return false;
  if (!recomputable(graph_, in_.index, tensor)) return true;  // The next layer's input.
  const auto& readers = in_.index.readers[tensor.index()];
  return std::any_of(readers.begin(), readers.end(),
                     [&](OpId reader) { return graph_[reader].phase == Phase::kBackward; });
}

// The layer's forward, all of it.
void StageBuilder::recompute(std::int32_t block) {
  prefix_ = "recompute.";
  emit_all(
      cut_launches(graph_, sharding_, in_.index.forward[static_cast<std::size_t>(block)], in_.kernels, false),
      Purpose::kRecompute);
  prefix_.clear();
}

void StageBuilder::remake_inputs(const Launch& launch) {
  if (!drops_tensors() || pass_ == PassKind::kForward) return;
  std::vector<OpId> again;
  for (const OpId op : launch.ops) add_missing(op, again);
  if (again.empty()) return;
  std::sort(again.begin(), again.end());
  prefix_ = "recompute.";
  // What is gathered here serves other recomputation of the block, not its backward: as with whole layers.
  region_ = -region_;
  for (const Launch& one : cut_launches(graph_, sharding_, again, in_.kernels, false)) {
    emit_any(one, Purpose::kRecompute);
  }
  region_ = -region_;
  prefix_.clear();
}

// The forward ops of this stage that have to run before `op` can, each once.
void StageBuilder::add_missing(OpId op, std::vector<OpId>& again) const {
  for (const TensorId input : graph_[op].inputs) {
    const OpId producer = graph_[input].producer;
    if (!producer.valid() || graph_[producer].phase != Phase::kForward) continue;
    if (places_.contains(input.value) || !in_.blocks.contains(graph_[producer].block)) continue;
    if (std::find(again.begin(), again.end(), producer) != again.end()) continue;
    again.push_back(producer);
    add_missing(producer, again);
  }
}

}  // namespace orrery
