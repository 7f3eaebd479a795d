#pragma once
// The fields of a small JSON file as a flat list of paths, each with its place in the file, so that a
// reader can name field, line and column in whatever it has to say. Strict where a config file
// usually goes wrong (duplicate keys, depth, size), lenient with Python's NaN and Infinity.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct JsonField {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;               // Integers have it too. NaN stands for NaN and the infinities.
  std::string text;              // Of a string.
  std::vector<JsonField> items;  // Of an array; empty where an item is itself an array or object.
  std::int32_t line = 0;
  std::int32_t column = 0;

  bool null() const { return kind == Kind::kNull; }
  bool number() const { return kind == Kind::kInteger || kind == Kind::kReal; }
  // "4096", "\"silu\"", "null", "an array": for messages, shortened.
  std::string shown() const;
};

// Fields of the root object by name, those of objects in it as "object.name"; what lies deeper is checked
// for syntax and left out.
// THROWS Error(kInput) "place:line:column: …": not JSON, a duplicate key, deeper than 64, more than 1 MiB,
// a root that isn't an object.
class JsonFields {
 public:
  JsonFields(std::string_view json, std::string_view place);

  const std::string& place() const { return place_; }
  const std::map<std::string, JsonField>& all() const { return fields_; }

  // Null where the file has no such field. Marks it as read.
  const JsonField* find(const std::string& path) const;
  // Whether it is there and not null.
  bool present(const std::string& path) const;
  // "text_config.num_experts" within text_config: for messages.
  std::string shown(const std::string& path) const { return object_ + path; }
  bool was_read(const std::string& path) const { return read_.contains(path); }

  // The fields of one object of the root, as if they were the root's. What lies deeper is left out.
  JsonFields within(const std::string& object) const;

  // THROWS Error "place:line:column: path: …".
  [[noreturn]] void wrong(const std::string& path, std::string_view what) const;

 private:
  JsonFields() = default;

  std::string place_;
  std::string object_;  // "" or "object.", before every path in a message.
  std::map<std::string, JsonField> fields_;
  mutable std::set<std::string> read_;
};

}  // namespace orrery
