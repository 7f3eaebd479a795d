#pragma once
// The parts of a scenario file, each read into its part of the Scenario. They note faults and go on; what
// needs several parts to be right is checked in load.cpp.

#include "scenarios/reader.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

inline constexpr std::int64_t kMaxNodes = 1'000'000;
// A table of ranks this long still fits a laptop.
inline constexpr std::int64_t kMaxGpus = std::int64_t{1} << 20;

// REQUIRES: the sequence is read: an inline model was made for it unless it says otherwise.
void read_model(const Section& file, Scenario& scenario);
void read_cluster(const Section& file, Scenario& scenario);
// What `cluster.fabric` says.
void read_fabric(const Section& cluster, Fabric& fabric);
// The node that the file under `topology` describes; what its reader assumed goes to `notes`.
void read_topology_node(const Section& cluster, Cluster& into, std::vector<std::string>& notes);
void read_traffic(const Section& file, Scenario& scenario);
// The sections `rings` and `collective`, and the list `buckets`.
void read_collectives(const Section& file, Scenario& scenario);
void read_plan(const Section& file, Scenario& scenario);
void read_recompute(const Section& plan, Plan& settings);
// Binds the GPUs of the cluster's nodes. REQUIRES: the cluster is read.
void read_placement(const Section& plan, Scenario& scenario);
void read_engine(const Section& file, Scenario& scenario);
void read_stragglers(const Section& file, Scenario& scenario);
void read_faults(const Section& file, Scenario& scenario);
void read_random_faults(const Section& file, Scenario& scenario);
void read_remap(const Section& file, Scenario& scenario);
// REQUIRES: scenario.profile is the default of the cluster's GPU.
void read_profile(const Section& file, Scenario& scenario);
void read_partition(const Section& file, Scenario& scenario);
void read_training(const Section& file, Scenario& scenario);
void read_prices(const Section& file, Scenario& scenario);
void read_output(const Section& file, Scenario& scenario);

}  // namespace orrery
