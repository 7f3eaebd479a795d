#include <algorithm>

#include "planner/stage_template.hpp"

namespace orrery {

GraphIndex::GraphIndex(const Graph& graph)
    : forward(static_cast<std::size_t>(graph.block_count())),
      backward(static_cast<std::size_t>(graph.block_count())),
      readers(graph.tensors.size()) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const auto block = static_cast<std::size_t>(op.block);
    switch (op.phase) {
      case Phase::kForward: forward[block].push_back(OpId(o)); break;
      case Phase::kBackward: backward[block].push_back(OpId(o)); break;
      case Phase::kOptimizer: optimizer.push_back(OpId(o)); break;
    }
    for (const TensorId input : op.inputs) readers[input.index()].push_back(OpId(o));
  }
}

std::vector<Stream> lowered_streams() {
  return {{"compute", 0},       {"tensor", 0},       {"send_next", 0}, {"recv_previous", 0},
          {"send_previous", 0}, {"recv_next", 0},    {"data", 0},      {"context", 0},
          {"expert", 0},        {"recv_context", 0}, {"gather", 0}};
}

LabelId SymbolTable::label(const std::string& text) {
  const auto found = std::find(labels.begin(), labels.end(), text);
  if (found != labels.end()) return LabelId(found - labels.begin());
  labels.push_back(text);
  return LabelId(std::ssize(labels) - 1);
}

KernelId SymbolTable::kernel(const Kernel& wanted) {
  const auto found = std::find(kernels.begin(), kernels.end(), wanted);
  if (found != kernels.end()) return KernelId(found - kernels.begin());
  kernels.push_back(wanted);
  return KernelId(std::ssize(kernels) - 1);
}

}  // namespace orrery
