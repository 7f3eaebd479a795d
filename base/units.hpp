#pragma once
// Quantities as people write them. Parsers take exactly one number and one unit ("10us", "1.5 GB",
// "400Gb/s") and return nothing for anything else; printers choose the unit that reads best.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/sim_time.hpp"

namespace orrery {

// ps, ns, us, ms, s. Exact to the picosecond.
std::optional<SimTime> parse_time(std::string_view text);

// B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024). A bare number is bytes.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// GB/s, MB/s, … (bytes) and Gb/s, Mb/s, Tb/s (bits). Returns bytes per second.
std::optional<double> parse_bandwidth(std::string_view text);

// "123.4 us". For tables.
std::string format_time(SimTime time);
// Shortest exact form that parse_time reads back: "10us", "1500ns", "3ps".
std::string exact_time(SimTime time);
// "79.2 GiB". For tables.
std::string format_bytes(double bytes);
// Shortest exact form that parse_bytes reads back: "1MB", "4KiB", "1025B".
std::string exact_bytes(std::int64_t bytes);
// Thousands separated: 16,384.
std::string format_count(std::int64_t count);

}  // namespace orrery
