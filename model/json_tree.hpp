#pragma once
// JSON files of our own formats, read strictly: every value is asked for by name, with what it may be, and
// what is wrong is told with file and field, as "host.json: kernels[3].seconds: is -1; expected …".

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

struct JsonMember;

struct JsonNode {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;  // Integers have it too.
  std::string text;
  std::vector<JsonNode> items;
  std::vector<JsonMember> members;  // In the file's order.
};

struct JsonMember {
  std::string key;
  JsonNode node;
};

// THROWS Error(kInput) "place: …": not JSON, a key twice, deeper than 16, more than 256 keys in an
// object, larger than 256 MiB.
JsonNode parse_json_tree(std::string_view json, std::string_view place);

// An object of such a tree, with the way to it. Every function THROWS Error(kInput) naming place and field.
class JsonObject {
 public:
  // REQUIRES: `node` and `place` outlive it.
  JsonObject(const JsonNode& node, std::string_view place, std::string path = "");

  // Faults a key that isn't among these.
  void only(std::initializer_list<std::string_view> keys) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  double number(std::string_view key, double min, double max) const;
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t min, std::int64_t max) const;
  JsonObject object(std::string_view key) const;
  std::vector<JsonObject> objects(std::string_view key) const;

  [[noreturn]] void wrong(std::string_view key, std::string_view what) const;

 private:
  const JsonNode* find(std::string_view key) const;
  const JsonNode& at(std::string_view key) const;
  std::string path_to(std::string_view key) const;

  const JsonNode& node_;
  std::string_view place_;
  std::string path_;
};

}  // namespace orrery
