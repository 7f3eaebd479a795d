// verify(graph): one pass over the ops per rule, so that a graph of 100,000 tensors takes milliseconds.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "model/graph.hpp"
#include "model/graph_shapes.hpp"
#include "model/import_ops.hpp"

namespace orrery {
namespace {

template <class Tag>
bool within(Id<Tag> id, std::size_t count) {
  return id.valid() && id.index() < count;
}

bool written_by_ops(TensorKind kind) {
  return kind == TensorKind::kActivation || kind == TensorKind::kGradient ||
         kind == TensorKind::kParameterGradient;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}
  std::vector<std::string> run();

 private:
  void check_ids();
  void check_expert_dims();
  void check_tensor_ids(const Tensor& tensor);
  void check_op_ids(const Op& op);
  template <class Items>
  void check_names(const Items& items, std::string_view what);
  void check_order();
  void check_reads(std::size_t op);
  void check_writes(std::size_t op);
  void check_blocks_and_phases();
  void check_gradients();
  void check_parameters();
  void check_loss();
  void check_outputs();

  template <class... Args>
  void op_fault(const Op& op, fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format("op {}: {}", op.name, fmt::format(format, std::forward<Args>(args)...)));
  }
  template <class... Args>
  void tensor_fault(const Tensor& tensor, fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(
        fmt::format("tensor {}: {}", tensor.name, fmt::format(format, std::forward<Args>(args)...)));
  }

  const Graph& graph_;
  std::vector<std::string> faults_;
  std::vector<char> written_;  // By tensor, while walking the ops in order.
};

void Verifier::check_tensor_ids(const Tensor& tensor) {
  for (const DimId dim : tensor.shape) {
    if (!within(dim, graph_.dims.size())) {
      tensor_fault(tensor, "dimension {} is out of range; the graph has {}", dim.value, graph_.dims.size());
    }
  }
  if (tensor.producer.valid() && !within(tensor.producer, graph_.ops.size())) {
    tensor_fault(tensor, "producer {} is out of range; the graph has {} ops", tensor.producer.value,
                 graph_.ops.size());
  }
  if (tensor.gradient_of.valid() && !within(tensor.gradient_of, graph_.tensors.size())) {
    tensor_fault(tensor, "gradient_of {} is out of range; the graph has {} tensors", tensor.gradient_of.value,
                 graph_.tensors.size());
  }
}

void Verifier::check_op_ids(const Op& op) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const TensorId id : *list) {
      if (!within(id, graph_.tensors.size())) {
        op_fault(op, "{} {} is out of range; the graph has {} tensors",
                 list == &op.inputs ? "input" : "output", id.value, graph_.tensors.size());
      }
    }
  }
  if (op.forward_of.valid() && !within(op.forward_of, graph_.ops.size())) {
    op_fault(op, "forward_of {} is out of range; the graph has {} ops", op.forward_of.value,
             graph_.ops.size());
  }
}

void Verifier::check_ids() {
  for (const Dim& dim : graph_.dims) {
    const bool late =
        dim.role == DimRole::kBatch || dim.role == DimRole::kSequence || dim.role == DimRole::kSlots;
    if (dim.size < 0 || (dim.size == 0 && !late)) {
      faults_.push_back(fmt::format("dimension {}: size {}; only batch, sequence and slots are bound late",
                                    dim.name, dim.size));
    }
  }
  check_expert_dims();
  for (const Tensor& tensor : graph_.tensors) check_tensor_ids(tensor);
  for (const TensorId output : graph_.outputs) {
    if (!within(output, graph_.tensors.size())) {
      faults_.push_back(fmt::format("output {} is out of range; the graph has {} tensors", output.value,
                                    graph_.tensors.size()));
    }
  }
  for (const Op& op : graph_.ops) check_op_ids(op);
}

// bind() works slots out of the graph's one number of experts and of picks.
void Verifier::check_expert_dims() {
  for (const DimRole role : {DimRole::kExperts, DimRole::kTopK, DimRole::kSlots}) {
    const Dim* first = nullptr;
    for (const Dim& dim : graph_.dims) {
      if (dim.role != role) continue;
      if (first != nullptr) {
        faults_.push_back(
            fmt::format("dimension {}: has the role of {}; a graph has one of experts, of top-k "
                        "and of slots",
                        dim.name, first->name));
      }
      first = &dim;
    }
  }
}

template <class Items>
void Verifier::check_names(const Items& items, std::string_view what) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].name.empty()) {
      faults_.push_back(fmt::format("{} {} has no name", what, i));
    } else if (!seen.insert(items[i].name).second) {
      faults_.push_back(fmt::format("{} {}: the name is used twice", what, items[i].name));
    }
  }
}

void Verifier::check_blocks_and_phases() {
  const auto outside = [&](std::int32_t block) { return block < 0 || block >= graph_.block_count(); };
  for (const Tensor& tensor : graph_.tensors) {
    if (outside(tensor.block)) {
      tensor_fault(tensor, "block {} is outside 0 to {}", tensor.block, graph_.layers + 1);
    }
  }
  Phase phase = Phase::kForward;
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    if (outside(op.block)) op_fault(op, "block {} is outside 0 to {}", op.block, graph_.layers + 1);
    if (op.phase < phase) op_fault(op, "{} op after a {} op", to_string(op.phase), to_string(phase));
    phase = std::max(phase, op.phase);
    const bool backward = op.phase == Phase::kBackward;
    if (backward != op.forward_of.valid()) {
      op_fault(op, "{}", backward ? "backward op without forward_of" : "only backward ops have a forward_of");
    } else if (backward && graph_[op.forward_of].phase != Phase::kForward) {
      op_fault(op, "forward_of names {}, a {} op", graph_[op.forward_of].name,
               to_string(graph_[op.forward_of].phase));
    }
  }
}

void Verifier::check_reads(std::size_t index) {
  const Op& op = graph_.ops[index];
  for (const TensorId input : op.inputs) {
    const Tensor& tensor = graph_[input];
    if (!written_by_ops(tensor.kind) || written_[input.index()]) continue;
    const bool later = tensor.producer.valid() && tensor.producer.index() >= index;
    op_fault(op, "reads {} {}", tensor.name,
             later ? "before " + graph_[tensor.producer].name + " makes it" : "which no op makes");
  }
}

void Verifier::check_writes(std::size_t index) {
  const Op& op = graph_.ops[index];
  for (const TensorId output : op.outputs) {
    const Tensor& tensor = graph_[output];
    const bool first = !written_[output.index()];
    written_[output.index()] = 1;
    if (!written_by_ops(tensor.kind)) {
      op_fault(op, "writes {}, which is an input, a parameter or state", tensor.name);
    } else if (!first && tensor.kind != TensorKind::kParameterGradient) {
      op_fault(op, "writes {} a second time", tensor.name);
    } else if (first && (!tensor.producer.valid() || tensor.producer.index() != index)) {
      op_fault(op, "writes {}, whose producer is {}", tensor.name,
               tensor.producer.valid() ? graph_[tensor.producer].name : "not set");
    }
  }
}

void Verifier::check_order() {
  written_.assign(graph_.tensors.size(), 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    check_reads(i);
    check_writes(i);
  }
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    if (tensor.producer.valid() && !written_[i]) {
      tensor_fault(tensor, "its producer {} doesn't write it", graph_[tensor.producer].name);
    } else if (written_by_ops(tensor.kind) && !written_[i]) {
      tensor_fault(tensor, "no op makes it");
    }
  }
}

void Verifier::check_gradients() {
  for (const Tensor& tensor : graph_.tensors) {
    const bool gradient =
        tensor.kind == TensorKind::kGradient || tensor.kind == TensorKind::kParameterGradient;
    const bool belongs = gradient || tensor.kind == TensorKind::kOptimizerState;
    if (belongs != tensor.gradient_of.valid()) {
      tensor_fault(tensor, "{}", belongs ? "gradient_of is not set" : "gradient_of is set");
      continue;
    }
    if (!belongs) continue;
    const Tensor& of = graph_[tensor.gradient_of];
    const bool of_parameter = tensor.kind != TensorKind::kGradient;
    const bool fits = of_parameter ? of.kind == TensorKind::kParameter
                                   : of.kind == TensorKind::kActivation || of.kind == TensorKind::kInput;
    if (!fits) {
      tensor_fault(tensor, "belongs to {}, which isn't {}", of.name,
                   of_parameter ? "a parameter" : "an activation or input");
    }
    if (!same_sizes(graph_, of.shape, tensor.shape))
      tensor_fault(tensor, "isn't shaped like {}, to which it belongs", of.name);
  }
}

void Verifier::check_parameters() {
  bool backward = false;
  bool optimizer = false;
  std::vector<std::int32_t> gradients(graph_.tensors.size(), 0);
  std::vector<std::int32_t> updates(graph_.tensors.size(), 0);
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.kind == TensorKind::kParameterGradient && tensor.gradient_of.valid()) {
      ++gradients[tensor.gradient_of.index()];
    }
  }
  for (const Op& op : graph_.ops) {
    backward = backward || op.phase == Phase::kBackward;
    optimizer = optimizer || op.phase == Phase::kOptimizer;
    if (op.kind != OpKind::kAdamW || op.inputs.size() != 5) continue;
    ++updates[op.inputs[0].index()];
    if (graph_[op.inputs[0]].kind != TensorKind::kParameter) {
      op_fault(op, "updates {}, which isn't a parameter", graph_[op.inputs[0]].name);
    }
    for (std::size_t i = 1; i < 5; ++i) {
      const Tensor& of = graph_[op.inputs[i]];
      const TensorKind kind = i == 1 ? TensorKind::kParameterGradient : TensorKind::kOptimizerState;
      if (of.kind != kind || of.gradient_of != op.inputs[0]) {
        op_fault(op, "{} isn't {} of {}", of.name, i == 1 ? "the gradient" : "state",
                 graph_[op.inputs[0]].name);
      }
    }
  }
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    if (tensor.kind != TensorKind::kParameter) continue;
    if (backward && gradients[i] != 1) {
      tensor_fault(tensor, "the parameter has {} gradients; expected one", gradients[i]);
    }
    if (optimizer && updates[i] != 1) {
      tensor_fault(tensor, "the parameter has {} optimiser ops; expected one", updates[i]);
    }
  }
}

void Verifier::check_loss() {
  std::vector<char> reaches(graph_.tensors.size(), 0);
  std::size_t losses = 0;
  for (std::size_t i = graph_.ops.size(); i-- > 0;) {
    const Op& op = graph_.ops[i];
    if (op.phase != Phase::kForward) continue;
    const bool loss = op.kind == OpKind::kCrossEntropy;
    losses += loss ? 1 : 0;
    const bool leads = loss || std::any_of(op.outputs.begin(), op.outputs.end(),
                                           [&](TensorId output) { return reaches[output.index()] != 0; });
    for (const TensorId input : op.inputs) reaches[input.index()] |= leads ? 1 : 0;
  }
  if (!graph_.outputs.empty()) return check_outputs();
  if (losses != 1) {
    faults_.push_back(fmt::format("{} losses; expected one cross-entropy op", losses));
    return;
  }
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (graph_.tensors[i].kind == TensorKind::kInput && !reaches[i]) {
      tensor_fault(graph_.tensors[i], "the input doesn't reach the loss");
    }
  }
}

void Verifier::check_outputs() {
  for (std::string& fault : output_faults(graph_)) faults_.push_back(std::move(fault));
}

std::vector<std::string> Verifier::run() {
  check_ids();
  const bool sound_ids = faults_.empty();
  check_names(graph_.dims, "dimension");
  check_names(graph_.tensors, "tensor");
  check_names(graph_.ops, "op");
  if (!sound_ids) return std::move(faults_);  // The rest follows ids.
  check_blocks_and_phases();
  check_order();
  for (const Op& op : graph_.ops) {
    if (const std::string fault = shape_fault(graph_, op); !fault.empty()) op_fault(op, "{}", fault);
  }
  check_gradients();
  check_parameters();
  check_loss();
  return std::move(faults_);
}

}  // namespace

std::vector<std::string> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace orrery
