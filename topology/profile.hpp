#pragma once
// Measured costs of one kind of machine, as data. Where nobody has measured, a Profile borrows the
// efficiency of the nearest relative and says so in `provenance`.

#include <string>
#include <vector>

namespace orrery {

struct GpuType;

// The defaults are an ideal machine, on which nothing costs more than the datasheet says.
struct Profile {
  std::string name = "ideal";

  // Fractions of the datasheet peak that sustained work reaches (burst clocks are faster: a twin fitted to
  // bursts is 10–20 % too fast).
  double matmul_efficiency = 1.0;
  double attention_efficiency = 1.0;
  double attention_backward_efficiency = 1.0;
  double memory_efficiency = 1.0;

  // Host time per plain launch; device time per node of a replayed graph.
  double launch_s = 0;
  double graph_node_s = 0;
  // Shortest kernel, from start to end on the device.
  double kernel_floor_s = 0;

  // By how much compute slows while a transfer is active on its device, and the other way round. 1: not
  // measured.
  double compute_interference = 1.0;
  double transfer_interference = 1.0;

  // Collectives: latency per step of the algorithm inside a node and between nodes, and the fixed cost of a
  // call.
  double step_latency_s = 0;
  double network_step_latency_s = 0;
  double collective_base_s = 0;

  std::vector<std::string> provenance;  // One line per figure: value, where it comes from.
};

// The Profile used for a GPU before anyone calibrates: measured for H200, borrowed for its relatives.
Profile default_profile(const GpuType& gpu);

}  // namespace orrery
