// FxProgram → Graph: placeholders, arguments, results. The operators are in import_fx_ops.cpp.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "model/import_fx_convert.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostOutputs = 100'000;
constexpr std::size_t kMostParts = 1'000'000;

std::optional<DType> torch_dtype(std::string_view word) {
  if (word.starts_with("torch.")) word.remove_prefix(6);
  static const std::map<std::string_view, DType> kTypes = {
      {"f32", DType::kFp32},       {"float32", DType::kFp32},      {"float", DType::kFp32},
      {"f16", DType::kFp16},       {"float16", DType::kFp16},      {"half", DType::kFp16},
      {"bf16", DType::kBf16},      {"bfloat16", DType::kBf16},     {"i64", DType::kInt64},
      {"int64", DType::kInt64},    {"i32", DType::kInt32},         {"int32", DType::kInt32},
      {"u8", DType::kUint8},       {"uint8", DType::kUint8},       {"b8", DType::kUint8},
      {"bool", DType::kUint8},     {"i8", DType::kUint8},          {"int8", DType::kUint8},
      {"f8e4m3fn", DType::kFp8},   {"float8_e4m3fn", DType::kFp8}, {"f8e5m2", DType::kFp8},
      {"float8_e5m2", DType::kFp8}};
  const auto found = kTypes.find(word);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

void flatten_results(const FxValue& value, std::vector<FxResult>& results) {
  if (value.kind == FxValue::Kind::kList) {
    for (const FxValue& item : value.items) flatten_results(item, results);
  } else {
    results.push_back({value.kind == FxValue::Kind::kNode ? value.text : "", ""});
  }
}

std::string fx_operator(std::string_view target) {
  static const std::map<std::string_view, std::string_view> kSigns = {
      {"+", "add"},    {"-", "sub"}, {"*", "mul"}, {"/", "div"}, {"//", "floor_divide"}, {"**", "pow"},
      {"@", "matmul"}, {"==", "eq"}, {"<", "lt"},  {">", "gt"},  {"&", "bitwise_and"}};
  if (const auto sign = kSigns.find(target); sign != kSigns.end()) return std::string(sign->second);
  for (const std::string_view prefix : {"torch.ops.", "torch.nn.functional.", "torch._C._nn.", "torch.",
                                        "_operator.", "operator.", "math.", "aten.", "prims.", "."}) {
    if (target.starts_with(prefix)) target.remove_prefix(prefix.size());
  }
  const std::size_t dot = target.find('.');  // The overload says nothing that the arguments don't.
  std::string name(target.substr(0, dot));
  // Written in place in the source; the graph says where the result goes.
  if (name.size() > 1 && name.back() == '_' && !name.ends_with("__")) name.pop_back();
  return name;
}

const FxValue* FxConverter::argument(const FxNode& node, std::size_t position,
                                     std::string_view keyword) const {
  const FxValue* found = nullptr;
  if (position < node.arguments.size()) {
    found = &node.arguments[position];
  } else if (const auto named = node.keywords.find(std::string(keyword)); named != node.keywords.end()) {
    found = &named->second;
  }
  return found == nullptr || found->kind == FxValue::Kind::kNone ? nullptr : found;
}

std::optional<TensorId> FxConverter::optional_tensor(const FxNode& node, std::size_t position,
                                                     std::string_view keyword) const {
  const FxValue* value = argument(node, position, keyword);
  if (value == nullptr || value->kind != FxValue::Kind::kNode) return std::nullopt;
  const auto found = made_.find(value->text);
  if (found == made_.end()) wrong(node, fmt::format("reads {}, which no node before it makes", value->text));
  if (found->second.empty() || !found->second[0].valid()) {
    wrong(node, fmt::format("reads {}, which has no shape: export again with example inputs", value->text));
  }
  return found->second[0];
}

TensorId FxConverter::tensor(const FxNode& node, std::size_t position, std::string_view keyword) const {
  const std::optional<TensorId> found = optional_tensor(node, position, keyword);
  if (!found) wrong(node, fmt::format("{}: argument {} isn't a tensor", node.target, position));
  return *found;
}

std::vector<TensorId> FxConverter::tensors(const FxNode& node, std::size_t position) const {
  const FxValue* value = argument(node, position);
  if (value == nullptr || value->kind != FxValue::Kind::kList) {
    wrong(node, fmt::format("{}: argument {} isn't a list of tensors", node.target, position));
  }
  FxNode list;
  list.name = node.name;
  list.arguments = value->items;
  std::vector<TensorId> result;
  for (std::size_t i = 0; i < list.arguments.size(); ++i) {
    if (const auto one = optional_tensor(list, i)) result.push_back(*one);
  }
  return result;
}

std::int64_t FxConverter::integer(const FxNode& node, std::size_t position, std::string_view keyword,
                                  std::int64_t standard) const {
  const FxValue* value = argument(node, position, keyword);
  if (value == nullptr) return standard;
  if (value->kind != FxValue::Kind::kInteger && value->kind != FxValue::Kind::kBool) {
    wrong(node, fmt::format("{}: argument {} isn't a whole number; one that is worked out from data can't be "
                            "simulated: export with static sizes",
                            node.target, position));
  }
  return value->integer;
}

double FxConverter::number(const FxNode& node, std::size_t position, std::string_view keyword,
                           double standard) const {
  const FxValue* value = argument(node, position, keyword);
  return value != nullptr && value->number() ? value->real : standard;
}

std::vector<std::int64_t> FxConverter::integers(const FxNode& node, std::size_t position,
                                                std::string_view keyword) const {
  const FxValue* value = argument(node, position, keyword);
  std::vector<std::int64_t> result;
  if (value == nullptr) return result;
  if (value->number()) return {value->integer};
  for (const FxValue& item : value->items) {
    if (item.kind == FxValue::Kind::kInteger) result.push_back(item.integer);
  }
  return result;
}

std::int64_t FxConverter::axis(const FxNode& node, std::int64_t axis, std::size_t rank) const {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= std::max<std::int64_t>(count, 1)) {
    wrong(node, fmt::format("{}: dimension {} of a tensor with {}", node.target, axis, rank));
  }
  return axis < 0 ? axis + count : axis;
}

std::vector<std::int64_t> FxConverter::axes(const FxNode& node, std::size_t position,
                                            std::string_view keyword, TensorId x) const {
  const std::size_t rank = builder.sizes(x).size();
  std::vector<std::int64_t> result;
  for (const std::int64_t one : integers(node, position, keyword)) {
    if (rank > 0) result.push_back(axis(node, one, rank));
  }
  if (result.empty()) {
    for (std::size_t i = 0; i < rank; ++i) result.push_back(static_cast<std::int64_t>(i));
  }
  return result;
}

std::vector<TensorId> FxConverter::all_tensors(const FxNode& node) const {
  FxNode flat;
  flat.name = node.name;
  const auto take = [&](const auto& self, const FxValue& value) -> void {
    if (value.kind == FxValue::Kind::kNode) flat.arguments.push_back(value);
    for (const FxValue& item : value.items) self(self, item);
  };
  for (const FxValue& value : node.arguments) take(take, value);
  for (const auto& [key, value] : node.keywords) take(take, value);
  std::vector<TensorId> result;
  for (std::size_t i = 0; i < flat.arguments.size(); ++i) result.push_back(*optional_tensor(flat, i));
  return result;
}

std::vector<double> FxConverter::all_numbers(const FxNode& node) const {
  std::vector<double> result;
  const auto take = [&](const auto& self, const FxValue& value) -> void {
    if (value.number()) result.push_back(value.real);
    for (const FxValue& item : value.items) self(self, item);
  };
  for (const FxValue& value : node.arguments) take(take, value);
  return result;
}

bool FxConverter::says(const FxNode& node, std::size_t output) const {
  const auto found = described_.find(node.name);
  return found != described_.end() && output < found->second.size() && found->second[output].has_value();
}

DType FxConverter::dtype(const FxNode& node, std::size_t output) const {
  const std::string& word = described_.at(node.name)[output]->dtype;
  const std::optional<DType> type = torch_dtype(word);
  if (!type) {
    wrong(node,
          fmt::format("type {} isn't one that training computes with; expected float32, bfloat16, float16, "
                      "float8, int64, int32, uint8, int8 or bool",
                      word));
  }
  return *type;
}

ImportSizes FxConverter::sizes(const FxNode& node, std::size_t output,
                               std::vector<std::string>* symbols) const {
  ImportSizes result;
  for (const std::string& text : described_.at(node.name)[output]->shape) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const bool plain = error == std::errc() && end == text.data() + text.size();
    if (symbols != nullptr) symbols->push_back(plain ? "" : text);
    if (!plain) {
      const auto given = options_.dims.find(text);
      if (given == options_.dims.end()) {
        wrong(node,
              fmt::format("dimension {} is symbolic: give its size with --dim \"{}=SIZE\", or export with "
                          "static shapes",
                          text, text));
      }
      size = given->second;
    }
    result.push_back(size);
  }
  return result;
}

TensorId FxConverter::result(const FxNode& node, std::size_t output) {
  std::vector<TensorId>& of = made_[node.name];
  if (output < of.size() && of[output].valid()) return of[output];
  if (!says(node, output)) {
    wrong(node,
          fmt::format("{}: its result has no type and shape: export with example inputs, or print the graph "
                      "with print_readable()",
                      node.target));
  }
  std::vector<std::string> symbols;
  const ImportSizes shape = sizes(node, output, &symbols);
  const std::string name = output == 0 ? node.name : fmt::format("{}.{}", node.name, output);
  const TensorId id = builder.add_tensor(name, TensorKind::kActivation, dtype(node, output), shape, symbols);
  if (of.size() <= output) of.resize(output + 1);
  of[output] = id;
  return id;
}

std::vector<TensorId> FxConverter::results(const FxNode& node) {
  std::vector<TensorId> made;
  const auto found = described_.find(node.name);
  const std::size_t count = found == described_.end() ? 1 : std::max<std::size_t>(1, found->second.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (says(node, i)) made.push_back(result(node, i));
  }
  if (made.empty()) made.push_back(result(node));  // Says what is missing.
  return made;
}

void FxConverter::stands_for(const FxNode& node, TensorId tensor, std::size_t output) {
  if (says(node, output)) {
    if (sizes(node, output) != builder.sizes(tensor)) {
      wrong(node, fmt::format("{}: its shape isn't that of {}, which it hands on", node.target,
                              builder[tensor].name));
    }
  }
  std::vector<TensorId>& of = made_[node.name];
  if (of.size() <= output) of.resize(output + 1);
  of[output] = tensor;
}

void FxConverter::add(const FxNode& node, OpKind kind, std::vector<TensorId> inputs,
                      std::vector<TensorId> outputs, OpAttributes attributes, std::string_view suffix) {
  builder.add({node.name + std::string(suffix), kind, std::move(inputs), std::move(outputs),
               std::move(attributes), node.module});
}

void FxConverter::placeholder(const FxNode& node) {
  if (!says(node, 0)) {
    wrong(node,
          "the placeholder has no type and shape; one that is a number and not a tensor has to be fixed "
          "when the graph is exported");
  }
  const TensorKind kind = node.role == FxRole::kParameter ? TensorKind::kParameter
                          : node.role == FxRole::kBuffer  ? TensorKind::kBuffer
                                                          : TensorKind::kInput;
  std::vector<std::string> symbols;
  const ImportSizes shape = sizes(node, 0, &symbols);
  const std::string& name = node.tensor_name.empty() ? node.name : node.tensor_name;
  const TensorId id = builder.add_tensor(name, kind, dtype(node, 0), shape, symbols);
  if (!made_.emplace(node.name, std::vector<TensorId>{id}).second) wrong(node, "two nodes have this name");
  if (node.role == FxRole::kTangent) tangents_.insert(id);
}

// What the getitems of a tuple say of its parts.
void FxConverter::collect_getitems() {
  std::size_t described_parts = 0;
  for (const FxNode& node : program_.nodes) {
    if (node.kind != FxNode::Kind::kGetItem) {
      if (node.outputs.size() > kMostOutputs) wrong(node, "more than 100,000 outputs");
      described_[node.name] = node.outputs;
      continue;
    }
    if (node.arguments.size() != 2 || node.arguments[0].kind != FxValue::Kind::kNode ||
        node.arguments[1].kind != FxValue::Kind::kInteger) {
      continue;
    }
    const std::int64_t index = node.arguments[1].integer;
    const auto of = described_.find(node.arguments[0].text);
    if (of == described_.end() || index < 0 || index >= static_cast<std::int64_t>(kMostOutputs)) continue;
    auto& parts = of->second;
    const std::size_t needed = static_cast<std::size_t>(index) + 1;
    if (parts.size() < needed) {
      described_parts += needed - parts.size();
      if (described_parts > kMostParts) wrong(node, "the tuples of the graph have more than a million parts");
      parts.resize(needed);
    }
    auto& part = parts[static_cast<std::size_t>(index)];
    if (!part && !node.outputs.empty()) part = node.outputs[0];
  }
}

void FxConverter::get_item(const FxNode& node) {
  const bool picks = node.arguments.size() == 2 && node.arguments[0].kind == FxValue::Kind::kNode &&
                     node.arguments[1].kind == FxValue::Kind::kInteger;
  if (!picks) wrong(node, "getitem takes a node and a number");
  const auto of = made_.find(node.arguments[0].text);
  const auto index = static_cast<std::size_t>(node.arguments[1].integer);
  if (of == made_.end() || index >= of->second.size() || !of->second[index].valid()) {
    wrong(node, fmt::format("{} has no output {} with a type and shape", node.arguments[0].text,
                            node.arguments[1].integer));
  }
  const TensorId part = of->second[index];
  made_[node.name] = {part};
}

bool FxConverter::reads_tangent(const FxNode& node) const {
  for (const TensorId input : all_tensors(node)) {
    if (tangents_.contains(input)) return true;
  }
  return false;
}

void FxConverter::apply(const FxNode& node) {
  if (!backward_ && (node.backward || (!tangents_.empty() && reads_tangent(node)))) {
    backward_ = true;
    builder.begin_backward();
  }
  if (made_.contains(node.name)) wrong(node, "two nodes have this name");
  apply_fx_operator(*this, node);
}

// A gradient is a tensor of its own, also where it is another one's value: that of x in x + y is the sum's.
TensorId FxConverter::own_result(TensorId tensor, const FxResult& result) {
  const Tensor& value = builder[tensor];
  if (value.producer.valid() && !value.gradient_of.valid()) return tensor;
  const std::string name = fmt::format("{}.of.{}", result.node, result.gradient_of);
  const TensorId copy = builder.add_result(name, value.dtype, builder.sizes(tensor));
  OpAttributes attributes;
  attributes.word = "copy";
  attributes.view = true;
  builder.add({name, OpKind::kElementwise, {tensor}, {copy}, attributes, ""});
  return copy;
}

Graph FxConverter::run() {
  collect_getitems();
  for (const FxNode& node : program_.nodes) {
    switch (node.kind) {
      case FxNode::Kind::kPlaceholder: placeholder(node); break;
      case FxNode::Kind::kGetItem: get_item(node); break;
      case FxNode::Kind::kCall: apply(node); break;
    }
  }
  std::vector<TensorId> outputs;
  for (const FxResult& result : program_.results) {
    if (result.node.empty()) continue;
    const auto found = made_.find(result.node);
    if (found == made_.end() || found->second.empty() || !found->second[0].valid()) {
      builder.wrong("output", fmt::format("returns {}, which no node makes", result.node));
    }
    const TensorId tensor = found->second[0];
    if (result.gradient_of.empty()) {
      if (std::find(outputs.begin(), outputs.end(), tensor) == outputs.end()) outputs.push_back(tensor);
      continue;
    }
    const auto of = made_.find(result.gradient_of);
    if (of == made_.end())
      builder.wrong(result.node, fmt::format("is the gradient of {}, which is no node", result.gradient_of));
    builder.set_gradient(own_result(tensor, result), of->second[0]);
  }
  if (outputs.empty()) {
    for (const FxResult& result : program_.results) {  // A backward graph by itself returns gradients only.
      if (!result.node.empty()) outputs.push_back(made_.find(result.node)->second[0]);
    }
  }
  if (outputs.empty()) builder.wrong("output", "the graph returns no tensor");
  return builder.finish(program_.name.empty() ? "fx" : program_.name, outputs);
}

Graph build_fx_graph(const FxProgram& program, std::string_view place, const ImportOptions& options) {
  return FxConverter(program, place, options).run();
}

}  // namespace orrery
