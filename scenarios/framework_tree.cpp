// YAML and JSON settings as a flat list, with the references that Hydra's and Megatron's files use.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr int kDeepest = 32;
constexpr int kMostSteps = 100'000;
constexpr std::size_t kLongest = 4096;  // Of a value; references that refer to each other would fill memory.

bool is_null(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kNull ||
         (node.kind == YamlNode::Kind::kScalar && !node.quoted &&
          (node.text == "None" || node.text == "null" || node.text == "~" || node.text.empty()));
}

class YamlSettings {
 public:
  YamlSettings(const YamlNode& root, const FrameworkVariables& variables, FrameworkSettings& settings)
      : root_(root), variables_(variables), settings_(settings) {}

  void walk(const YamlNode& node, const std::string& path) {
    if (node.kind == YamlNode::Kind::kMap) {
      for (std::size_t i = 0; i < node.keys.size(); ++i) {
        maps_.push_back(&node);
        walk(node.children[i], path.empty() ? node.keys[i] : path + "." + node.keys[i]);
        maps_.pop_back();
      }
      return;
    }
    if (is_null(node) || path.empty()) return;
    FrameworkSetting setting;
    setting.name = canonical_name(path);
    setting.written = path;
    setting.line = node.line;
    setting.value = node.kind == YamlNode::Kind::kList ? list(node) : resolve(node.text, 0);
    if (setting.value.empty()) return;
    settings_.add(std::move(setting));
  }

 private:
  std::string list(const YamlNode& node) {
    std::string text = "[";
    for (const YamlNode& item : node.children) {
      if (text.size() > 1) text += ", ";
      text += item.kind == YamlNode::Kind::kScalar ? resolve(item.text, 0) : "…";
      if (text.size() > kLongest) break;
    }
    return text + "]";
  }

  std::string variable(std::string_view name, std::optional<std::string> otherwise) const {
    for (const auto& [given, value] : variables_) {
      if (given == name) return value;
    }
    return otherwise ? *otherwise : unknown_mark(name);
  }

  const YamlNode* look_up(const YamlNode* from, std::string_view path) const {
    while (from != nullptr && !path.empty()) {
      const std::size_t dot = path.find('.');
      from = from->kind == YamlNode::Kind::kMap ? from->find(path.substr(0, dot)) : nullptr;
      path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
    }
    return from;
  }

  // What ${inside} stands for.
  std::string reference(std::string_view inside, int depth) {
    if (inside.starts_with("multiply:")) return product(inside.substr(9));
    if (inside.starts_with("oc.env:")) {
      const std::string_view rest = inside.substr(7);
      const std::size_t comma = rest.find(',');
      if (comma == std::string_view::npos) return variable(rest, std::nullopt);
      std::string_view otherwise = rest.substr(comma + 1);
      while (otherwise.starts_with(' ')) otherwise.remove_prefix(1);
      return variable(rest.substr(0, comma), std::string(otherwise));
    }
    const std::size_t colon = inside.find(':');
    if (colon != std::string_view::npos) {  // ${NAME:default}, ${NAME:-default}
      std::string_view otherwise = inside.substr(colon + 1);
      if (otherwise.starts_with('-') || otherwise.starts_with('=')) otherwise.remove_prefix(1);
      return variable(inside.substr(0, colon), std::string(otherwise));
    }
    const YamlNode* node = nullptr;
    if (inside.starts_with('.')) {
      std::size_t up = 1;
      while (inside.substr(up).starts_with('.')) ++up;
      if (up <= maps_.size()) node = look_up(maps_[maps_.size() - up], inside.substr(up));
    } else {
      node = look_up(&root_, inside);
      // The file is often one part of a larger one: ${training.model.hidden_size}.
      const std::size_t dot = inside.find('.');
      if (node == nullptr && dot != std::string_view::npos) node = look_up(&root_, inside.substr(dot + 1));
    }
    if (node != nullptr && is_null(*node)) return "";
    if (node != nullptr && node->kind == YamlNode::Kind::kScalar) return resolve(node->text, depth + 1);
    return variable(inside, std::nullopt);
  }

  static std::string product(std::string_view factors) {
    std::int64_t result = 1;
    while (!factors.empty()) {
      const std::size_t comma = std::min(factors.find(','), factors.size());
      std::string_view factor = factors.substr(0, comma);
      while (factor.starts_with(' ')) factor.remove_prefix(1);
      while (factor.ends_with(' ')) factor.remove_suffix(1);
      const auto value = parse_integer(factor);
      if (!value || __builtin_mul_overflow(result, *value, &result)) return unknown_mark("multiply");
      factors.remove_prefix(std::min(comma + 1, factors.size()));
    }
    return std::to_string(result);
  }

  std::string resolve(std::string_view text, int depth) {
    if (depth > kDeepest || ++steps_ > kMostSteps) {
      fail(ErrorKind::kInput, "{}: its ${{…}} refer to themselves", settings_.place());
    }
    if (text.starts_with('$') && !text.starts_with("${")) return variable(text.substr(1), std::nullopt);
    std::string result;
    while (!text.empty()) {
      const std::size_t at = std::min(text.find("${"), text.size());
      result += text.substr(0, at);
      text.remove_prefix(at);
      if (text.empty()) break;
      int level = 0;
      std::size_t end = 1;
      for (; end < text.size(); ++end) {
        if (text[end] == '{') ++level;
        if (text[end] == '}' && --level == 0) break;
      }
      if (end == text.size()) return result + std::string(text);
      result += reference(resolve(text.substr(2, end - 2), depth + 1), depth);
      text.remove_prefix(end + 1);
      if (result.size() > kLongest)
        fail(ErrorKind::kInput, "{}: a value grows beyond 4 KiB", settings_.place());
    }
    return result;
  }

  const YamlNode& root_;
  const FrameworkVariables& variables_;
  FrameworkSettings& settings_;
  int steps_ = 0;
  std::vector<const YamlNode*> maps_;  // Around the value that is being read.
};

void walk_json(const nlohmann::json& node, const std::string& path, int depth, FrameworkSettings& settings) {
  if (depth > kDeepest) fail(ErrorKind::kInput, "{}: nested too deeply for settings", settings.place());
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      walk_json(value, path.empty() ? key : path + "." + key, depth + 1, settings);
    }
    return;
  }
  if (node.is_null() || path.empty()) return;
  FrameworkSetting setting;
  setting.name = canonical_name(path);
  setting.written = path;
  setting.value = node.is_string() ? node.get<std::string>()
                                   : node.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  settings.add(std::move(setting));
}

}  // namespace

void read_yaml_settings(const YamlNode& root, const YamlNode& from, const FrameworkVariables& variables,
                        FrameworkSettings& settings) {
  YamlSettings(root, variables, settings).walk(from, "");
}

void read_json_settings(std::string_view text, FrameworkSettings& settings) {
  try {
    // DeepSpeed's files often have comments.
    walk_json(nlohmann::json::parse(text, nullptr, true, true), "", 0, settings);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();
    const std::size_t end = what.find("] ");
    fail(ErrorKind::kInput, "{}: not valid JSON: {}", settings.place(),
         end == std::string_view::npos ? what : what.substr(end + 2));
  }
}

}  // namespace orrery
