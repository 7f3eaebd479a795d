#include "topology/import/platform_units.hpp"

#include <charconv>
#include <cmath>

namespace orrery {
namespace {

struct Quantity {
  double number = 0;
  std::string_view unit;
};

std::optional<Quantity> split(std::string_view text) {
  Quantity quantity;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, quantity.number);
  if (error != std::errc() || !std::isfinite(quantity.number) || quantity.number < 0) return std::nullopt;
  quantity.unit = std::string_view(stop, static_cast<std::size_t>(end - stop));
  return quantity;
}

// k, M, G, … by 1000, Ki, Mi, … by 1024, in front of `base`.
std::optional<double> scale(std::string_view unit, std::string_view base) {
  if (!unit.ends_with(base)) return std::nullopt;
  unit.remove_suffix(base.size());
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  if (binary) unit.remove_suffix(1);
  if (unit.empty()) return 1;
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  const std::size_t power = kPrefixes.find(binary && unit[0] == 'K' ? 'k' : unit[0]);
  if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

std::optional<double> product(double number, std::optional<double> factor) {
  if (!factor || !std::isfinite(number * *factor)) return std::nullopt;
  return number * *factor;
}

}  // namespace

std::optional<double> parse_platform_bandwidth(std::string_view text) {
  const std::optional<Quantity> quantity = split(text);
  if (!quantity) return std::nullopt;
  if (quantity->unit.empty()) return quantity->number;
  if (const std::optional<double> bytes = scale(quantity->unit, "Bps"))
    return product(quantity->number, bytes);
  return product(quantity->number / 8, scale(quantity->unit, "bps"));
}

std::optional<double> parse_platform_latency(std::string_view text) {
  constexpr struct {
    std::string_view unit;
    double seconds;
  } kUnits[] = {{"", 1},       {"s", 1},  {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
                {"ps", 1e-12}, {"m", 60}, {"h", 3600},  {"d", 86400}, {"w", 604800}};
  const std::optional<Quantity> quantity = split(text);
  if (!quantity) return std::nullopt;
  for (const auto& each : kUnits)
    if (each.unit == quantity->unit) return product(quantity->number, each.seconds);
  return std::nullopt;
}

std::optional<double> parse_platform_speed(std::string_view text) {
  const std::optional<Quantity> quantity = split(text);
  if (!quantity) return std::nullopt;
  if (quantity->unit.empty()) return quantity->number;
  if (const std::optional<double> flops = scale(quantity->unit, "f")) return product(quantity->number, flops);
  return product(quantity->number, scale(quantity->unit, "flops"));
}

}  // namespace orrery
