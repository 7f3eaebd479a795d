#pragma once
// The little JSON that the probe writes. It is built on GPU machines without any library of ours.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::cuda {

// Members in the order in which they were added.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, double value);  // null when it isn't finite.
  JsonObject& add(std::string_view key, std::int64_t value);
  JsonObject& add(std::string_view key, int value) { return add(key, static_cast<std::int64_t>(value)); }
  JsonObject& add(std::string_view key, std::string_view value);
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, const JsonObject& value);
  JsonObject& add(std::string_view key, const std::vector<JsonObject>& values);  // One a line.

  std::string line() const;   // {"a": 1, "b": 2}
  std::string lines() const;  // One member a line.

 private:
  std::vector<std::pair<std::string, std::string>> members_;  // Key and value as JSON.
};

}  // namespace orrery::cuda
