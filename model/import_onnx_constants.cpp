// Sizes that are worked out from sizes (Shape → Gather → Concat → Reshape): the nodes that only handle
// constants are calculated while reading.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "model/import_onnx_convert.hpp"

namespace orrery {
namespace {

using Convert = OnnxConverter;
using Constants = std::vector<const OnnxConstant*>;

constexpr double kLargest = 4e15;  // Whole numbers are exact in a double up to 2^53.

std::int64_t count(const ImportSizes& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

bool is_integer(DType type) {
  return type == DType::kInt64 || type == DType::kInt32 || type == DType::kUint8;
}

using Binary = double (*)(double, double);
const std::map<std::string_view, Binary>& binaries() {
  static const std::map<std::string_view, Binary> kBinaries = {
      {"Add", [](double a, double b) { return a + b; }},
      {"Sub", [](double a, double b) { return a - b; }},
      {"Mul", [](double a, double b) { return a * b; }},
      {"Div", [](double a, double b) { return b == 0 ? 0.0 : a / b; }},
      {"Max", [](double a, double b) { return std::max(a, b); }},
      {"Min", [](double a, double b) { return std::min(a, b); }},
      {"Pow", [](double a, double b) { return std::pow(a, b); }},
      {"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
      {"And", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"Or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }}};
  return kBinaries;
}

// Element i of `part` repeated to `whole`.
double repeated(const OnnxConstant& part, const ImportSizes& whole, std::int64_t index) {
  std::int64_t at = 0;
  std::int64_t stride = 1;
  for (std::size_t i = 1; i <= whole.size(); ++i) {
    const std::int64_t size = whole[whole.size() - i];
    const std::int64_t here = index % size;
    index /= size;
    if (i > part.sizes.size()) continue;
    const std::int64_t own = part.sizes[part.sizes.size() - i];
    if (own > 1) at += here * stride;
    stride *= own;
  }
  return part.values[static_cast<std::size_t>(at)];
}

// Nothing where the shapes don't fit or the result is too large to keep.
std::optional<OnnxConstant> broadcast(const Constants& in,
                                      const std::function<double(const std::vector<double>&)>& of) {
  ImportSizes sizes = in[0]->sizes;
  for (const OnnxConstant* one : in) {
    ImportSizes next;
    if (!broadcast_sizes(sizes, one->sizes, next)) return std::nullopt;
    sizes = next;
  }
  double elements = 1;
  for (const std::int64_t size : sizes) elements *= static_cast<double>(size);
  if (elements > static_cast<double>(kOnnxMostConstant)) return std::nullopt;
  OnnxConstant result;
  result.dtype = in.back()->dtype;
  result.sizes = sizes;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(elements); ++i) {
    std::vector<double> values;
    for (const OnnxConstant* one : in) values.push_back(repeated(*one, sizes, i));
    result.values.push_back(of(values));
  }
  return result;
}

OnnxConstant list(std::vector<double> values, DType type = DType::kInt64) {
  OnnxConstant result;
  result.dtype = type;
  result.sizes = {static_cast<std::int64_t>(values.size())};
  result.values = std::move(values);
  return result;
}

// Along the first dimension of a list.
std::optional<OnnxConstant> sliced(const Convert& c, const OnnxNode& node, const Constants& in) {
  const OnnxConstant& x = *in[0];
  if (x.sizes.size() != 1 || in.size() < 3) return std::nullopt;
  const auto starts = in[1]->integers();
  const auto ends = in[2]->integers();
  const auto steps = in.size() > 4 ? in[4]->integers() : std::vector<std::int64_t>{1};
  if (starts.size() != 1 || ends.size() != 1 || steps.size() != 1) return std::nullopt;
  if (steps[0] < 1) c.wrong(node, "a slice that runs backwards");
  const std::int64_t size = x.sizes[0];
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  std::vector<double> values;
  for (std::int64_t i = place(starts[0]); i < place(ends[0]); i += std::min(steps[0], size)) {
    values.push_back(x.values[static_cast<std::size_t>(i)]);
  }
  return list(std::move(values), x.dtype);
}

std::optional<OnnxConstant> gathered(const Convert& c, const OnnxNode& node, const Constants& in) {
  const OnnxConstant& x = *in[0];
  if (x.sizes.size() != 1 || in.size() < 2) return std::nullopt;
  OnnxConstant result;
  result.dtype = x.dtype;
  result.sizes = in[1]->sizes;
  for (const std::int64_t index : in[1]->integers()) {
    const std::int64_t at = index < 0 ? index + x.sizes[0] : index;
    if (at < 0 || at >= x.sizes[0]) c.wrong(node, fmt::format("index {} of a list of {}", index, x.sizes[0]));
    result.values.push_back(x.values[static_cast<std::size_t>(at)]);
  }
  return result;
}

std::optional<OnnxConstant> joined(const Constants& in) {
  std::vector<double> values;
  for (const OnnxConstant* one : in) {
    if (one->sizes.size() != 1) return std::nullopt;
    values.insert(values.end(), one->values.begin(), one->values.end());
  }
  if (values.size() > static_cast<std::size_t>(kOnnxMostConstant)) return std::nullopt;
  return list(std::move(values), in[0]->dtype);
}

std::optional<OnnxConstant> range(const Constants& in) {
  if (in.size() != 3 || in[2]->values[0] == 0) return std::nullopt;
  const double count = std::ceil((in[1]->values[0] - in[0]->values[0]) / in[2]->values[0]);
  if (!(count >= 1 && count <= static_cast<double>(kOnnxMostConstant))) return std::nullopt;
  std::vector<double> values;
  for (int i = 0; i < static_cast<int>(count); ++i) values.push_back(in[0]->values[0] + i * in[2]->values[0]);
  return list(std::move(values), in[0]->dtype);
}

// The shape of a result of as many elements; one size may be −1.
std::optional<OnnxConstant> reshaped(OnnxConstant x, std::vector<std::int64_t> sizes) {
  const auto total = static_cast<std::int64_t>(x.values.size());
  std::int64_t known = 1;
  for (const std::int64_t size : sizes) {
    if (size > kOnnxMostConstant || size < -1) return std::nullopt;
    if (size > 0) known *= size;
    if (known > kOnnxMostConstant) return std::nullopt;
  }
  for (std::int64_t& size : sizes) {
    if (size == -1 && known > 0) size = total / known;
  }
  if (sizes.size() > 16 || count(sizes) != total) return std::nullopt;
  x.sizes = std::move(sizes);
  return x;
}

std::optional<OnnxConstant> filled(const OnnxNode& node, const Constants& in) {
  OnnxConstant result;
  std::int64_t total = 1;
  for (const std::int64_t size : in[0]->integers()) {
    if (size < 0 || size > kOnnxMostConstant) return std::nullopt;
    total *= size;
    result.sizes.push_back(size);
    if (total > kOnnxMostConstant || result.sizes.size() > 16) return std::nullopt;
  }
  const auto given = node.attributes.find("value");
  const bool known =
      given != node.attributes.end() && given->second.tensor && !given->second.tensor->values.empty();
  result.dtype = known ? given->second.tensor->dtype : DType::kFp32;
  result.values.assign(static_cast<std::size_t>(total), known ? given->second.tensor->values[0] : 0.0);
  return result;
}

std::optional<OnnxConstant> constant_node(const OnnxNode& node) {
  if (node.attributes.size() != 1) return std::nullopt;
  const auto& [name, attribute] = *node.attributes.begin();
  if (name == "value") return attribute.tensor;
  if (name == "value_int") return OnnxConstant{DType::kInt64, {}, {static_cast<double>(attribute.integer)}};
  if (name == "value_float") return OnnxConstant{DType::kFp32, {}, {attribute.number}};
  if (name == "value_ints") {
    std::vector<double> values(attribute.integers.begin(), attribute.integers.end());
    return list(std::move(values));
  }
  return std::nullopt;
}

std::optional<OnnxConstant> cast(const OnnxNode& node, OnnxConstant x) {
  const auto to = node.attributes.find("to");
  const std::int64_t type = to == node.attributes.end() ? 0 : to->second.integer;
  const bool whole = type == 7 || type == 6 || type == 9;
  x.dtype = type == 7 ? DType::kInt64 : type == 6 ? DType::kInt32 : type == 9 ? DType::kUint8 : DType::kFp32;
  for (double& value : x.values) value = whole ? std::trunc(value) : value;
  return x;
}

std::optional<OnnxConstant> folded(const Convert& c, const OnnxNode& node, const Constants& in) {
  const std::string& op = node.op;
  if (op == "Constant") return constant_node(node);
  if (in.empty() || in[0] == nullptr) return std::nullopt;
  if (const auto binary = binaries().find(op); binary != binaries().end() && in.size() == 2) {
    auto result = broadcast(in, [&](const std::vector<double>& v) { return binary->second(v[0], v[1]); });
    const bool test = op == "Equal" || op == "Less" || op == "Greater" || op == "And" || op == "Or";
    if (result && test) result->dtype = DType::kUint8;
    if (result && op == "Div" && is_integer(result->dtype)) {
      for (double& value : result->values) value = std::trunc(value);
    }
    return result;
  }
  if (op == "Where" && in.size() == 3) {
    return broadcast(in, [](const std::vector<double>& v) { return v[0] != 0 ? v[1] : v[2]; });
  }
  if (op == "Identity") return *in[0];
  if (op == "Cast") return cast(node, *in[0]);
  if (op == "Neg" || op == "Sqrt" || op == "Floor" || op == "Ceil" || op == "Not") {
    OnnxConstant x = *in[0];
    for (double& v : x.values) {
      v = op == "Neg"     ? -v
          : op == "Sqrt"  ? std::sqrt(std::max(v, 0.0))
          : op == "Floor" ? std::floor(v)
          : op == "Ceil"  ? std::ceil(v)
          : v == 0        ? 1.0
                          : 0.0;
    }
    return x;
  }
  if (op == "Gather") return gathered(c, node, in);
  if (op == "Slice") return sliced(c, node, in);
  if (op == "Concat") return joined(in);
  if (op == "Range") return range(in);
  if (op == "ConstantOfShape") return filled(node, in);
  if (op == "Reshape" && in.size() == 2) return reshaped(*in[0], in[1]->integers());
  if (op == "Unsqueeze" && in[0]->sizes.empty()) return reshaped(*in[0], {1});
  if (op == "Squeeze" && in[0]->values.size() == 1) return reshaped(*in[0], {});
  if (op == "ReduceProd" || op == "ReduceSum") {
    if (in[0]->sizes.size() != 1) return std::nullopt;
    double total = op == "ReduceProd" ? 1 : 0;
    for (const double value : in[0]->values) total = op == "ReduceProd" ? total * value : total + value;
    OnnxConstant result{in[0]->dtype, {}, {total}};
    if (c.integer(node, "keepdims", 1) != 0) result.sizes = {1};
    return result;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::int64_t> OnnxConstant::integers() const {
  std::vector<std::int64_t> result;
  for (const double value : values) {
    result.push_back(std::isfinite(value) ? static_cast<std::int64_t>(std::clamp(value, -kLargest, kLargest))
                                          : 0);
  }
  return result;
}

bool fold_onnx(OnnxConverter& convert, const OnnxNode& node) {
  if (node.outputs.size() != 1) return false;
  OnnxValue result;
  if (node.op == "Shape" || node.op == "Size") {  // Of data, too.
    if (node.inputs.size() != 1) return false;
    const ImportSizes& sizes = convert.sizes(node, 0);
    std::vector<double> values(sizes.begin(), sizes.end());
    if (node.op == "Shape") {
      result.constant = list(std::move(values));
    } else {
      double total = 1;
      for (const double value : values) total *= value;
      result.constant = OnnxConstant{DType::kInt64, {}, {total}};
    }
  } else {
    Constants in;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!convert.has_input(node, i)) return false;
      const OnnxConstant* one = convert.constant(node, i);
      if (one == nullptr || one->values.empty()) return false;
      in.push_back(one);
    }
    result.constant = folded(convert, node, in);
    if (!result.constant || result.constant->values.empty()) return false;
    for (const double value : result.constant->values) {
      if (is_integer(result.constant->dtype) && !(std::abs(value) <= kLargest)) {
        convert.wrong(node, fmt::format("{} makes {}, too large a number for a size", node.op, value));
      }
    }
  }
  convert.set(node, 0, std::move(result));
  return true;
}

}  // namespace orrery
