#pragma once
// The bottom of the readers of other tools' logs: a text's lines without what terminals and launchers put
// around them, and a cursor that takes exactly what it is asked for.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::log_text {

// Blanks and tabs off both ends.
std::string_view trimmed(std::string_view text);
// The text without terminal escapes ("ESC[4m") and carriage returns.
std::string plain(std::string_view text);
// Behind a launcher's tag ("0: ", "[1,0]<stdout>:"), without blanks at its ends.
std::string_view untagged(std::string_view line);
std::vector<std::string_view> lines(std::string_view text);
std::vector<std::string_view> words(std::string_view text);

// Whole of `text`, or nothing.
std::optional<std::int64_t> whole_integer(std::string_view text);
std::optional<double> whole_number(std::string_view text);  // Finite.

class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }
  void blanks();
  // Takes `literal` where it stands next. A blank in it stands for any number of blanks, none too.
  bool skip(std::string_view literal);
  // Behind the next `literal`, wherever it stands.
  bool seek(std::string_view literal);
  // From −2³¹+1 to 2³¹−1: what the readers keep.
  std::optional<std::int32_t> integer();
  std::optional<std::int64_t> long_integer();
  std::optional<std::uint64_t> hex();  // Without a leading 0x.
  std::optional<double> number();
  std::string_view word();                         // Up to the next blank.
  std::string_view until(std::string_view stops);  // Up to the next of these characters, or all.

 private:
  std::string_view rest_;
};

}  // namespace orrery::log_text
