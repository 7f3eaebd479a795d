#include "topology/cluster.hpp"

#include <algorithm>
#include <limits>

namespace orrery {

double Path::bytes_per_s() const {
  double narrowest = std::numeric_limits<double>::infinity();
  for (const PathLink& link : links) narrowest = std::min(narrowest, link.bytes_per_s);
  return narrowest;
}

}  // namespace orrery
