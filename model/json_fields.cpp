#include "model/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

// Config files are a few kB and 3 deep; the limits keep what a broken one can cost small.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kLongestKey = 256;

struct Position {
  std::int32_t line = 1;
  std::int32_t column = 1;
};

Position position_of(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  Position result;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] != '\n') continue;
    ++result.line;
    line_start = i + 1;
  }
  result.column = static_cast<std::int32_t>(offset - line_start) + 1;
  return result;
}

// json.dump of Python writes NaN, Infinity and -Infinity, which JSON doesn't have but published configs
// do. They become strings of as many characters (so that places stay right) that no text could hold by
// accident: nothing but DEL.
constexpr char kNotFinite = '\x7f';

std::string without_not_finite(std::string_view json) {
  std::string text(json);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (text.compare(i, word.size(), word) != 0) continue;
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(i), word.size(), kNotFinite);
        text[i] = text[i + word.size() - 1] = '"';
        i += word.size() - 1;
        break;
      }
    }
  }
  return text;
}

bool is_not_finite(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kNotFinite) == std::string_view::npos;
}

// Lets the SAX handler know how far the parser has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(std::string_view text, std::string_view place, std::map<std::string, JsonField>& fields)
      : text_(text), place_(place), fields_(fields), reached_(text.data()) {}

  const char** reached() { return &reached_; }

  bool null() override { return value({}); }
  bool boolean(bool boolean) override {
    JsonField field;
    field.kind = JsonField::Kind::kBool;
    field.boolean = boolean;
    return value(std::move(field));
  }
  bool number_integer(std::int64_t integer) override {
    JsonField field;
    field.kind = JsonField::Kind::kInteger;
    field.integer = integer;
    field.real = static_cast<double>(integer);
    return value(std::move(field));
  }
  bool number_unsigned(std::uint64_t integer) override {
    if (integer > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_float(static_cast<double>(integer), {});
    }
    return number_integer(static_cast<std::int64_t>(integer));
  }
  bool number_float(double real, const std::string&) override {
    JsonField field;
    field.kind = JsonField::Kind::kReal;
    field.real = real;
    return value(std::move(field));
  }
  bool string(std::string& text) override {
    if (is_not_finite(text)) return number_float(std::numeric_limits<double>::quiet_NaN(), {});
    JsonField field;
    field.kind = JsonField::Kind::kString;
    field.text = std::move(text);
    return value(std::move(field));
  }
  bool binary(Json::binary_t&) override { return value({}); }  // Not in text.

  bool start_object(std::size_t) override {
    open(JsonField::Kind::kObject);
    return true;
  }
  bool start_array(std::size_t) override {
    open(JsonField::Kind::kArray);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const std::size_t offset = key_offset();
    Level& level = levels_.back();
    if (name.size() > kLongestKey) wrong(offset, "a key of more than 256 characters");
    if (!level.keys.insert(name).second) wrong(offset, fmt::format("duplicate key '{}'", name));
    level.key = name;
    level.position = position(offset);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …": the place is
    // ours to say.
    std::string_view what = error.what();
    for (const std::string_view before : {"] ", "parse error", ": "}) {
      const std::size_t found = what.find(before);
      if (found != std::string_view::npos) what.remove_prefix(found + before.size());
    }
    wrong(byte == 0 ? 0 : byte - 1, fmt::format("not JSON: {}", what));
  }

 private:
  struct Level {
    JsonField::Kind kind;
    std::set<std::string> keys;
    std::string key;  // The one whose value comes next.
    Position position;
  };

  [[noreturn]] void wrong(std::size_t offset, std::string_view what) const {
    const Position at = position_of(text_, offset);
    fail(ErrorKind::kInput, "{}:{}:{}: {}", place_, at.line, at.column, what);
  }

  // The parser has just read the closing quote of a key; the opening one is the nearest before it
  // that isn't escaped.
  std::size_t key_offset() const {
    std::size_t at = static_cast<std::size_t>(reached_ - text_.data()) - 1;
    for (bool open = false; !open && at > 0;) {
      at = text_.rfind('"', at - 1);
      std::size_t escapes = 0;
      while (escapes < at && text_[at - 1 - escapes] == '\\') ++escapes;
      open = escapes % 2 == 0;
    }
    return at;
  }

  // Like position_of, from where the last call stopped.
  Position position(std::size_t offset) {
    for (; scanned_ < offset; ++scanned_) {
      if (text_[scanned_] != '\n') continue;
      ++line_;
      line_start_ = scanned_ + 1;
    }
    return {line_, static_cast<std::int32_t>(offset - line_start_) + 1};
  }

  void open(JsonField::Kind kind) {
    if (levels_.size() == kMostDepth) {
      wrong(static_cast<std::size_t>(reached_ - text_.data()) - 1, "nested deeper than 64");
    }
    JsonField field;
    field.kind = kind;
    value(std::move(field));
    levels_.push_back({kind, {}, {}, {}});
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  bool value(JsonField field) {
    if (levels_.empty()) {
      if (field.kind != JsonField::Kind::kObject) wrong(0, "expected an object of fields, { … }");
      return true;
    }
    const Level& level = levels_.back();
    const bool in_object = level.kind == JsonField::Kind::kObject;
    const std::size_t objects = levels_.size() - (in_object ? 0 : 1);
    const bool reachable =
        objects >= 1 && objects <= 2 &&
        std::all_of(levels_.begin(), levels_.begin() + static_cast<std::ptrdiff_t>(objects),
                    [](const Level& outer) { return outer.kind == JsonField::Kind::kObject; });
    if (!reachable) return true;
    std::string path = levels_[0].key;
    if (objects == 2) path += "." + levels_[1].key;
    if (!in_object) {
      field.line = fields_[path].line;
      field.column = fields_[path].column;
      fields_[path].items.push_back(std::move(field));
      return true;
    }
    field.line = level.position.line;
    field.column = level.position.column;
    fields_[path] = std::move(field);
    return true;
  }

  std::string_view text_;
  std::string_view place_;
  std::map<std::string, JsonField>& fields_;
  const char* reached_;
  std::vector<Level> levels_;
  std::size_t scanned_ = 0;
  std::int32_t line_ = 1;
  std::size_t line_start_ = 0;
};

// At most 40 bytes, cut where a character of UTF-8 begins.
std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return text;
  std::size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "…";
}

}  // namespace

std::string JsonField::shown() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return boolean ? "true" : "false";
    case Kind::kInteger: return fmt::format("{}", integer);
    case Kind::kReal: return std::isnan(real) ? "a number that isn't finite" : fmt::format("{}", real);
    case Kind::kString: return "\"" + shortened(text) + "\"";
    case Kind::kArray: return "an array";
    case Kind::kObject: return "an object";
  }
  return "?";
}

JsonFields::JsonFields(std::string_view json, std::string_view place) : place_(place) {
  if (json.size() > kMostBytes) {
    fail(ErrorKind::kInput, "{}: {} bytes; a config.json has at most {}", place, json.size(), kMostBytes);
  }
  const std::string text = without_not_finite(json);
  Handler handler(text, place_, fields_);
  const char* const end = text.data() + text.size();
  Json::sax_parse(CountingIterator(text.data(), handler.reached()), CountingIterator(end, handler.reached()),
                  &handler);
}

JsonFields JsonFields::within(const std::string& object) const {
  JsonFields inner;
  inner.place_ = place_;
  inner.object_ = object_ + object + ".";
  const std::string prefix = object + ".";
  for (const auto& [path, field] : fields_) {
    if (path.starts_with(prefix)) inner.fields_.emplace(path.substr(prefix.size()), field);
  }
  return inner;
}

const JsonField* JsonFields::find(const std::string& path) const {
  const auto found = fields_.find(path);
  if (found == fields_.end()) return nullptr;
  read_.insert(path);
  return &found->second;
}

bool JsonFields::present(const std::string& path) const {
  const JsonField* field = find(path);
  return field != nullptr && !field->null();
}

void JsonFields::wrong(const std::string& path, std::string_view what) const {
  const auto found = fields_.find(path);
  if (found == fields_.end()) fail(ErrorKind::kInput, "{}: {}: {}", place_, shown(path), what);
  fail(ErrorKind::kInput, "{}:{}:{}: {}: {}", place_, found->second.line, found->second.column, shown(path),
       what);
}

}  // namespace orrery
