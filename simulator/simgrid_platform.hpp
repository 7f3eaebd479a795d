#pragma once
// What SimGrid makes of a platform file: a check of files that are written for it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

struct SimgridWay {
  double bytes_per_s = 0;  // Of its narrowest link.
  double latency_s = 0;    // Of all its links, before any network model's factors.
};

// The way of each pair of hosts, by name. SimGrid loads the text in a process of its own.
// THROWS Error(kRuntime) with SimGrid's message when it doesn't load, or has no such host.
std::vector<SimgridWay> simgrid_ways(std::string_view platform,
                                     const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace orrery
