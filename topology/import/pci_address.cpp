#include "topology/import/pci_address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

namespace orrery {
namespace {

// The hexadecimal number up to `end`, which is taken off `rest` with it. An empty `end` takes all of it.
std::optional<std::uint32_t> take_hex(std::string_view& rest, std::string_view end, std::uint32_t largest) {
  const std::size_t length = end.empty() ? rest.size() : rest.find(end);
  if (length == std::string_view::npos || length == 0) return std::nullopt;
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + length, value, 16);
  if (error != std::errc() || stop != rest.data() + length || value > largest) return std::nullopt;
  rest.remove_prefix(std::min(rest.size(), length + end.size()));
  return value;
}

}  // namespace

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  PciAddress address;
  if (std::ranges::count(text, ':') == 2) {
    // Virtual machines' domains go beyond 16 bits; the sentinels for hidden switches begin with 28.
    const std::optional<std::uint32_t> domain = take_hex(text, ":", 0xffffff);
    if (!domain) return std::nullopt;
    address.domain = *domain;
  }
  const std::optional<std::uint32_t> bus = take_hex(text, ":", 0xff);
  if (!bus) return std::nullopt;
  const std::optional<std::uint32_t> device = take_hex(text, ".", 0x1f);
  if (!device) return std::nullopt;
  const std::optional<std::uint32_t> function = take_hex(text, "", 7);
  if (!function) return std::nullopt;
  address.bus = *bus;
  address.device = *device;
  address.function = *function;
  return address;
}

std::string to_string(const PciAddress& address) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", address.domain, address.bus, address.device,
                     address.function);
}

std::string normal_bus_id(std::string_view text) {
  if (const std::optional<PciAddress> address = parse_pci_address(text)) return to_string(*address);
  std::string lower(text);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

bool bus_id_less(std::string_view a, std::string_view b) {
  const std::optional<PciAddress> first = parse_pci_address(a), second = parse_pci_address(b);
  if (first && second) return *first < *second;
  if (first.has_value() != second.has_value()) return first.has_value();
  return a < b;
}

}  // namespace orrery
