#include "topology/cluster.hpp"

#include <algorithm>
#include <limits>

namespace orrery {

std::string_view to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::kUnknown: return "unknown";
    case Architecture::kVolta: return "Volta";
    case Architecture::kAmpere: return "Ampere";
    case Architecture::kAda: return "Ada";
    case Architecture::kHopper: return "Hopper";
    case Architecture::kBlackwell: return "Blackwell";
    case Architecture::kCdna3: return "CDNA";
    case Architecture::kHost: return "host";
  }
  return "";
}

double Path::bytes_per_s() const {
  double narrowest = std::numeric_limits<double>::infinity();
  for (const PathLink& link : links) narrowest = std::min(narrowest, link.bytes_per_s);
  return narrowest;
}

}  // namespace orrery
