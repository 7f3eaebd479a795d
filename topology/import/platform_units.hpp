#pragma once
// Quantities as SimGrid's files write them: "10Gbps", "1.25GBps", "50us", "98.095Gf"; bare numbers are bytes
// per second, seconds and flops per second.

#include <optional>
#include <string_view>

namespace orrery {

// Nothing for anything else, and for what is negative or not finite.
std::optional<double> parse_platform_bandwidth(std::string_view text);
std::optional<double> parse_platform_latency(std::string_view text);
std::optional<double> parse_platform_speed(std::string_view text);

}  // namespace orrery
