#include "model/json_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/suggest.hpp"

namespace orrery {
namespace {

constexpr std::size_t kDeepest = 16;
constexpr std::size_t kMostKeys = 256;
constexpr std::size_t kLargest = std::size_t{256} << 20;

// Builds the tree from nlohmann's events, which know of repeated keys and of depth.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(std::string_view place) : place_(place) {}

  JsonNode take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kBool;
    node.boolean = value;
    return add(std::move(node));
  }
  bool number_integer(number_integer_t value) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kInteger;
    node.integer = value;
    node.real = static_cast<double>(value);
    return add(std::move(node));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return number_integer(static_cast<std::int64_t>(value));
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kReal;
    node.real = value;
    return add(std::move(node));
  }
  bool string(string_t& value) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kString;
    node.text = std::move(value);
    return add(std::move(node));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonNode::Kind::kObject); }
  bool start_array(std::size_t) override { return open(JsonNode::Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (open_.back().node.members.size() >= kMostKeys)
      fail(ErrorKind::kInput, "{}: an object has more than {} keys; none of our formats has", place_,
           kMostKeys);
    for (const auto& [known, ignored] : open_.back().node.members)
      if (known == value)
        fail(ErrorKind::kInput, "{}: the key '{}' stands twice in one object", place_, value);
    open_.back().key = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(ErrorKind::kInput, "{}: isn't JSON: byte {} is not expected there", place_, position);
  }

 private:
  struct Open {
    JsonNode node;
    std::string key;  // Of the member that comes next.
  };

  bool open(JsonNode::Kind kind) {
    if (open_.size() >= kDeepest)
      fail(ErrorKind::kInput, "{}: is nested more than {} deep; none of our formats is", place_, kDeepest);
    open_.emplace_back();
    open_.back().node.kind = kind;
    return true;
  }
  bool close() {
    JsonNode node = std::move(open_.back().node);
    open_.pop_back();
    return add(std::move(node));
  }
  bool add(JsonNode node) {
    if (open_.empty())
      root_ = std::move(node);
    else if (JsonNode& parent = open_.back().node; parent.kind == JsonNode::Kind::kArray)
      parent.items.push_back(std::move(node));
    else
      parent.members.push_back({std::move(open_.back().key), std::move(node)});
    return true;
  }

  std::string_view place_;
  JsonNode root_;
  std::vector<Open> open_;
};

std::string shown(const JsonNode& node) {
  constexpr std::size_t kLongest = 60;
  switch (node.kind) {
    case JsonNode::Kind::kNull: return "null";
    case JsonNode::Kind::kBool: return node.boolean ? "true" : "false";
    case JsonNode::Kind::kInteger: return fmt::format("{}", node.integer);
    case JsonNode::Kind::kReal: return fmt::format("{}", node.real);
    case JsonNode::Kind::kString:
      return node.text.size() > kLongest ? "a long text" : fmt::format("'{}'", node.text);
    case JsonNode::Kind::kArray: return "a list";
    case JsonNode::Kind::kObject: return "an object";
  }
  return "?";
}

}  // namespace

JsonNode parse_json_tree(std::string_view json, std::string_view place) {
  if (json.size() > kLargest) fail(ErrorKind::kInput, "{}: is larger than 256 MiB", place);
  TreeBuilder builder(place);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder))
    fail(ErrorKind::kInput, "{}: isn't JSON", place);
  return builder.take();
}

JsonObject::JsonObject(const JsonNode& node, std::string_view place, std::string path)
    : node_(node), place_(place), path_(std::move(path)) {
  if (node_.kind == JsonNode::Kind::kObject) return;
  fail(ErrorKind::kInput, "{}: {}is {}; expected an object", place_, path_.empty() ? "" : path_ + ": ",
       shown(node_));
}

void JsonObject::only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, ignored] : node_.members) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const std::vector<std::string> known(keys.begin(), keys.end());
    wrong(key, fmt::format("isn't known here{}", did_you_mean(key, known)));
  }
}

std::string JsonObject::text(std::string_view key) const {
  const JsonNode& node = at(key);
  if (node.kind != JsonNode::Kind::kString) wrong(key, fmt::format("is {}; expected text", shown(node)));
  return node.text;
}

bool JsonObject::boolean(std::string_view key) const {
  const JsonNode& node = at(key);
  if (node.kind != JsonNode::Kind::kBool)
    wrong(key, fmt::format("is {}; expected true or false", shown(node)));
  return node.boolean;
}

double JsonObject::number(std::string_view key, double min, double max) const {
  const JsonNode& node = at(key);
  const bool number = node.kind == JsonNode::Kind::kInteger || node.kind == JsonNode::Kind::kReal;
  if (!number || !(node.real >= min && node.real <= max))
    wrong(key, fmt::format("is {}; expected a number from {} to {}", shown(node), min, max));
  return node.real;
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const JsonNode& node = at(key);
  if (node.kind != JsonNode::Kind::kInteger || node.integer < min || node.integer > max)
    wrong(key, fmt::format("is {}; expected a whole number from {} to {}", shown(node), min, max));
  return node.integer;
}

std::vector<std::int64_t> JsonObject::integers(std::string_view key, std::int64_t min,
                                               std::int64_t max) const {
  const JsonNode& node = at(key);
  if (node.kind != JsonNode::Kind::kArray) wrong(key, fmt::format("is {}; expected a list", shown(node)));
  std::vector<std::int64_t> values;
  for (const JsonNode& item : node.items) {
    if (item.kind != JsonNode::Kind::kInteger || item.integer < min || item.integer > max)
      wrong(key, fmt::format("has {}; expected whole numbers from {} to {}", shown(item), min, max));
    values.push_back(item.integer);
  }
  return values;
}

JsonObject JsonObject::object(std::string_view key) const { return {at(key), place_, path_to(key)}; }

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
  const JsonNode& node = at(key);
  if (node.kind != JsonNode::Kind::kArray) wrong(key, fmt::format("is {}; expected a list", shown(node)));
  std::vector<JsonObject> objects;
  for (std::size_t i = 0; i < node.items.size(); ++i)
    objects.emplace_back(node.items[i], place_, fmt::format("{}[{}]", path_to(key), i));
  return objects;
}

void JsonObject::wrong(std::string_view key, std::string_view what) const {
  fail(ErrorKind::kInput, "{}: {}: {}", place_, path_to(key), what);
}

const JsonNode* JsonObject::find(std::string_view key) const {
  for (const auto& [name, node] : node_.members)
    if (name == key) return &node;
  return nullptr;
}

const JsonNode& JsonObject::at(std::string_view key) const {
  const JsonNode* node = find(key);
  if (node == nullptr) wrong(key, "is missing");
  return *node;
}

std::string JsonObject::path_to(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

}  // namespace orrery
