#include "model/graph_dot.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace orrery {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

std::string_view color(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "#dceeff";
    case Phase::kBackward: return "#ffe8d6";
    case Phase::kOptimizer: return "#e4f5e1";
  }
  return "white";
}

std::string shape_text(const Graph& graph, const Tensor& tensor) {
  std::string text;
  for (const DimId dim : tensor.shape) {
    text += text.empty() ? "" : "×";
    text += graph[dim].size > 0 ? fmt::format("{}", graph[dim].size) : graph[dim].name;
  }
  return fmt::format("{} {}", to_string(tensor.dtype), text);
}

std::string_view word(const Op& op) {
  return op.attributes.word.empty() ? to_string(op.kind) : std::string_view(op.attributes.word);
}

void add_ops(const Graph& graph, std::string& out) {
  const auto add = std::back_inserter(out);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.producer.valid()) continue;
    fmt::format_to(add, "  t{} [shape=ellipse, style=filled, fillcolor=\"{}\", label=\"{}\\n{}\"];\n", i,
                   tensor.kind == TensorKind::kInput ? "#fff7c9" : "#eeeeee", escaped(tensor.name),
                   escaped(shape_text(graph, tensor)));
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    fmt::format_to(add, "  o{} [fillcolor=\"{}\", label=\"{}\\n{}\"];\n", i, color(op.phase),
                   escaped(op.name), escaped(word(op)));
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = graph[input];
      if (tensor.producer.valid()) {
        fmt::format_to(add, "  o{} -> o{} [label=\"{}\"];\n", tensor.producer.value, i,
                       escaped(shape_text(graph, tensor)));
      } else {
        fmt::format_to(add, "  t{} -> o{};\n", input.value, i);
      }
    }
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Tensor& tensor = graph[graph.outputs[i]];
    fmt::format_to(add, "  r{} [shape=ellipse, label=\"output {}\"];\n", i, escaped(tensor.name));
    if (tensor.producer.valid()) fmt::format_to(add, "  o{} -> r{};\n", tensor.producer.value, i);
  }
}

using Group = std::pair<Phase, std::int32_t>;

std::string id(const Group& group) { return fmt::format("{}{}", to_string(group.first), group.second); }

void add_blocks(const Graph& graph, std::string& out) {
  std::map<Group, std::map<std::string_view, int>> kinds;
  std::map<std::pair<Group, Group>, int> edges;
  for (const Op& op : graph.ops) {
    const Group here{op.phase, op.block};
    ++kinds[here][to_string(op.kind)];
    for (const TensorId input : op.inputs) {
      const OpId producer = graph[input].producer;
      if (!producer.valid()) continue;
      const Group there{graph[producer].phase, graph[producer].block};
      if (there != here) ++edges[{there, here}];
    }
  }
  const auto add = std::back_inserter(out);
  for (const auto& [group, counts] : kinds) {
    std::string lines;
    for (const auto& [kind, count] : counts) lines += fmt::format("\\n{} {}", count, kind);
    fmt::format_to(add, "  {} [fillcolor=\"{}\", label=\"{} {}{}\"];\n", id(group), color(group.first),
                   to_string(group.first), group.second, lines);
  }
  for (const auto& [ends, count] : edges) {
    fmt::format_to(add, "  {} -> {} [label=\"{}\"];\n", id(ends.first), id(ends.second), count);
  }
}

}  // namespace

std::string to_dot(const Graph& graph, const DotOptions& options) {
  std::string out = fmt::format(
      "digraph \"{}\" {{\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n", escaped(graph.name));
  if (options.blocks) {
    add_blocks(graph, out);
  } else {
    add_ops(graph, out);
  }
  return out + "}\n";
}

}  // namespace orrery
