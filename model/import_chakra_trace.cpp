#include "model/import_chakra_trace.hpp"

#include <chakra_trace.pb.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.hpp"
#include "model/import_json.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostNodes = 20'000'000;
constexpr std::uint64_t kMostMicros = 1'000'000'000;  // No op takes a thousand seconds.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

[[noreturn]] void wrong(const ChakraFile& file, const ChakraNode& node, std::string_view what) {
  fail(ErrorKind::kInput, "{}: node {} \"{}\": {}", file.place, node.id, node.name, what);
}

// One value of any of the kinds that traces use for numbers.
std::optional<std::int64_t> number(const chakra::Attribute& attribute) {
  using A = chakra::Attribute;
  switch (attribute.value_case()) {
    case A::kDoubleVal:
    case A::kFloatVal: {
      const double value = attribute.value_case() == A::kDoubleVal
                               ? attribute.double_val()
                               : static_cast<double>(attribute.float_val());
      return std::abs(value) < 1e15 ? std::optional(std::llround(value)) : std::nullopt;
    }
    case A::kInt32Val: return attribute.int32_val();
    case A::kInt64Val: return attribute.int64_val();
    case A::kUint32Val: return attribute.uint32_val();
    case A::kUint64Val:
      return attribute.uint64_val() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                 ? std::nullopt
                 : std::optional(static_cast<std::int64_t>(attribute.uint64_val()));
    case A::kSint32Val: return attribute.sint32_val();
    case A::kSint64Val: return attribute.sint64_val();
    case A::kFixed32Val: return attribute.fixed32_val();
    case A::kSfixed32Val: return attribute.sfixed32_val();
    case A::kSfixed64Val: return attribute.sfixed64_val();
    case A::kBoolVal: return attribute.bool_val() ? 1 : 0;
    default: return std::nullopt;
  }
}

void take(ChakraNode& node, const std::string& name, std::optional<std::int64_t> value,
          const std::string& text) {
  if (name == "is_cpu_op") node.host = value.value_or(0) != 0;
  if (name == "comm_type") node.comm_type = value;
  if (name == "comm_size") node.comm_size = value;
  if (name == "comm_src") node.source = value;
  if (name == "comm_dst") node.destination = value;
  if (name == "comm_tag") node.tag = value;
  if (name == "num_ops") node.operations = value.value_or(0);
  if (name == "tensor_size") node.tensor_bytes = value.value_or(0);
  if (name == "pg_name" || name == "comm_group")
    node.group = text.empty() && value ? std::to_string(*value) : text;
}

void check(const ChakraFile& file, const ChakraNode& node, std::int64_t type) {
  if (type < 1 || type > 7) {
    wrong(file, node,
          fmt::format("node type {}; expected 1 to 7 (metadata, load, store, compute, send, receive, "
                      "collective)",
                      type));
  }
  if (node.duration_us > kMostMicros)
    wrong(file, node, fmt::format("takes {} us; more than a thousand seconds", node.duration_us));
  for (const std::int64_t bytes : {node.comm_size.value_or(0), node.tensor_bytes, node.operations / 1024}) {
    if (bytes < 0 || bytes > kMostBytes) wrong(file, node, fmt::format("a size of {}; out of range", bytes));
  }
}

// "ncclKernel_AllReduce_RING_LL_Sum_float(…)": the kind of collective, where the trace doesn't say it. The
// numbers are those of comm_type.
std::optional<std::int64_t> named_collective(std::string name) {
  std::erase_if(name, [](char c) { return c == '_' || c == '-' || c == ' '; });
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::pair<std::string_view, std::int64_t> kNames[] = {
      {"reducescatter", 7}, {"allreduce", 0}, {"allgather", 2}, {"broadcast", 5}, {"alltoall", 6}};
  for (const auto& [word, type] : kNames) {
    if (name.find(word) != std::string::npos) return type;
  }
  return std::nullopt;
}

std::vector<ChakraNode> read_protobuf(const ChakraFile& file) {
  if (file.bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    fail(ErrorKind::kInput, "{}: 2 GB or more; cut the trace to one step", file.place);
  }
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(file.bytes.data()),
                                            static_cast<int>(file.bytes.size()));
  const auto message = [&](auto& into) {
    std::uint32_t length = 0;
    if (!in.ReadVarint32(&length) || length > file.bytes.size()) return false;
    const auto limit = in.PushLimit(static_cast<int>(length));
    const bool whole = in.BytesUntilLimit() == static_cast<int>(length) && into.ParseFromCodedStream(&in) &&
                       in.BytesUntilLimit() == 0;
    in.PopLimit(limit);
    return whole;
  };
  const auto left = [&] { return static_cast<std::size_t>(in.CurrentPosition()) < file.bytes.size(); };
  chakra::Metadata metadata;
  if (!left() || !message(metadata)) {
    fail(ErrorKind::kInput,
         "{}: not a Chakra trace: expected its metadata, as a message with its length in front", file.place);
  }
  std::vector<ChakraNode> nodes;
  while (left()) {
    chakra::Node proto;
    if (!message(proto)) {
      fail(ErrorKind::kInput, "{}: byte {}: node {} is broken or cut off", file.place, in.CurrentPosition(),
           nodes.size());
    }
    ChakraNode& node = nodes.emplace_back();
    node.id = proto.id();
    node.name = proto.name();
    node.duration_us = proto.duration_micros();
    node.after.assign(proto.ctrl_deps().begin(), proto.ctrl_deps().end());
    node.after.insert(node.after.end(), proto.data_deps().begin(), proto.data_deps().end());
    for (const chakra::Attribute& attribute : proto.attr()) {
      take(node, attribute.name(), number(attribute), attribute.string_val());
    }
    check(file, node, proto.type());
    node.type = static_cast<ChakraType>(proto.type());
  }
  return nodes;
}

std::optional<std::int64_t> number(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float() && std::abs(json.get<double>()) < 1e15) return std::llround(json.get<double>());
  return std::nullopt;
}

// Keys differ between writers: "Id" and "id", "NodeType" and "type", "runtime" and "duration_micros".
ChakraNode json_node(const ChakraFile& file, const Json& json, std::size_t index) {
  ChakraNode node;
  if (!json.is_object()) fail(ErrorKind::kInput, "{}: workload_graph[{}] isn't an object", file.place, index);
  std::int64_t type = 0;
  for (const auto& [key, value] : json.items()) {
    const std::optional<std::int64_t> whole = number(value);
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    if (key == "Id" || key == "id")
      node.id = static_cast<std::uint64_t>(std::max<std::int64_t>(0, whole.value_or(0)));
    if (key == "Name" || key == "name") node.name = text;
    if (key == "NodeType" || key == "type") type = whole.value_or(0);
    if (key == "runtime" || key == "duration_micros") {
      node.duration_us = static_cast<std::uint64_t>(std::max<std::int64_t>(0, whole.value_or(0)));
    }
    if ((key == "data_deps" || key == "ctrl_deps") && value.is_array()) {
      for (const Json& one : value) {
        const std::optional<std::int64_t> id = number(one);
        if (!id || *id < 0)
          fail(ErrorKind::kInput, "{}: workload_graph[{}]: {} holds what isn't an id", file.place, index,
               key);
        node.after.push_back(static_cast<std::uint64_t>(*id));
      }
    }
    take(node, key, whole, text);
  }
  check(file, node, type);
  node.type = static_cast<ChakraType>(type);
  return node;
}

std::vector<ChakraNode> read_json(const ChakraFile& file) {
  expect_json(file.bytes, file.place);
  const Json root = Json::parse(file.bytes);
  const bool object = root.is_object();
  if (object && root.contains("schema") && root.contains("nodes")) {
    fail(ErrorKind::kInput,
         "{}: a PyTorch execution trace, which has neither times nor streams: link it with the "
         "profiler's trace and convert it (chakra_trace_link, chakra_converter), then read the .et",
         file.place);
  }
  if (object && root.contains("traceEvents")) {
    fail(ErrorKind::kInput,
         "{}: a profiler trace (Kineto), not a Chakra trace: convert it together with the execution "
         "trace (chakra_trace_link, chakra_converter)",
         file.place);
  }
  const auto graph = object ? root.find("workload_graph") : root.end();
  if (!object || graph == root.end() || !graph->is_array()) {
    fail(ErrorKind::kInput, "{}: not a Chakra trace: expected a list \"workload_graph\"", file.place);
  }
  std::vector<ChakraNode> nodes;
  for (const Json& json : *graph) nodes.push_back(json_node(file, json, nodes.size()));
  return nodes;
}

}  // namespace

std::vector<ChakraNode> read_chakra_nodes(const ChakraFile& file) {
  const std::size_t first = file.bytes.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && (file.bytes[first] == '{' || file.bytes[first] == '[');
  std::vector<ChakraNode> nodes = json ? read_json(file) : read_protobuf(file);
  if (nodes.empty()) fail(ErrorKind::kInput, "{}: the trace has no nodes", file.place);
  if (nodes.size() > kMostNodes) fail(ErrorKind::kInput, "{}: more than {} nodes", file.place, kMostNodes);
  std::unordered_set<std::uint64_t> ids;
  for (ChakraNode& node : nodes) {
    if (!ids.insert(node.id).second) wrong(file, node, "its id is that of another node");
    if (node.type == ChakraType::kCollective && !node.comm_type) node.comm_type = named_collective(node.name);
  }
  return nodes;
}

}  // namespace orrery
