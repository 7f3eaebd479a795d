#pragma once
// A YAML document as a tree that remembers where everything stood. Stricter than YAML: one document, no
// aliases (so a small file stays a small tree), no tags, no repeated keys, bounded depth and size.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  bool quoted = false;                             // kScalar: "8" in quotes is text, not a number.
  std::string text;                                // kScalar.
  std::vector<std::string> keys;                   // kMap, in the file's order.
  std::vector<YamlNode> children;                  // kMap: one value per key; kList: the items.
  std::vector<std::pair<int, int>> key_positions;  // kMap: line and column of each key, from 1.
  int line = 0, column = 0;                        // From 1.
  std::string origin;                              // Not from the file: the override it came from.

  const YamlNode* find(std::string_view key) const;
};

// THROWS Error(kInput) "place:line:column: …".
YamlNode parse_yaml(std::string_view text, std::string_view place);

// Applies "path.to.key=value", making the maps on the way. THROWS Error(kInput) when the path leads through
// something that isn't a map.
void apply_override(YamlNode& root, std::string_view override_text);

// The text as it may stand in a message: in quotes, shortened, control characters escaped.
std::string quote(std::string_view text);

}  // namespace orrery
