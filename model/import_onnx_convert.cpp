#include "model/import_onnx_convert.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery {

void OnnxConverter::wrong(const OnnxNode& node, std::string_view what) const {
  builder.wrong(node.name, what);
}

bool OnnxConverter::has_input(const OnnxNode& node, std::size_t i) const {
  return i < node.inputs.size() && !node.inputs[i].empty();
}

bool OnnxConverter::wanted(const OnnxNode& node, std::size_t i) const {
  return i < node.outputs.size() && !node.outputs[i].empty() && (i == 0 || read.contains(node.outputs[i]));
}

const OnnxValue& OnnxConverter::value(const OnnxNode& node, std::size_t i) const {
  if (!has_input(node, i)) wrong(node, fmt::format("{} has no input {}", node.op, i));
  return values.find(node.inputs[i])->second;
}

// A constant that is read as data is a tensor from then on.
TensorId OnnxConverter::tensor(const OnnxNode& node, std::size_t i) {
  const OnnxValue& known = value(node, i);
  if (known.tensor.valid()) return known.tensor;
  const std::string& name = node.inputs[i];
  OnnxValue& made = values.find(name)->second;
  made.tensor = builder.add_result(name, made.constant->dtype, made.constant->sizes);
  OpAttributes attributes;
  attributes.word = "constant";
  if (made.constant->values.size() <= 16) attributes.constants = made.constant->values;
  builder.add({"constant " + name, OpKind::kFill, {}, {made.tensor}, attributes, ""});
  return made.tensor;
}

const ImportSizes& OnnxConverter::sizes(const OnnxNode& node, std::size_t i) const {
  const OnnxValue& known = value(node, i);
  return known.tensor.valid() ? builder.sizes(known.tensor) : known.constant->sizes;
}

DType OnnxConverter::dtype(const OnnxNode& node, std::size_t i) const {
  const OnnxValue& known = value(node, i);
  return known.tensor.valid() ? builder[known.tensor].dtype : known.constant->dtype;
}

const OnnxConstant* OnnxConverter::constant(const OnnxNode& node, std::size_t i) const {
  if (!has_input(node, i)) return nullptr;
  const OnnxValue& known = value(node, i);
  return known.constant ? &*known.constant : nullptr;
}

std::vector<std::int64_t> OnnxConverter::known_integers(const OnnxNode& node, std::size_t i) const {
  const OnnxConstant* known = constant(node, i);
  if (known != nullptr) return known->integers();
  wrong(node,
        fmt::format("{}: {} depends on data, and so does the shape of the result; a static graph can't have "
                    "it: export with fixed sizes",
                    node.op, has_input(node, i) ? node.inputs[i] : fmt::format("input {}", i)));
}

std::int64_t OnnxConverter::integer(const OnnxNode& node, const char* attribute,
                                    std::int64_t standard) const {
  const auto found = node.attributes.find(attribute);
  return found == node.attributes.end() ? standard : found->second.integer;
}

double OnnxConverter::number(const OnnxNode& node, const char* attribute, double standard) const {
  const auto found = node.attributes.find(attribute);
  return found == node.attributes.end() ? standard : found->second.number;
}

std::vector<std::int64_t> OnnxConverter::integers(const OnnxNode& node, const char* attribute) const {
  const auto found = node.attributes.find(attribute);
  return found == node.attributes.end() ? std::vector<std::int64_t>{} : found->second.integers;
}

std::int64_t OnnxConverter::axis(const OnnxNode& node, std::int64_t axis, std::size_t rank) const {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count) {
    wrong(node, fmt::format("{}: dimension {} of a tensor with {}", node.op, axis, rank));
  }
  return axis < 0 ? axis + count : axis;
}

TensorId OnnxConverter::output(const OnnxNode& node, std::size_t i, DType dtype, const ImportSizes& sizes) {
  if (i >= node.outputs.size() || node.outputs[i].empty()) {
    return inner(node, fmt::format(".out{}", i), dtype, sizes);
  }
  const TensorId made = builder.add_result(node.outputs[i], dtype, sizes);
  set(node, i, {made, std::nullopt});
  return made;
}

TensorId OnnxConverter::inner(const OnnxNode& node, std::string_view suffix, DType dtype,
                              const ImportSizes& sizes) {
  return builder.add_result(node.name + std::string(suffix), dtype, sizes);
}

void OnnxConverter::set(const OnnxNode& node, std::size_t i, OnnxValue value) {
  values[node.outputs[i]] = std::move(value);
}

void OnnxConverter::add(const OnnxNode& node, OpKind kind, std::vector<TensorId> inputs,
                        std::vector<TensorId> outputs, OpAttributes attributes, std::string_view suffix) {
  builder.add({node.name + std::string(suffix), kind, std::move(inputs), std::move(outputs),
               std::move(attributes), node.module});
}

void OnnxConverter::add_one(const OnnxNode& node, OpKind kind, std::vector<TensorId> inputs, DType dtype,
                            const ImportSizes& sizes, OpAttributes attributes) {
  add(node, kind, std::move(inputs), {output(node, 0, dtype, sizes)}, std::move(attributes));
}

}  // namespace orrery
