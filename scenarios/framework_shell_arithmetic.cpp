// $((…)) as far as launch scripts use it.

#include "scenarios/framework_shell_expand.hpp"
#include "scenarios/framework_shell_scan.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr int kDeepest = 32;

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const ShellVariables& variables) : rest_(text), variables_(variables) {}

  std::optional<std::int64_t> value() {
    const auto result = sum(0);
    skip_blanks();
    return rest_.empty() ? result : std::nullopt;
  }

 private:
  using Number = std::optional<std::int64_t>;

  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }

  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Number sum(int depth) {
    Number left = product(depth);
    while (left) {
      std::int64_t result = 0;
      const bool plus = take('+');
      if (!plus && !take('-')) return left;
      const Number right = product(depth);
      const bool overflow = !right || (plus ? __builtin_add_overflow(*left, *right, &result)
                                            : __builtin_sub_overflow(*left, *right, &result));
      if (overflow) return std::nullopt;
      left = result;
    }
    return left;
  }

  Number product(int depth) {
    Number left = factor(depth);
    while (left) {
      skip_blanks();
      if (rest_.starts_with("**")) return std::nullopt;
      std::int64_t result = 0;
      if (take('*')) {
        const Number right = factor(depth);
        if (!right || __builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      } else if (rest_.starts_with('/') || rest_.starts_with('%')) {
        const bool divides = take('/');
        if (!divides) take('%');
        const Number right = factor(depth);
        // The one quotient that doesn't fit is that of the smallest number and -1.
        if (!right || *right == 0 || *right == -1) return std::nullopt;
        result = divides ? *left / *right : *left % *right;
      } else {
        return left;
      }
      left = result;
    }
    return left;
  }

  Number factor(int depth) {
    if (depth > kDeepest) return std::nullopt;
    if (take('-')) {
      const Number value = factor(depth + 1);
      std::int64_t result = 0;
      if (!value || __builtin_sub_overflow(std::int64_t{0}, *value, &result)) return std::nullopt;
      return result;
    }
    if (take('(')) {
      const Number value = sum(depth + 1);
      return take(')') ? value : std::nullopt;
    }
    const std::string_view name = shell_name(rest_);
    if (!name.empty()) {
      rest_.remove_prefix(name.size());
      const auto found = variables_.all().find(name);
      if (found == variables_.all().end() || found->second.size() != 1) return std::nullopt;
      return parse_integer(found->second[0].text);
    }
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const Number value = parse_integer(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return value;
  }

  std::string_view rest_;
  const ShellVariables& variables_;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(std::string_view text, const ShellVariables& variables) {
  return Arithmetic(text, variables).value();
}

}  // namespace orrery
