#include "scenarios/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "base/error.hpp"

namespace orrery {
namespace {

// Scenario files nest five deep; this bounds the recursion of everything that walks the tree.
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

[[noreturn]] void fail_at(std::string_view place, const YAML::Mark& mark, std::string_view message) {
  fail(ErrorKind::kInput, "{}:{}:{}: {}", place, mark.line + 1, mark.column + 1, message);
}

// Builds the tree from yaml-cpp's events: its own Node type shares aliased subtrees and accepts repeated
// keys silently.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view place) : place_(place) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { leaf(make(mark)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    fail_at(place_, mark, "aliases (*name) aren't used in scenario files; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    refuse_tag(mark, tag);
    YamlNode node = make(mark);
    node.kind = YamlNode::Kind::kScalar;
    node.quoted = tag == "!";
    node.text = value;
    leaf(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

  YamlNode take() { return std::move(root_); }

 private:
  static YamlNode make(const YAML::Mark& mark) {
    YamlNode node;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  // yaml-cpp's own tags for untagged values: "?" for plain ones, "!" for quoted ones.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail_at(place_, mark, "tags (!…) aren't used in scenario files; write the plain value");
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    refuse_tag(mark, tag);
    refuse_as_key(mark);
    if (open_.size() >= kMaxDepth) fail_at(place_, mark, "nested too deeply for a scenario file");
    YamlNode node = make(mark);
    node.kind = kind;
    open_.push_back(std::move(node));
    awaiting_value_.push_back(false);
  }

  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    awaiting_value_.pop_back();
    place_value(std::move(node));
  }

  bool at_key() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap && !awaiting_value_.back();
  }

  void refuse_as_key(const YAML::Mark& mark) const {
    if (at_key()) fail_at(place_, mark, "a key must be a single word");
  }

  void leaf(YamlNode node) {
    if (at_key()) {
      add_key(node);
    } else {
      place_value(std::move(node));
    }
  }

  void add_key(const YamlNode& key) {
    YamlNode& map = open_.back();
    if (key.kind != YamlNode::Kind::kScalar) {
      fail(ErrorKind::kInput, "{}:{}:{}: a key is missing before ':'", place_, key.line, key.column);
    }
    const auto earlier = std::find(map.keys.begin(), map.keys.end(), key.text);
    if (earlier != map.keys.end()) {
      const auto index = static_cast<std::size_t>(earlier - map.keys.begin());
      fail(ErrorKind::kInput, "{}:{}:{}: {} is given twice; the first one is in line {}", place_, key.line,
           key.column, quote(key.text), map.key_positions[index].first);
    }
    map.keys.push_back(key.text);
    map.key_positions.emplace_back(key.line, key.column);
    awaiting_value_.back() = true;
  }

  void place_value(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    open_.back().children.push_back(std::move(node));
    awaiting_value_.back() = false;
  }

  std::string_view place_;
  YamlNode root_;
  std::vector<YamlNode> open_;
  std::vector<bool> awaiting_value_;  // By open node: a map that has its key but not yet its value.
};

// The commonest cause of a YAML error that its message doesn't name.
std::string tab_hint(std::string_view text, int line) {
  std::istringstream lines{std::string(text)};
  std::string content;
  for (int number = 0; number <= line && std::getline(lines, content); ++number) {
    const std::string indent = content.substr(0, content.find_first_not_of(" \t"));
    if (indent.find('\t') != std::string::npos) {
      return fmt::format("; line {} is indented with a tab, YAML takes only spaces", number + 1);
    }
  }
  return "";
}

YamlNode single_value(std::string_view text, std::string_view override_text) {
  if (text.empty()) return {};
  try {
    return parse_yaml(text, "value");
  } catch (const Error& error) {
    fail(ErrorKind::kInput, "--set {}: {}", quote(override_text), error.what());
  }
}

void mark_origin(YamlNode& node, const std::string& origin) {
  node.origin = origin;
  for (YamlNode& child : node.children) mark_origin(child, origin);
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &children[static_cast<std::size_t>(found - keys.begin())];
}

YamlNode parse_yaml(std::string_view text, std::string_view place) {
  if (text.size() > kMaxBytes) fail(ErrorKind::kInput, "{}: larger than 1 MiB; not a scenario file", place);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(place);
    if (!parser.HandleNextDocument(builder)) fail(ErrorKind::kInput, "{}: the file is empty", place);
    YamlNode root = builder.take();
    TreeBuilder rest(place);
    if (parser.HandleNextDocument(rest)) {
      const YamlNode second = rest.take();
      fail(ErrorKind::kInput, "{}:{}:{}: a second document begins; a file holds one scenario", place,
           second.line, second.column);
    }
    return root;
  } catch (const YAML::Exception& error) {
    fail_at(place, error.mark, "not valid YAML: " + error.msg + tab_hint(text, error.mark.line));
  }
}

void apply_override(YamlNode& root, std::string_view override_text) {
  const std::size_t equals = override_text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    fail(ErrorKind::kInput, "--set {}: expected path.to.key=value, e.g. plan.tp=4", quote(override_text));
  }
  std::string_view path = override_text.substr(0, equals);
  YamlNode value = single_value(override_text.substr(equals + 1), override_text);
  const std::string origin = fmt::format("--set {}", override_text);
  mark_origin(value, origin);

  YamlNode* node = &root;
  std::string walked = "the file";
  for (std::size_t depth = 0;; ++depth) {
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (key.empty() || depth >= kMaxDepth) {
      fail(ErrorKind::kInput, "--set {}: expected keys joined by single dots", quote(override_text));
    }
    if (node->kind == YamlNode::Kind::kNull) node->kind = YamlNode::Kind::kMap;
    if (node->kind != YamlNode::Kind::kMap) {
      fail(ErrorKind::kInput, "--set {}: {} is not a mapping; set it as a whole: --set '{}={{{}: …}}'",
           quote(override_text), walked, walked, key);
    }
    auto found = std::find(node->keys.begin(), node->keys.end(), key);
    const auto index = static_cast<std::size_t>(found - node->keys.begin());
    if (found == node->keys.end()) {
      node->keys.push_back(key);
      node->key_positions.emplace_back(0, 0);
      node->children.emplace_back();
      node->children.back().origin = origin;
    }
    node = &node->children[index];
    walked = depth == 0 ? key : walked + "." + key;
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  *node = std::move(value);
}

std::string quote(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::size_t end = std::min(text.size(), kShown);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;  // Whole UTF-8 only.
  std::string shown = "\"";
  for (const char c : text.substr(0, end)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      shown += c;
    }
  }
  return shown + (end < text.size() ? "…\"" : "\"");
}

}  // namespace orrery
