#include "model/import_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

class Guard : public nlohmann::json_sax<Json> {
 public:
  Guard(std::string_view text, std::string_view place) : text_(text), place_(place) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(std::string&) override { return true; }

  bool parse_error(std::size_t byte, const std::string&, const Json::exception&) override {
    const std::size_t at = std::min(byte == 0 ? 0 : byte - 1, text_.size());
    const std::string_view before = text_.substr(0, at);
    const std::size_t line_start = before.rfind('\n') + 1;  // 0 when there is none.
    fail(ErrorKind::kInput, "{}:{}:{}: not JSON here; the file may have been cut", place_,
         std::count(before.begin(), before.end(), '\n') + 1, at - line_start + 1);
  }

 private:
  bool open() {
    if (++depth_ > 64) fail(ErrorKind::kInput, "{}: JSON nested deeper than 64", place_);
    return true;
  }

  std::string_view text_;
  std::string_view place_;
  int depth_ = 0;
};

}  // namespace

void expect_json(std::string_view text, std::string_view place) {
  Guard guard(text, place);
  Json::sax_parse(text, &guard);
}

}  // namespace orrery
