#include "base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace orrery {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t scale;
};

constexpr std::array<Unit, 5> kTimeUnits{
    {{"s", 1'000'000'000'000}, {"ms", 1'000'000'000}, {"us", 1'000'000}, {"ns", 1'000}, {"ps", 1}}};

constexpr std::array<Unit, 9> kByteUnits{{{"TB", 1'000'000'000'000},
                                          {"GB", 1'000'000'000},
                                          {"MB", 1'000'000},
                                          {"kB", 1'000},
                                          {"TiB", 1LL << 40},
                                          {"GiB", 1LL << 30},
                                          {"MiB", 1LL << 20},
                                          {"KiB", 1LL << 10},
                                          {"B", 1}}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

struct Quantity {
  double number = 0;
  bool whole = false;        // Written without point or exponent.
  std::int64_t integer = 0;  // Exact, when whole.
  std::string_view unit;
};

std::optional<Quantity> split(std::string_view text) {
  text = trimmed(text);
  Quantity quantity;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, quantity.number);
  if (error != std::errc() || !std::isfinite(quantity.number)) return std::nullopt;
  const auto [whole_stop, whole_error] = std::from_chars(begin, end, quantity.integer);
  quantity.whole = whole_error == std::errc() && whole_stop == stop;
  quantity.unit = trimmed(std::string_view(stop, static_cast<std::size_t>(end - stop)));
  return quantity;
}

std::optional<std::int64_t> scaled(const Quantity& quantity, std::int64_t scale) {
  if (quantity.whole) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(quantity.integer, scale, &product)) return std::nullopt;
    return product;
  }
  const double product = quantity.number * static_cast<double>(scale);
  if (std::abs(product) > 9e18) return std::nullopt;
  return std::llround(product);
}

template <std::size_t n>
const Unit* find_unit(const std::array<Unit, n>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

std::optional<SimTime> parse_time(std::string_view text) {
  const auto quantity = split(text);
  if (!quantity) return std::nullopt;
  const Unit* const unit = find_unit(kTimeUnits, quantity->unit);
  if (unit == nullptr) return std::nullopt;
  const auto picoseconds = scaled(*quantity, unit->scale);
  if (!picoseconds) return std::nullopt;
  return SimTime{*picoseconds};
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  const auto quantity = split(text);
  if (!quantity) return std::nullopt;
  if (quantity->unit.empty()) return scaled(*quantity, 1);
  const Unit* const unit = find_unit(kByteUnits, quantity->unit);
  if (unit == nullptr) return std::nullopt;
  return scaled(*quantity, unit->scale);
}

std::optional<double> parse_bandwidth(std::string_view text) {
  const auto quantity = split(text);
  if (!quantity || !quantity->unit.ends_with("/s")) return std::nullopt;
  std::string_view unit = quantity->unit;
  unit.remove_suffix(2);
  if (unit.ends_with('b')) {  // Bits: "Gb", "Mb", "Tb", always powers of 1000.
    constexpr std::array<Unit, 5> kBitUnits{
        {{"Tb", 1'000'000'000'000}, {"Gb", 1'000'000'000}, {"Mb", 1'000'000}, {"kb", 1'000}, {"b", 1}}};
    const Unit* const bits = find_unit(kBitUnits, unit);
    if (bits == nullptr) return std::nullopt;
    return quantity->number * static_cast<double>(bits->scale) / 8.0;
  }
  const Unit* const bytes = find_unit(kByteUnits, unit);
  if (bytes == nullptr) return std::nullopt;
  return quantity->number * static_cast<double>(bytes->scale);
}

std::string format_time(SimTime time) {
  const double seconds = time.seconds();
  const double magnitude = std::abs(seconds);
  if (time == SimTime{}) return "0 s";
  if (magnitude >= 1.0) return fmt::format("{:.3f} s", seconds);
  if (magnitude >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  if (magnitude >= 1e-6) return fmt::format("{:.3f} us", seconds * 1e6);
  return fmt::format("{:.3f} ns", seconds * 1e9);
}

std::string exact_time(SimTime time) {
  // Zero and everything below a second reads in microseconds where it can: the unit of GPU kernels.
  const std::int64_t picoseconds = time.picoseconds;
  if (picoseconds == 0) return "0us";
  for (const Unit& unit : kTimeUnits) {
    if (picoseconds % unit.scale == 0) return fmt::format("{}{}", picoseconds / unit.scale, unit.name);
  }
  return {};
}

std::string format_bytes(double bytes) {
  const double magnitude = std::abs(bytes);
  if (magnitude >= 0x1p40) return fmt::format("{:.2f} TiB", bytes * 0x1p-40);
  if (magnitude >= 0x1p30) return fmt::format("{:.2f} GiB", bytes * 0x1p-30);
  if (magnitude >= 0x1p20) return fmt::format("{:.1f} MiB", bytes * 0x1p-20);
  if (magnitude >= 0x1p10) return fmt::format("{:.1f} KiB", bytes * 0x1p-10);
  return fmt::format("{:.0f} B", bytes);
}

std::string exact_bytes(std::int64_t bytes) {
  std::string best = fmt::format("{}B", bytes);
  if (bytes == 0) return best;
  for (const Unit& unit : kByteUnits) {
    if (bytes % unit.scale != 0) continue;
    std::string candidate = fmt::format("{}{}", bytes / unit.scale, unit.name);
    if (candidate.size() < best.size()) best = std::move(candidate);
  }
  return best;
}

std::string format_count(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;  // After the sign.
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > first; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

}  // namespace orrery
