// The JSON of tools/export-fx → FxProgram. docs/importing-graphs.md has the format.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/import_fx.hpp"
#include "model/import_fx_program.hpp"
#include "model/import_json.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kVersion = 1;

class FxJsonReader {
 public:
  explicit FxJsonReader(std::string_view place) : place_(place) {}
  FxProgram read(const Json& root);

 private:
  [[noreturn]] void wrong(std::string_view where, std::string_view what) const {
    fail(ErrorKind::kInput, "{}: {}: {}", place_, where, what);
  }
  std::string text(const Json& object, const char* key, std::string_view where, bool required = false) const;
  FxValue value(const Json& json, std::string_view where) const;
  FxMeta meta(const Json& json, std::string_view where) const;
  FxNode node(const Json& json);
  void placeholder(const Json& json, FxNode& node) const;
  void call(const Json& json, FxNode& node) const;
  void results(const Json& json);

  std::string place_;
  FxProgram program_;
};

std::string FxJsonReader::text(const Json& object, const char* key, std::string_view where,
                               bool required) const {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    if (required) wrong(where, fmt::format("no \"{}\"; expected a text", key));
    return "";
  }
  if (!found->is_string()) wrong(where, fmt::format("\"{}\" isn't a text", key));
  return found->get<std::string>();
}

FxValue FxJsonReader::value(const Json& json, std::string_view where) const {
  FxValue result;
  if (json.is_boolean()) {
    result.kind = FxValue::Kind::kBool;
    result.integer = json.get<bool>() ? 1 : 0;
    result.real = static_cast<double>(result.integer);
  } else if (json.is_number_integer() && json >= Json(-(std::int64_t{1} << 62)) &&
             json <= Json(std::int64_t{1} << 62)) {
    result.kind = FxValue::Kind::kInteger;
    result.integer = json.get<std::int64_t>();
    result.real = static_cast<double>(result.integer);
  } else if (json.is_number()) {
    result.kind = FxValue::Kind::kReal;
    result.real = json.get<double>();
  } else if (json.is_string()) {
    result.kind = FxValue::Kind::kWord;
    result.text = json.get<std::string>();
  } else if (json.is_array()) {
    result.kind = FxValue::Kind::kList;
    for (const Json& item : json) result.items.push_back(value(item, where));
  } else if (json.is_object()) {
    const std::string name = text(json, "node", where);
    result.kind = name.empty() ? FxValue::Kind::kWord : FxValue::Kind::kNode;
    result.text = name.empty() ? text(json, "word", where, true) : name;
  }
  return result;
}

FxMeta FxJsonReader::meta(const Json& json, std::string_view where) const {
  FxMeta result;
  result.dtype = text(json, "dtype", where, true);
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) wrong(where, "no \"shape\"; expected a list of sizes");
  for (const Json& size : *shape) {
    if (size.is_string()) {
      result.shape.push_back(size.get<std::string>());
    } else if (size.is_number_integer()) {
      result.shape.push_back(size.dump());
    } else {
      wrong(where, fmt::format("size {} is neither a whole number nor the text of a symbol", size.dump()));
    }
  }
  return result;
}

void FxJsonReader::placeholder(const Json& json, FxNode& node) const {
  const std::string role = text(json, "kind", node.name);
  if (role == "parameter") {
    node.role = FxRole::kParameter;
  } else if (role == "buffer" || role == "constant") {
    node.role = FxRole::kBuffer;
  } else if (role == "tangent") {
    node.role = FxRole::kTangent;
  } else if (role != "input" && !role.empty()) {
    wrong(node.name,
          fmt::format("kind \"{}\"; expected input, parameter, buffer, constant or tangent", role));
  }
  node.tensor_name = text(json, "tensor", node.name);
}

void FxJsonReader::call(const Json& json, FxNode& node) const {
  node.target = text(json, "target", node.name, true);
  if (const auto args = json.find("args"); args != json.end()) {
    if (!args->is_array()) wrong(node.name, "\"args\" isn't a list");
    node.arguments = value(*args, node.name).items;
  }
  if (const auto kwargs = json.find("kwargs"); kwargs != json.end()) {
    if (!kwargs->is_object()) wrong(node.name, "\"kwargs\" isn't an object");
    for (const auto& [key, item] : kwargs->items()) node.keywords[key] = value(item, node.name);
  }
  if (node.target == "getitem" || node.target.ends_with("operator.getitem"))
    node.kind = FxNode::Kind::kGetItem;
  const auto outputs = json.find("outputs");
  if (outputs == json.end()) return;
  if (!outputs->is_array()) wrong(node.name, "\"outputs\" isn't a list");
  node.outputs.clear();
  for (const Json& output : *outputs) {
    if (output.is_null()) {
      node.outputs.emplace_back();
    } else {
      node.outputs.emplace_back(meta(output, node.name));
    }
  }
}

FxNode FxJsonReader::node(const Json& json) {
  if (!json.is_object()) wrong(fmt::format("nodes[{}]", program_.nodes.size()), "isn't an object");
  FxNode node;
  node.name = text(json, "name", fmt::format("nodes[{}]", program_.nodes.size()), true);
  node.module = text(json, "module", node.name);
  if (const auto backward = json.find("backward"); backward != json.end()) node.backward = *backward == true;
  if (json.contains("shape")) node.outputs.emplace_back(meta(json, node.name));
  const std::string op = text(json, "op", node.name, true);
  if (op == "placeholder" || op == "get_attr") {
    node.kind = FxNode::Kind::kPlaceholder;
    if (op == "get_attr") node.role = FxRole::kBuffer;
    placeholder(json, node);
  } else if (op == "call_function" || op == "call_method") {
    call(json, node);
    if (op == "call_method") node.target = "." + node.target;
  } else {
    wrong(node.name,
          fmt::format("op \"{}\"; expected placeholder, get_attr, call_function, call_method or output", op));
  }
  return node;
}

void FxJsonReader::results(const Json& json) {
  const auto args = json.find("args");
  if (args != json.end()) flatten_results(value(*args, "output"), program_.results);
  const auto gradients = json.find("gradients");
  if (gradients == json.end()) return;
  if (!gradients->is_array() || gradients->size() != program_.results.size()) {
    wrong("output", "\"gradients\" isn't a list as long as the outputs");
  }
  for (std::size_t i = 0; i < program_.results.size(); ++i) {
    const Json& of = (*gradients)[i];
    if (of.is_string()) program_.results[i].gradient_of = of.get<std::string>();
  }
}

FxProgram FxJsonReader::read(const Json& root) {
  if (!root.is_object() || root.value("format", "") != "orrery-fx") {
    fail(ErrorKind::kInput, "{}: not a graph of tools/export-fx: expected \"format\": \"orrery-fx\"", place_);
  }
  const auto version = root.find("version");
  if (version == root.end() || *version != kVersion) {
    fail(ErrorKind::kInput,
         "{}: version {}; this program reads version {}: export again with its tools/export-fx", place_,
         version == root.end() ? "missing" : version->dump(), kVersion);
  }
  program_.name = text(root, "name", "name");
  const auto nodes = root.find("nodes");
  if (nodes == root.end() || !nodes->is_array()) wrong("nodes", "missing; expected a list");
  for (const Json& json : *nodes) {
    if (json.is_object() && json.value("op", "") == "output") {
      results(json);
    } else {
      program_.nodes.push_back(node(json));
    }
  }
  return std::move(program_);
}

}  // namespace

Graph read_fx_json(std::string_view json, std::string_view place, const ImportOptions& options) {
  expect_json(json, place);
  const Json root = Json::parse(json);
  try {
    return build_fx_graph(FxJsonReader(place).read(root), place, options);
  } catch (const Json::exception& error) {  // A field of another type than any rule above expects.
    fail(ErrorKind::kInput, "{}: {}", place, error.what());
  }
}

}  // namespace orrery
