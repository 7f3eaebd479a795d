// The other ONNX operators: element-wise ones and reductions; and what can't be read.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/suggest.hpp"
#include "model/import_onnx_convert.hpp"

namespace orrery {
namespace {

using Convert = OnnxConverter;
using Names = std::set<std::string_view>;

const Names& elementwise_names() {
  static const Names kNames = {"Abs",         "Add",
                               "And",         "BitwiseAnd",
                               "Cast",        "CastLike",
                               "Ceil",        "Clip",
                               "Cos",         "CumSum",
                               "Div",         "Elu",
                               "Equal",       "Erf",
                               "Exp",         "Floor",
                               "Greater",     "GreaterOrEqual",
                               "HardSigmoid", "HardSwish",
                               "IsInf",       "IsNaN",
                               "LeakyRelu",   "Less",
                               "LessOrEqual", "Log",
                               "Max",         "Mean",
                               "Min",         "Mish",
                               "Mod",         "Mul",
                               "Neg",         "Not",
                               "Or",          "PRelu",
                               "Pow",         "Reciprocal",
                               "Round",       "Sigmoid",
                               "Sign",        "Sin",
                               "Softplus",    "Sqrt",
                               "Sub",         "Sum",
                               "Tan",         "Tanh",
                               "Trilu",       "Where",
                               "Xor",         "com.microsoft.QuickGelu"};
  return kNames;
}

const Names& reduce_names() {
  static const Names kNames = {"ReduceSum",       "ReduceMean", "ReduceMax", "ReduceMin",
                               "ReduceProd",      "ReduceL2",   "ReduceL1",  "ReduceLogSumExp",
                               "ReduceSumSquare", "ArgMax",     "ArgMin",    "GlobalAveragePool",
                               "GlobalMaxPool"};
  return kNames;
}

const Names& comparisons() {
  static const Names kNames = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And",
                               "Or",    "Not",  "Xor",     "IsNaN",       "IsInf"};
  return kNames;
}

DType cast_type(const Convert& c, const OnnxNode& node) {
  static const std::map<std::int64_t, DType> kTypes = {
      {1, DType::kFp32},  {2, DType::kUint8}, {3, DType::kUint8}, {6, DType::kInt32}, {7, DType::kInt64},
      {9, DType::kUint8}, {10, DType::kFp16}, {16, DType::kBf16}, {17, DType::kFp8},  {19, DType::kFp8}};
  const auto found = kTypes.find(c.integer(node, "to", 0));
  if (found == kTypes.end())
    c.wrong(node,
            fmt::format("Cast to type {}, which training doesn't compute with", c.integer(node, "to", 0)));
  return found->second;
}

// Scalars are settings of the op, not operands. A sum of two tensors of one shape is our own kind.
void elementwise(Convert& c, const OnnxNode& node) {
  std::vector<TensorId> inputs;
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  ImportSizes sizes;
  bool scalar_first = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!c.has_input(node, i)) continue;
    const OnnxConstant* known = c.constant(node, i);
    ImportSizes next;
    const ImportSizes own = c.sizes(node, i);
    if (!broadcast_sizes(sizes, own, next)) {
      c.wrong(node, fmt::format("{}: [{}] and [{}] don't broadcast", node.op, fmt::join(sizes, ", "),
                                fmt::join(own, ", ")));
    }
    if (node.op != "CumSum" && node.op != "Trilu") sizes = next;
    if (node.op == "CumSum" || node.op == "Trilu") sizes = i == 0 ? own : sizes;
    const bool setting = known != nullptr && known->values.size() == 1 && !c.value(node, i).tensor.valid();
    if (setting) attributes.constants.push_back(known->values[0]);
    if (setting && inputs.empty()) scalar_first = true;
    if (!setting) inputs.push_back(c.tensor(node, i));
  }
  if (inputs.empty()) c.wrong(node, fmt::format("{} of constants that are too large to work out", node.op));
  if (scalar_first) attributes.word = "scalar-" + attributes.word;  // 1 − x
  const bool cast = node.op == "Cast";
  const DType first = c.builder[inputs[node.op == "Where" && inputs.size() > 1 ? 1 : 0]].dtype;
  const DType type = cast ? cast_type(c, node) : comparisons().contains(node.op) ? DType::kUint8 : first;
  if (cast && type == first) return c.set(node, 0, {inputs[0], std::nullopt});
  const bool plain =
      node.op == "Add" && inputs.size() == 2 && c.builder.sizes(inputs[0]) == c.builder.sizes(inputs[1]);
  c.add_one(node, plain ? OpKind::kAdd : OpKind::kElementwise, std::move(inputs), type, sizes,
            plain ? OpAttributes{} : attributes);
}

void reduce(Convert& c, const OnnxNode& node) {
  const ImportSizes sizes = c.sizes(node, 0);
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  const bool argument = node.op.starts_with("Arg");
  const bool global = node.op.starts_with("Global");
  if (argument && sizes.empty()) c.wrong(node, fmt::format("{} of a scalar", node.op));
  attributes.axes = argument ? std::vector{c.axis(node, c.integer(node, "axis", 0), sizes.size())}
                    : global ? std::vector<std::int64_t>{}
                             : onnx_axes(c, node, "axes", sizes.size());
  if (attributes.axes.empty() && c.integer(node, "noop_with_empty_axes", 0) != 0) {
    return c.set(node, 0, c.value(node, 0));
  }
  if (attributes.axes.empty()) {  // None given: all, or all but batch and channels.
    for (std::size_t i = global ? 2 : 0; i < sizes.size(); ++i)
      attributes.axes.push_back(static_cast<std::int64_t>(i));
  }
  ImportSizes result;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool reduced =
        std::binary_search(attributes.axes.begin(), attributes.axes.end(), static_cast<std::int64_t>(i));
    if (!reduced) result.push_back(sizes[i]);
    if (reduced && (global || c.integer(node, "keepdims", 1) != 0)) result.push_back(1);
  }
  c.add_one(node, OpKind::kReduce, {c.tensor(node, 0)}, argument ? DType::kInt64 : c.dtype(node, 0), result,
            attributes);
}

void softmax(Convert& c, const OnnxNode& node) {
  const ImportSizes sizes = c.sizes(node, 0);
  OpAttributes attributes;
  attributes.word = node.op == "Softmax" ? "softmax" : "log-softmax";
  attributes.axes = {c.axis(node, c.integer(node, "axis", -1), sizes.size())};
  c.add_one(node, OpKind::kSoftmax, {c.tensor(node, 0)}, c.dtype(node, 0), sizes, attributes);
}

void hand_on(Convert& c, const OnnxNode& node) {
  if (c.wanted(node, 1))
    c.wrong(node, "Dropout: its mask is read; export the forward pass in training without it");
  c.set(node, 0, c.value(node, 0));
}

[[noreturn]] void refuse(const Convert& c, const OnnxNode& node) {
  static const Names kControl = {"If", "Loop", "Scan", "SequenceMap"};
  static const Names kData = {"NonZero", "Unique", "NonMaxSuppression", "Compress"};
  if (kControl.contains(node.op)) {
    c.wrong(node,
            fmt::format("{} is control flow; a static graph has none: export the branch that training takes, "
                        "or unroll the loop",
                        node.op));
  }
  if (kData.contains(node.op)) {
    c.wrong(node, fmt::format("{}: the shape of its result depends on data; a static graph can't have it",
                              node.op));
  }
  std::vector<std::string> known = onnx_move_names();
  known.insert(known.end(), elementwise_names().begin(), elementwise_names().end());
  known.insert(known.end(), reduce_names().begin(), reduce_names().end());
  c.wrong(
      node,
      fmt::format("operator {} isn't in the list of docs/importing-graphs.md{}; export with operators of the "
                  "list",
                  node.op, did_you_mean(node.op, known)));
}

}  // namespace

std::string onnx_word(std::string_view op) {
  std::string word(op.substr(op.rfind('.') + 1));  // npos + 1 is 0.
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return word;
}

// axes: an attribute in older files, an input in newer ones; none: all.
std::vector<std::int64_t> onnx_axes(const Convert& c, const OnnxNode& node, const char* attribute,
                                    std::size_t rank) {
  std::vector<std::int64_t> axes = c.integers(node, attribute);
  if (axes.empty() && c.has_input(node, 1)) axes = c.known_integers(node, 1);
  for (std::int64_t& axis : axes) axis = c.axis(node, axis, rank);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

void apply_onnx_operator(OnnxConverter& convert, const OnnxNode& node) {
  if (node.outputs.empty() || node.outputs[0].empty())
    convert.wrong(node, fmt::format("{} has no output", node.op));
  if (apply_onnx_layer(convert, node)) return;
  if (elementwise_names().contains(node.op)) return elementwise(convert, node);
  if (reduce_names().contains(node.op)) return reduce(convert, node);
  if (node.op == "Softmax" || node.op == "LogSoftmax") return softmax(convert, node);
  if (node.op == "Identity" || node.op == "Dropout") return hand_on(convert, node);
  if (!apply_onnx_move(convert, node)) refuse(convert, node);
}

}  // namespace orrery
