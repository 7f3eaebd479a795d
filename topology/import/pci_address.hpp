#pragma once
// Addresses of PCI functions. Tools write them in several ways ("0000:07:00.0", "00000000:07:00.0",
// "07:00.0", "0000:0A:00.0"); compared and printed, they have one.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery {

struct PciAddress {
  std::uint32_t domain = 0, bus = 0, device = 0, function = 0;
  auto operator<=>(const PciAddress&) const = default;
};

// Nothing for what is no address, such as NCCL's sentinel "fffffff:ffff:ff" for switches that are hidden.
std::optional<PciAddress> parse_pci_address(std::string_view text);

std::string to_string(const PciAddress& address);  // "0000:07:00.0"

// The one way to write what `text` says; text that is no address in lower case.
std::string normal_bus_id(std::string_view text);

// As the kernel and NVML number devices: by address, text that is no address last.
bool bus_id_less(std::string_view a, std::string_view b);

}  // namespace orrery
