#pragma once
// A table of published measurements of collectives, as measurements on machines.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "calibration/collective_calibration.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct MeasuredMachine {
  Router router;
  Profile profile;  // The default for its GPU.
};

struct PublishedCollective {
  std::string id, source, gpu, interconnect, collective;
  std::string refusal;  // Why it can't be predicted; then the rest is empty.
  double size_bytes = 0;
  bool one_node = true;  // Or one NVLink domain.
  CollectiveMeasurement measured;
  std::shared_ptr<const MeasuredMachine> machine;  // Rows of one machine and node count share it.
};

// The rows of the table, in its order. THROWS Error(kInput) for a file that isn't such a table.
std::vector<PublishedCollective> read_published_collectives(const std::filesystem::path& file);

}  // namespace orrery
