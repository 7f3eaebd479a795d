// The other operators of PyTorch: those that become imported kinds, those that hand their input on, and those
// that no static graph can have.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/suggest.hpp"
#include "model/import_fx_convert.hpp"

namespace orrery {
namespace {

using Convert = FxConverter;
using Names = std::set<std::string_view>;

const Names& elementwise_names() {
  static const Names kNames = {"abs",
                               "add",
                               "addcdiv",
                               "addcmul",
                               "bitwise_and",
                               "bitwise_not",
                               "bitwise_or",
                               "bitwise_xor",
                               "ceil",
                               "clamp",
                               "clamp_max",
                               "clamp_min",
                               "convert_element_type",
                               "copy",
                               "cos",
                               "cumsum",
                               "div",
                               "dropout",
                               "elu",
                               "eq",
                               "erf",
                               "exp",
                               "exp2",
                               "expm1",
                               "fill",
                               "floor",
                               "floor_divide",
                               "fmod",
                               "ge",
                               "gt",
                               "hardswish",
                               "hardtanh",
                               "isnan",
                               "isinf",
                               "le",
                               "leaky_relu",
                               "lerp",
                               "log",
                               "log1p",
                               "log2",
                               "logical_and",
                               "logical_not",
                               "logical_or",
                               "lt",
                               "masked_fill",
                               "maximum",
                               "minimum",
                               "mish",
                               "mul",
                               "nan_to_num",
                               "native_dropout",
                               "native_dropout_backward",
                               "ne",
                               "neg",
                               "pow",
                               "reciprocal",
                               "relu6",
                               "remainder",
                               "round",
                               "rsqrt",
                               "rsub",
                               "sigmoid",
                               "sigmoid_backward",
                               "sign",
                               "sin",
                               "softplus",
                               "sqrt",
                               "square",
                               "sub",
                               "tan",
                               "tanh",
                               "tanh_backward",
                               "tril",
                               "triu",
                               "trunc",
                               "true_divide",
                               "where",
                               "_log_softmax_backward_data",
                               "_softmax_backward_data",
                               "softplus_backward",
                               "flip",
                               "roll",
                               "scalar_mul",
                               "dequantize",
                               "quantize"};
  return kNames;
}

const Names& reduce_names() {
  static const Names kNames = {"sum",      "mean",
                               "amax",     "amin",
                               "max",      "min",
                               "argmax",   "argmin",
                               "var",      "std",
                               "var_mean", "std_mean",
                               "prod",     "any",
                               "all",      "logsumexp",
                               "norm",     "linalg_vector_norm",
                               "median",   "mse_loss",
                               "nll_loss", "nll_loss_forward",
                               "topk"};
  return kNames;
}

const Names& fill_names() {
  static const Names kNames = {"zeros",
                               "ones",
                               "full",
                               "empty",
                               "arange",
                               "linspace",
                               "rand",
                               "randn",
                               "scalar_tensor",
                               "eye",
                               "zeros_like",
                               "ones_like",
                               "full_like",
                               "empty_like",
                               "rand_like",
                               "randn_like",
                               "new_zeros",
                               "new_ones",
                               "new_full",
                               "new_empty",
                               "iota",
                               "inductor_seeds",
                               "inductor_lookup_seed",
                               "inductor_random",
                               "empty_strided",
                               "empty_permuted",
                               "bernoulli",
                               "lift_fresh_copy",
                               "tensor"};
  return kNames;
}

// The same values: no op.
const Names& same_names() {
  static const Names kNames = {"alias", "detach",       "identity",    "lift_fresh",    "view_of",
                               "_conj", "resolve_conj", "resolve_neg", "requires_grad", "contiguous"};
  return kNames;
}

const Names& reshape_names() {
  static const Names kNames = {"view",    "reshape",   "_unsafe_view",   "flatten",  "unflatten",
                               "squeeze", "unsqueeze", "_reshape_alias", "view_copy"};
  return kNames;
}

const Names& slice_names() {
  static const Names kNames = {"slice",    "select",     "narrow",       "split",        "split_with_sizes",
                               "chunk",    "unbind",     "unsafe_split", "unsafe_chunk", "tensor_split",
                               "diagonal", "slice_copy", "select_copy",  "getitem"};
  return kNames;
}

const Names& gather_names() {
  static const Names kNames = {"gather",         "index",
                               "index_select",   "take",
                               "take_along_dim", "masked_select_static",
                               "_unsafe_index",  "_unsafe_masked_index"};
  return kNames;
}

const Names& scatter_names() {
  static const Names kNames = {"scatter",       "scatter_add",    "scatter_reduce",
                               "index_put",     "index_add",      "index_copy",
                               "slice_scatter", "select_scatter", "_unsafe_index_put"};
  return kNames;
}

const Names& softmax_names() {
  static const Names kNames = {"softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax"};
  return kNames;
}

const Names& other_names() {
  static const Names kNames = {"permute",   "transpose",    "t",
                               "numpy_T",   "swapaxes",     "expand",
                               "expand_as", "repeat",       "repeat_interleave",
                               "tile",      "broadcast_to", "cat",
                               "concat",    "stack",        "convolution",
                               "conv1d",    "conv2d",       "clone",
                               "to",        "_to_copy",     "type_as",
                               "float"};
  return kNames;
}

OpAttributes word(std::string_view name, Convert& c, const FxNode& node) {
  OpAttributes attributes;
  attributes.word = name;
  attributes.constants = c.all_numbers(node);
  return attributes;
}

// A sum of two tensors of one shape is our own kind.
void elementwise(Convert& c, const FxNode& node, std::string_view name) {
  const std::vector<TensorId> inputs = c.all_tensors(node);
  if (inputs.empty())
    c.wrong(node,
            fmt::format("{}: no argument is a tensor; numbers have to be fixed in the export", node.target));
  std::vector<TensorId> outputs = c.results(node);
  const bool plain = name == "add" && inputs.size() == 2 && outputs.size() == 1 &&
                     c.all_numbers(node).empty() && c.builder.sizes(inputs[0]) == c.builder.sizes(inputs[1]);
  OpAttributes attributes = word(name, c, node);
  if (!node.arguments.empty() && node.arguments[0].number())
    attributes.word = "scalar-" + attributes.word;  // 1 − x
  if (name == "dropout" && (c.integer(node, 2, "train", 1) == 0 || c.number(node, 1, "p", 0.5) == 0.0)) {
    return c.stands_for(node, inputs[0]);
  }
  if (name == "convert_element_type") {
    attributes = {};
    attributes.word = "cast";
  }
  c.add(node, plain ? OpKind::kAdd : OpKind::kElementwise, inputs, std::move(outputs),
        plain ? OpAttributes{} : std::move(attributes));
}

// Another type is a cast, another layout a copy, else it is the tensor itself.
void convert(Convert& c, const FxNode& node, bool copies) {
  const TensorId x = c.tensor(node, 0);
  const bool cast = c.says(node, 0) && c.dtype(node, 0) != c.builder[x].dtype;
  if (!cast && !copies) return c.stands_for(node, x);
  OpAttributes attributes;
  attributes.word = cast ? "cast" : "copy";
  c.add(node, OpKind::kElementwise, {x}, {c.result(node)}, attributes);
}

void reduce(Convert& c, const FxNode& node, std::string_view name) {
  const std::vector<TensorId> inputs = c.all_tensors(node);
  if (inputs.empty()) c.wrong(node, fmt::format("{}: no argument is a tensor", node.target));
  OpAttributes attributes;
  attributes.word = name;
  const bool whole = name == "mse_loss" || name == "nll_loss" || name == "nll_loss_forward";
  const std::size_t axis_at = name == "linalg_vector_norm" || name == "norm" || name == "topk" ? 2 : 1;
  attributes.axes = c.axes(node, whole ? 1000 : axis_at, "dim", inputs[0]);
  if (name == "topk") {  // The chosen dimension keeps k: parts, not a sum.
    attributes.axes.clear();
    attributes.constants = c.all_numbers(node);
    return c.add(node, OpKind::kSlice, inputs, c.results(node), attributes);
  }
  c.add(node, OpKind::kReduce, inputs, c.results(node), attributes);
}

void permute(Convert& c, const FxNode& node, std::string_view name) {
  const TensorId x = c.tensor(node, 0);
  const std::size_t rank = c.builder.sizes(x).size();
  std::vector<std::int64_t> axes(rank);
  for (std::size_t i = 0; i < rank; ++i) axes[i] = static_cast<std::int64_t>(i);
  if (name == "permute") {
    axes.clear();
    const bool listed = node.arguments.size() == 2;
    if (listed) axes = c.integers(node, 1, "dims");
    for (std::size_t i = 1; !listed && i < node.arguments.size(); ++i)
      axes.push_back(c.integer(node, i, "", 0));
    for (std::int64_t& one : axes) one = c.axis(node, one, rank);
  } else if (name == "transpose" || name == "swapaxes") {
    if (rank == 0) c.wrong(node, "transpose of a scalar");
    std::swap(axes[static_cast<std::size_t>(c.axis(node, c.integer(node, 1, "dim0", 0), rank))],
              axes[static_cast<std::size_t>(c.axis(node, c.integer(node, 2, "dim1", 1), rank))]);
  } else {
    std::reverse(axes.begin(), axes.end());
  }
  std::vector<std::int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < rank; ++i) {
    if (sorted.size() != rank || sorted[i] != static_cast<std::int64_t>(i)) {
      c.wrong(node, fmt::format("{}: the dimensions aren't a permutation", node.target));
    }
  }
  c.stands_for(node, c.builder.add_transpose(node.name, x, axes, node.module, true));
}

void concat(Convert& c, const FxNode& node, std::string_view name) {
  const std::vector<TensorId> parts = c.tensors(node, 0);
  if (parts.empty()) c.wrong(node, fmt::format("{}: no parts", node.target));
  const TensorId y = c.result(node);
  OpAttributes attributes;
  attributes.axes = {c.axis(node, c.integer(node, 1, "dim", 0), c.builder.sizes(y).size())};
  if (name != "stack") return c.add(node, OpKind::kConcat, parts, {y}, attributes);
  attributes.word = "stack";  // Each part gets a dimension of size 1 first.
  std::vector<TensorId> rows;
  ImportSizes row = c.builder.sizes(y);
  row[static_cast<std::size_t>(attributes.axes[0])] = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string suffix = fmt::format(".part{}", i);
    rows.push_back(c.builder.add_result(node.name + suffix, c.builder[y].dtype, row));
    c.add(node, OpKind::kReshape, {parts[i]}, {rows.back()}, {}, suffix);
  }
  c.add(node, OpKind::kConcat, std::move(rows), {y}, attributes);
}

void softmax(Convert& c, const FxNode& node, std::string_view name) {
  const TensorId x = c.tensor(node, 0);
  OpAttributes attributes;
  attributes.word = name.find("log") == std::string_view::npos ? "softmax" : "log-softmax";
  attributes.axes = {c.axis(node, c.integer(node, 1, "dim", -1), c.builder.sizes(x).size())};
  c.add(node, OpKind::kSoftmax, {x}, {c.result(node)}, attributes);
}

void convolution(Convert& c, const FxNode& node) {
  std::vector<TensorId> inputs = {c.tensor(node, 0), c.tensor(node, 1)};
  if (const auto bias = c.optional_tensor(node, 2, "bias")) inputs.push_back(*bias);
  OpAttributes attributes = word("convolution", c, node);
  attributes.bias = inputs.size() == 3;
  c.add(node, OpKind::kConvolution, std::move(inputs), {c.result(node)}, attributes);
}

void data_movement(Convert& c, const FxNode& node, OpKind kind, std::string_view name, bool view) {
  std::vector<TensorId> inputs = c.all_tensors(node);
  if (inputs.empty() && kind != OpKind::kFill)
    c.wrong(node, fmt::format("{}: no argument is a tensor", node.target));
  if (kind == OpKind::kReshape || kind == OpKind::kExpand) inputs.resize(1);
  OpAttributes attributes = word(name, c, node);
  attributes.view = view;
  if (kind == OpKind::kReshape) attributes = {};  // The shapes say it all.
  const std::vector<TensorId> outputs = c.results(node);
  c.add(node, kind, std::move(inputs), outputs, std::move(attributes));
}

bool apply_other(Convert& c, const FxNode& node, std::string_view name) {
  if (name == "permute" || name == "transpose" || name == "t" || name == "numpy_T" || name == "swapaxes") {
    permute(c, node, name);
  } else if (name == "cat" || name == "concat" || name == "stack") {
    concat(c, node, name);
  } else if (name == "convolution" || name == "conv1d" || name == "conv2d") {
    convolution(c, node);
  } else if (name == "expand" || name == "expand_as" || name == "broadcast_to") {
    data_movement(c, node, OpKind::kExpand, "expand", true);
  } else if (name == "slice_backward" || name == "select_backward" || name == "constant_pad_nd") {
    data_movement(c, node, OpKind::kExpand, "pad", false);
  } else if (name == "repeat" || name == "tile" || name == "repeat_interleave") {
    data_movement(c, node, OpKind::kExpand, "repeat", false);
  } else if (name == "to" || name == "_to_copy" || name == "type_as" || name == "float") {
    convert(c, node, false);
  } else if (name == "clone") {
    convert(c, node, true);
  } else {
    return false;
  }
  return true;
}

std::string known_operators_hint(const std::string& name) {
  std::vector<std::string> known;
  for (const Names* names :
       {&elementwise_names(), &reduce_names(), &fill_names(), &reshape_names(), &slice_names(),
        &gather_names(), &scatter_names(), &softmax_names(), &other_names()}) {
    known.insert(known.end(), names->begin(), names->end());
  }
  return did_you_mean(name, known);
}

// Why a graph with this operator can't be imported.
[[noreturn]] void refuse(Convert& c, const FxNode& node, const std::string& name) {
  const std::string_view target = node.target;
  const auto has = [&](std::string_view part) { return target.find(part) != std::string_view::npos; };
  if (has("c10d") || has("_dtensor.")) {
    c.wrong(node, fmt::format(
                      "{} is a collective: the graph has been distributed already, and a Graph says what is "
                      "computed before it is; export the module without parallel wrappers",
                      target));
  }
  if (has("higher_order") || name == "cond" || name == "while_loop" || name == "scan" || name == "map_impl") {
    c.wrong(node,
            fmt::format("{} is control flow; a static graph has none: export the branch that training takes",
                        target));
  }
  if (name == "_local_scalar_dense" || name == "item" || name == "nonzero" || name == "unique" ||
      name == "masked_select" || name == "sym_size" || name == "sym_numel") {
    c.wrong(node,
            fmt::format("{} makes a size or number out of data; a static graph can't have it: fix it to a "
                        "number before exporting",
                        target));
  }
  c.wrong(node, fmt::format("operator {} isn't in the list of docs/importing-graphs.md{}; decompose it "
                            "(ExportedProgram.run_decompositions()) or write it with operators of the list",
                            target, known_operators_hint(name)));
}

struct Group {
  const Names& (*names)();
  OpKind kind;
  bool view;
};

}  // namespace

void apply_fx_operator(FxConverter& convert_to, const FxNode& node) {
  static const std::array<Group, 5> kMoving = {{{reshape_names, OpKind::kReshape, true},
                                                {slice_names, OpKind::kSlice, true},
                                                {gather_names, OpKind::kGather, false},
                                                {scatter_names, OpKind::kScatter, false},
                                                {fill_names, OpKind::kFill, false}}};
  const std::string name = fx_operator(node.target);
  const std::string_view target = node.target;
  if (target.find("c10d") != std::string_view::npos ||
      target.find("higher_order") != std::string_view::npos) {
    refuse(convert_to, node, name);
  }
  if (name.starts_with("_assert")) return;  // Checks of the export itself; they make nothing.
  if (apply_fx_layer(convert_to, node, name) || apply_other(convert_to, node, name)) return;
  if (same_names().contains(name)) return convert_to.stands_for(node, convert_to.tensor(node, 0));
  if (elementwise_names().contains(name)) return elementwise(convert_to, node, name);
  if (reduce_names().contains(name)) return reduce(convert_to, node, name);
  if (softmax_names().contains(name)) return softmax(convert_to, node, name);
  for (const Group& group : kMoving) {
    if (group.names().contains(name)) return data_movement(convert_to, node, group.kind, name, group.view);
  }
  refuse(convert_to, node, name);
}

}  // namespace orrery
