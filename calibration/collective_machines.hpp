#pragma once
// Machines of published collective measurements, from the little that their tables say.

#include <optional>
#include <string>
#include <string_view>

#include "topology/cluster.hpp"

namespace orrery {

struct MachineRefusal {
  std::string reason;  // Why nothing can be said.
};

struct PublishedMachine {
  NodeType node;
  bool one_domain = false;  // NVLink joins all GPUs, whatever number of hosts they sit in.
};

// `gpu` and `interconnect` as the table has them. Exactly one of the two is there.
struct MachineAnswer {
  std::optional<PublishedMachine> machine;
  MachineRefusal refusal;
};
MachineAnswer published_machine(std::string_view gpu, std::string_view interconnect);

}  // namespace orrery
