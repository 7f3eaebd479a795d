// ModelProto → Graph: inputs, initializers, nodes in their order, outputs.

#include "model/import_onnx.hpp"

#include <fmt/format.h>

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "model/import_onnx_convert.hpp"

namespace orrery {
namespace {

constexpr int kMostNodes = 1'000'000;

std::optional<DType> onnx_dtype(std::int32_t type) {
  switch (type) {
    case 1: return DType::kFp32;
    case 2:
    case 3:
    case 9: return DType::kUint8;  // uint8, int8, bool
    case 6:
    case 12: return DType::kInt32;  // int32, uint32
    case 7:
    case 13: return DType::kInt64;  // int64, uint64
    case 10: return DType::kFp16;
    case 16: return DType::kBf16;
    case 17:
    case 18:
    case 19:
    case 20: return DType::kFp8;  // Newer than onnx.proto 1.12: e4m3, e5m2 and kin.
    default: return std::nullopt;
  }
}

bool is_float(DType type) {
  return type == DType::kFp32 || type == DType::kFp16 || type == DType::kBf16 || type == DType::kFp8;
}

class OnnxReader {
 public:
  OnnxReader(const onnx::ModelProto& model, std::string_view place, const ImportOptions& options)
      : model_(model), place_(place), options_(options), convert_(place) {}
  Graph run();

 private:
  [[noreturn]] void wrong(std::string_view where, std::string_view what) const {
    fail(ErrorKind::kInput, "{}: {}: {}", place_, where, what);
  }
  DType dtype(std::int32_t type, const std::string& name) const;
  std::optional<OnnxConstant> constant(const onnx::TensorProto& tensor) const;
  void check_symbols() const;
  void initializer(const onnx::TensorProto& tensor);
  void input(const onnx::ValueInfoProto& info);
  OnnxNode node(const onnx::NodeProto& proto, int index);
  void apply(const onnx::NodeProto& proto, int index);
  std::vector<TensorId> outputs();

  const onnx::ModelProto& model_;
  std::string place_;
  const ImportOptions& options_;
  OnnxConverter convert_;
  std::set<std::string> node_names_;
};

DType OnnxReader::dtype(std::int32_t type, const std::string& name) const {
  const std::optional<DType> known = onnx_dtype(type);
  if (known) return *known;
  wrong(name, fmt::format("data type {}{}; expected float, float16, bfloat16, float8 or an integer", type,
                          type == 11 ? " (double), with which nobody trains" : ""));
}

// Values of one type out of raw bytes.
template <class T>
void take_raw(const std::string& raw, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value{};
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

// Nothing for tensors that are large or stored elsewhere, or of a type whose values no shape is made of.
std::optional<OnnxConstant> OnnxReader::constant(const onnx::TensorProto& tensor) const {
  OnnxConstant result;
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.dims()) {
    if (size < 0 || size > kOnnxMostConstant) return std::nullopt;
    count *= size;
    if (count > kOnnxMostConstant || result.sizes.size() > 16) return std::nullopt;
    result.sizes.push_back(size);
  }
  const bool external = tensor.data_location() == onnx::TensorProto::EXTERNAL;
  const std::optional<DType> type = onnx_dtype(tensor.data_type());
  if (external || !type) return std::nullopt;
  result.dtype = *type;
  const auto elements = static_cast<std::size_t>(count);
  result.values.assign(elements, 0.0);
  const std::string& raw = tensor.raw_data();
  const auto raw_fits = [&](std::size_t bytes) { return raw.size() == elements * bytes; };
  const int wide = static_cast<int>(count);
  switch (tensor.data_type()) {
    case 7:
      if (raw_fits(8)) return take_raw<std::int64_t>(raw, result.values), result;
      if (tensor.int64_data_size() != wide) return std::nullopt;
      std::copy(tensor.int64_data().begin(), tensor.int64_data().end(), result.values.begin());
      return result;
    case 1:
      if (raw_fits(4)) return take_raw<float>(raw, result.values), result;
      if (tensor.float_data_size() != wide) return std::nullopt;
      std::copy(tensor.float_data().begin(), tensor.float_data().end(), result.values.begin());
      return result;
    case 2:
    case 3:
    case 6:
    case 9:
      if (tensor.data_type() == 6 && raw_fits(4)) return take_raw<std::int32_t>(raw, result.values), result;
      if (tensor.data_type() != 6 && raw_fits(1)) return take_raw<std::int8_t>(raw, result.values), result;
      if (tensor.int32_data_size() != wide) return std::nullopt;
      std::copy(tensor.int32_data().begin(), tensor.int32_data().end(), result.values.begin());
      return result;
    case 10:
    case 16:  // Half precision scalars: that it is one counts, not which.
      if (count > 1) return std::nullopt;
      return result;
    default: return std::nullopt;
  }
}

// Every symbol without a size at once, so that one more run is enough.
void OnnxReader::check_symbols() const {
  std::vector<std::string> missing;
  for (const onnx::ValueInfoProto& info : model_.graph().input()) {
    for (const auto& dim : info.type().tensor_type().shape().dim()) {
      const std::string& name = dim.dim_param();
      const bool known = name.empty() || options_.dims.contains(name) ||
                         std::find(missing.begin(), missing.end(), name) != missing.end();
      if (!known) missing.push_back(name);
    }
  }
  if (missing.empty()) return;
  std::string arguments;
  for (const std::string& name : missing) arguments += fmt::format(" --dim \"{}=SIZE\"", name);
  fail(ErrorKind::kInput, "{}: the inputs have symbolic dimensions; give their sizes:{}", place_, arguments);
}

void OnnxReader::initializer(const onnx::TensorProto& tensor) {
  const std::string& name = tensor.name();
  OnnxValue value;
  value.constant = constant(tensor);
  const DType type = dtype(tensor.data_type(), name);
  const bool scalar = value.constant && value.constant->values.size() <= 1;
  if (is_float(type) && !scalar) {
    value.tensor = convert_.builder.add_tensor(name, TensorKind::kParameter, type,
                                               ImportSizes(tensor.dims().begin(), tensor.dims().end()));
  } else if (!value.constant) {
    value.tensor = convert_.builder.add_tensor(name, TensorKind::kBuffer, type,
                                               ImportSizes(tensor.dims().begin(), tensor.dims().end()));
  }
  if (!convert_.values.emplace(name, std::move(value)).second) wrong(name, "two initializers have this name");
}

void OnnxReader::input(const onnx::ValueInfoProto& info) {
  const std::string& name = info.name();
  if (convert_.values.contains(name)) return;  // Older files list the initializers, too.
  if (!info.type().has_tensor_type()) {
    wrong(name, "the input isn't a tensor (a sequence, map or optional); export without it");
  }
  const auto& type = info.type().tensor_type();
  if (!type.has_shape()) {
    wrong(name, "the input has no rank; export with example inputs so that every input has a shape");
  }
  ImportSizes sizes;
  std::vector<std::string> symbols;
  for (const auto& dim : type.shape().dim()) {
    const std::string& symbol = dim.dim_param();
    if (symbol.empty() && !dim.has_dim_value()) {
      wrong(name, fmt::format("dimension {} has neither a size nor a name", sizes.size()));
    }
    sizes.push_back(symbol.empty() ? dim.dim_value() : options_.dims.at(symbol));
    symbols.push_back(symbol);
  }
  OnnxValue value;
  value.tensor =
      convert_.builder.add_tensor(name, TensorKind::kInput, dtype(type.elem_type(), name), sizes, symbols);
  convert_.values.emplace(name, value);
}

OnnxNode OnnxReader::node(const onnx::NodeProto& proto, int index) {
  OnnxNode node;
  const std::string& domain = proto.domain();
  node.op = domain.empty() || domain == "ai.onnx" ? proto.op_type() : domain + "." + proto.op_type();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  node.name = proto.name();
  if (node.name.empty() && !node.outputs.empty()) node.name = node.outputs[0];
  if (node.name.empty()) node.name = fmt::format("node{}", index);
  if (node.name.find_first_of("/.") != std::string::npos) node.module = node.name;
  while (!node_names_.insert(node.name).second) node.name += fmt::format("#{}", index);
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    OnnxAttribute& made = node.attributes[attribute.name()];
    made.number = static_cast<double>(attribute.f());
    made.integer = attribute.i();
    made.text = attribute.s();
    made.integers.assign(attribute.ints().begin(), attribute.ints().end());
    if (attribute.has_t()) made.tensor = constant(attribute.t());
    if (attribute.has_g() || attribute.graphs_size() > 0) {
      convert_.wrong(
          node, fmt::format("{} is control flow; a static graph has none: export the branch that training "
                            "takes, or unroll the loop",
                            node.op));
    }
  }
  return node;
}

void OnnxReader::apply(const onnx::NodeProto& proto, int index) {
  const OnnxNode made = node(proto, index);
  for (const std::string& output : made.outputs) {
    if (!output.empty() && convert_.values.contains(output)) {
      convert_.wrong(made, fmt::format("makes {}, which is there already", output));
    }
  }
  for (const std::string& input : made.inputs) {
    if (!input.empty() && !convert_.values.contains(input)) {
      convert_.wrong(made,
                     fmt::format("reads {}, which no input, initializer or node before it makes", input));
    }
  }
  if (proto.op_type() == "Constant" && proto.attribute_size() == 1 && proto.attribute(0).has_t() &&
      !made.attributes.begin()->second.tensor && !made.outputs.empty()) {
    onnx::TensorProto large = proto.attribute(0).t();  // Too large for a constant: weights.
    large.set_name(made.outputs[0]);
    return initializer(large);
  }
  if (fold_onnx(convert_, made)) return;
  apply_onnx_operator(convert_, made);
}

std::vector<TensorId> OnnxReader::outputs() {
  std::vector<TensorId> result;
  for (const onnx::ValueInfoProto& info : model_.graph().output()) {
    const auto found = convert_.values.find(info.name());
    if (found == convert_.values.end()) wrong(info.name(), "the output isn't made by any node");
    if (!found->second.tensor.valid()) wrong(info.name(), "the output doesn't depend on any input");
    if (std::find(result.begin(), result.end(), found->second.tensor) == result.end()) {
      result.push_back(found->second.tensor);
    }
  }
  if (result.empty()) wrong("graph", "has no outputs");
  return result;
}

Graph OnnxReader::run() {
  const onnx::GraphProto& graph = model_.graph();
  if (graph.node_size() == 0) wrong("graph", "has no nodes");
  if (graph.node_size() > kMostNodes) wrong("graph", fmt::format("more than {} nodes", kMostNodes));
  if (model_.functions_size() > 0)
    wrong("functions", "the model has functions of its own; export with them inlined");
  for (const auto& node : graph.node()) convert_.read.insert(node.input().begin(), node.input().end());
  for (const auto& info : graph.output()) convert_.read.insert(info.name());
  for (const auto& tensor : graph.initializer()) initializer(tensor);
  if (graph.sparse_initializer_size() > 0) wrong("graph", "sparse initializers aren't read");
  check_symbols();
  for (const auto& info : graph.input()) input(info);
  for (int i = 0; i < graph.node_size(); ++i) apply(graph.node(i), i);
  const std::vector<TensorId> made = outputs();
  return convert_.builder.finish(graph.name().empty() ? "onnx" : graph.name(), made);
}

}  // namespace

Graph read_onnx(std::string_view bytes, std::string_view place, const ImportOptions& options) {
  onnx::ModelProto model;
  const bool fits = bytes.size() < static_cast<std::size_t>(std::numeric_limits<int>::max());
  if (!fits || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !model.has_graph()) {
    fail(ErrorKind::kInput, "{}: not an ONNX model{}", place,
         fits ? "; the file may have been cut" : ": 2 GB or more; save it with external data");
  }
  return OnnxReader(model, place, options).run();
}

}  // namespace orrery
