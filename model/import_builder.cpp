#include "model/import_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.hpp"
#include "model/graph_shapes.hpp"
#include "model/import_dims.hpp"

namespace orrery {
namespace {

// Far above any model that trains, far below what a sum of 64-bit byte counts can't hold.
constexpr std::size_t kMostTensors = std::size_t{1} << 20;
constexpr std::size_t kMostRank = 16;
constexpr double kMostElements = 4e12;
constexpr double kMostBytes = 1e17;
constexpr std::size_t kMostOperands = 100'000;

// What a strict kind becomes where its dimensions don't fit.
OpKind imported_kind(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul: return OpKind::kBatchMatmul;
    case OpKind::kEmbedding: return OpKind::kGather;
    case OpKind::kAttention: return OpKind::kMaskedAttention;
    case OpKind::kCrossEntropy: return OpKind::kReduce;
    default: return OpKind::kElementwise;
  }
}

std::string_view word_of(const Op& op) {
  const OpAttributes& attributes = op.attributes;
  switch (op.kind) {
    case OpKind::kNorm: return attributes.norm == NormKind::kRms ? "rms-norm" : "layer-norm";
    case OpKind::kUnary:
      return attributes.activation == Activation::kSilu   ? "silu"
             : attributes.activation == Activation::kGelu ? "gelu"
                                                          : "relu";
    default: return to_string(op.kind);
  }
}

// "l3", "layer3", "h3", "block3" → 3.
std::int64_t numbered_layer(std::string_view part) {
  for (const std::string_view word : {"layers", "layer", "blocks", "block", "l", "h"}) {
    if (!part.starts_with(word)) continue;
    const std::string_view rest = part.substr(word.size());
    const bool number = !rest.empty() && rest.size() <= 6 &&
                        std::all_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number) return std::stoll(std::string(rest));
  }
  return -1;
}

// The number in "transformer.h.3.attn", "/model/layers.3/mlp", "l3.attn": the first part that is one, after a
// word.
std::int64_t layer_number(std::string_view path) {
  std::size_t begin = 0;
  bool after_word = false;
  while (begin < path.size()) {
    std::size_t end = path.find_first_of("./", begin);
    end = std::min(end, path.size());
    const std::string_view part = path.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() <= 6 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number && after_word) return std::stoll(std::string(part));
    if (const std::int64_t layer = numbered_layer(part); layer >= 0) return layer;
    after_word = after_word || !part.empty();
    begin = end + 1;
  }
  return -1;
}

DimRole role_of_symbol(const std::string& name) {
  if (name.find("past") != std::string::npos) return DimRole::kOther;
  if (name.find("batch") != std::string::npos) return DimRole::kBatch;
  return name.find("seq") != std::string::npos ? DimRole::kSequence : DimRole::kOther;
}

}  // namespace

bool broadcast_sizes(const ImportSizes& a, const ImportSizes& b, ImportSizes& result) {
  result.assign(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 1; i <= result.size(); ++i) {
    const std::int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    result[result.size() - i] = x == 1 ? y : x;
  }
  return true;
}

void ImportBuilder::wrong(std::string_view node, std::string_view what) const {
  fail(ErrorKind::kInput, "{}: node {}: {}", place_, node, what);
}

void ImportBuilder::check_sizes(const std::string& name, DType dtype, const ImportSizes& sizes) {
  if (sizes.size() > kMostRank) wrong(name, fmt::format("{} dimensions; at most 16", sizes.size()));
  double elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 1) wrong(name, fmt::format("a dimension of size {}; expected at least 1", size));
    elements *= static_cast<double>(size);
  }
  bytes_ += elements * static_cast<double>(size_bytes(dtype));
  if (elements > kMostElements || bytes_ > kMostBytes) {
    wrong(name, fmt::format("{:.3g} elements, {:.3g} bytes in all so far; more than any machine computes "
                            "with: look at the dimensions",
                            elements, bytes_));
  }
  if (graph_.tensors.size() >= kMostTensors) {
    wrong(name, fmt::format("the graph has more than {} tensors", kMostTensors));
  }
}

TensorId ImportBuilder::add_tensor(const std::string& name, TensorKind kind, DType dtype,
                                   const ImportSizes& sizes, const std::vector<std::string>& symbols) {
  check_sizes(name, dtype, sizes);
  const TensorId id(static_cast<std::int64_t>(graph_.tensors.size()));
  if (name.empty()) wrong("(unnamed)", "a tensor without a name");
  if (!by_name_.emplace(name, id).second) wrong(name, "the name is used twice");
  Tensor tensor;
  tensor.name = name;
  tensor.kind = kind;
  tensor.dtype = dtype;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tensor.shape.emplace_back(static_cast<std::int64_t>(graph_.dims.size()));
    Dim dim{"", DimRole::kOther, sizes[i]};
    if (i < symbols.size() && !symbols[i].empty()) dim = {symbols[i], role_of_symbol(symbols[i]), sizes[i]};
    graph_.dims.push_back(std::move(dim));
  }
  graph_.tensors.push_back(std::move(tensor));
  sizes_.push_back(sizes);
  return id;
}

void ImportBuilder::add(ImportOp op) {
  Op made;
  made.name = std::move(op.name);
  std::int32_t& taken = op_names_[made.name];
  if (taken++ > 0) wrong(made.name, "the name is used by two ops");
  if (op.inputs.size() + op.outputs.size() > kMostOperands) wrong(made.name, "more than 100,000 operands");
  made.kind = op.kind;
  made.phase = phase_;
  made.inputs = std::move(op.inputs);
  made.outputs = std::move(op.outputs);
  made.attributes = std::move(op.attributes);
  const OpId id(static_cast<std::int64_t>(graph_.ops.size()));
  for (const TensorId output : made.outputs) graph_.tensors[output.index()].producer = id;
  graph_.ops.push_back(std::move(made));
  module_.push_back(std::move(op.module));
}

TensorId ImportBuilder::add_transpose(const std::string& name, TensorId x,
                                      const std::vector<std::int64_t>& axes, const std::string& module,
                                      bool view) {
  const OpId producer = graph_[x].producer;
  std::vector<std::int64_t> whole = axes;
  if (producer.valid() && graph_[producer].kind == OpKind::kTranspose) {
    const Op& before = graph_[producer];
    view = view && before.attributes.view;
    for (std::int64_t& axis : whole) axis = before.attributes.axes[static_cast<std::size_t>(axis)];
    x = before.inputs[0];
  }
  if (std::is_sorted(whole.begin(), whole.end())) return x;
  ImportSizes sizes;
  for (const std::int64_t axis : whole) sizes.push_back(sizes_[x.index()][static_cast<std::size_t>(axis)]);
  const TensorId y = add_result(name, graph_[x].dtype, sizes);
  ImportOp op{name, OpKind::kTranspose, {x}, {y}, {}, module};
  op.attributes.axes = std::move(whole);
  op.attributes.view = view;
  add(std::move(op));
  return y;
}

TensorId ImportBuilder::untransposed(TensorId x) const {
  const OpId producer = graph_[x].producer;
  if (!producer.valid() || graph_[producer].kind != OpKind::kTranspose) return {};
  const std::vector<std::int64_t>& axes = graph_[producer].attributes.axes;
  const std::size_t rank = axes.size();
  if (rank < 2) return {};
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    if (axes[i] != static_cast<std::int64_t>(i)) return {};
  }
  return axes[rank - 1] == static_cast<std::int64_t>(rank) - 2 ? graph_[producer].inputs[0] : TensorId();
}

void ImportBuilder::set_gradient(TensorId gradient, TensorId of) {
  Tensor& tensor = graph_.tensors[gradient.index()];
  const TensorKind kind = graph_[of].kind;
  if (tensor.kind != TensorKind::kActivation) {
    wrong(tensor.name, fmt::format("is the gradient of {}{}", graph_[of].name,
                                   tensor.gradient_of.valid() ? " and of " + graph_[tensor.gradient_of].name
                                                              : " and no result of an op"));
  }
  if (kind != TensorKind::kParameter && kind != TensorKind::kInput) {
    wrong(tensor.name, fmt::format("is the gradient of {}, which is no input", graph_[of].name));
  }
  tensor.kind = kind == TensorKind::kParameter ? TensorKind::kParameterGradient : TensorKind::kGradient;
  tensor.gradient_of = of;
}

// Views and constants that nobody reads were absorbed by what does read their source.
void ImportBuilder::drop_unread() {
  std::vector<char> read(graph_.tensors.size(), 0);
  for (const TensorId output : graph_.outputs) read[output.index()] = 1;
  for (std::size_t i = 0; i < read.size(); ++i) {
    const TensorKind kind = graph_.tensors[i].kind;
    const bool given =
        kind == TensorKind::kInput || kind == TensorKind::kParameter || kind == TensorKind::kBuffer;
    if (given || graph_.tensors[i].gradient_of.valid()) read[i] = 1;
  }
  std::vector<char> keep(graph_.ops.size(), 1);
  for (std::size_t i = graph_.ops.size(); i-- > 0;) {
    const Op& op = graph_.ops[i];
    const bool droppable = op.attributes.view || op.kind == OpKind::kReshape || op.kind == OpKind::kFill;
    const bool used = std::any_of(op.outputs.begin(), op.outputs.end(),
                                  [&](TensorId output) { return read[output.index()] != 0; });
    keep[i] = !droppable || used;
    if (!keep[i]) continue;
    for (const TensorId input : op.inputs) read[input.index()] = 1;
    for (const TensorId output : op.outputs) read[output.index()] = 1;
  }
  std::vector<TensorId> now(read.size());
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i]) continue;
    now[i] = TensorId(static_cast<std::int64_t>(tensors.size()));
    tensors.push_back(std::move(graph_.tensors[i]));
  }
  std::vector<Op> ops;
  std::vector<std::string> modules;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    ops.push_back(std::move(graph_.ops[i]));
    modules.push_back(std::move(module_[i]));
    const OpId id(static_cast<std::int64_t>(ops.size()) - 1);
    for (auto* list : {&ops.back().inputs, &ops.back().outputs}) {
      for (TensorId& tensor : *list) tensor = now[tensor.index()];
    }
    for (const TensorId output : ops.back().outputs) tensors[output.index()].producer = id;
  }
  for (Tensor& tensor : tensors) {
    if (tensor.gradient_of.valid()) tensor.gradient_of = now[tensor.gradient_of.index()];
  }
  for (TensorId& output : graph_.outputs) output = now[output.index()];
  graph_.tensors = std::move(tensors);
  graph_.ops = std::move(ops);
  module_ = std::move(modules);
}

void ImportBuilder::use_strict_kinds_only_where_they_fit() {
  for (Op& op : graph_.ops) {
    if (only_imported(op.kind) || shape_fault(graph_, op).empty()) continue;
    if (op.kind != OpKind::kMatmul) op.attributes.word = word_of(op);
    if (op.kind == OpKind::kAttention || op.kind == OpKind::kCrossEntropy || op.kind == OpKind::kDropout) {
      op.outputs.resize(1);  // Without the statistics that only the strict kind keeps.
    }
    if (op.kind == OpKind::kCrossEntropy) {
      for (std::size_t i = 0; i < graph_[op.inputs[0]].shape.size(); ++i) {
        op.attributes.axes.push_back(static_cast<std::int64_t>(i));
      }
    }
    op.kind = imported_kind(op.kind);
  }
}

// A layer number names the block, but no op stands before what it reads; what has no number stands where its
// inputs come from, or behind the last layer once it reads a parameter.
void ImportBuilder::set_blocks() {
  std::vector<std::int64_t> number(graph_.ops.size(), -1);
  std::set<std::int64_t> numbers;
  std::vector<char> has_parameter(graph_.ops.size(), 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    number[i] = layer_number(module_[i]);
    for (const TensorId input : graph_.ops[i].inputs) {
      if (graph_[input].kind != TensorKind::kParameter) continue;
      has_parameter[i] = 1;
      if (module_[i].empty()) number[i] = std::max(number[i], layer_number(graph_[input].name));
    }
    if (number[i] >= 0) numbers.insert(number[i]);
  }
  graph_.layers = static_cast<std::int32_t>(numbers.size());
  std::map<std::int64_t, std::int32_t> block_of;
  for (const std::int64_t one : numbers)
    block_of.emplace(one, static_cast<std::int32_t>(block_of.size()) + 1);
  std::vector<char> placed(graph_.tensors.size(), 0);  // Parameters: with the first op that reads them.
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    Op& op = graph_.ops[i];
    std::int32_t block = 0;
    for (const TensorId input : op.inputs) {
      if (graph_[input].producer.valid()) block = std::max(block, graph_[input].block);
    }
    if (number[i] >= 0) {
      block = std::max(block, block_of[number[i]]);
    } else if (has_parameter[i] && block > 0) {
      block = graph_.layers + 1;
    }
    op.block = block;
    for (const TensorId output : op.outputs) graph_.tensors[output.index()].block = block;
    for (const TensorId input : op.inputs) {
      Tensor& tensor = graph_.tensors[input.index()];
      if (tensor.producer.valid() || placed[input.index()]) continue;
      tensor.block = block;
      placed[input.index()] = 1;
    }
  }
}

// A joint graph doesn't say which forward op a backward op differentiates: the last forward op whose values
// it reads, else that of the backward ops before it.
void ImportBuilder::set_forward_of() {
  OpId last_forward;
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    Op& op = graph_.ops[i];
    if (op.phase == Phase::kForward) {
      last_forward = OpId(static_cast<std::int64_t>(i));
      continue;
    }
    OpId of, through;
    for (const TensorId input : op.inputs) {
      const OpId producer = graph_[input].producer;
      if (!producer.valid()) continue;
      const bool forward = graph_[producer].phase == Phase::kForward;
      if (forward) of = std::max(of, producer);
      if (!forward) through = std::max(through, graph_[producer].forward_of);
    }
    op.forward_of = of.valid() ? of : through.valid() ? through : last_forward;
    if (!op.forward_of.valid()) op.phase = Phase::kForward;  // There is nothing before it.
    op.block = op.forward_of.valid() ? graph_[op.forward_of].block : 0;
    for (const TensorId output : op.outputs) graph_.tensors[output.index()].block = op.block;
  }
}

Graph ImportBuilder::finish(std::string name, const std::vector<TensorId>& outputs) {
  graph_.name = std::move(name);
  graph_.outputs = outputs;
  drop_unread();
  merge_imported_dims(graph_);
  use_strict_kinds_only_where_they_fit();
  set_blocks();
  set_forward_of();
  return std::move(graph_);
}

}  // namespace orrery
