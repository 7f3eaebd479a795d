#pragma once
// One YAML file that says everything about a simulation: model, sequence and batch, cluster, plan,
// engine, prices. docs/user-guide has the format, scenarios/scenario.schema.json its schema.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/transformer.hpp"
#include "planner/collective_program.hpp"
#include "planner/partition.hpp"
#include "planner/placement.hpp"
#include "planner/plan.hpp"
#include "planner/remap.hpp"
#include "simulator/fabric_study.hpp"
#include "simulator/job.hpp"
#include "simulator/random_faults.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"
#include "topology/ring_order.hpp"

namespace orrery {

struct Prices {
  double gpu_hour = 0;  // 0: not known.
  std::string currency = "USD";
  std::string source;
  std::string date;  // When the price was read, as written: prices move.
};

// What `orrery partition` compares.
struct PartitionRequest {
  std::vector<PartitionStrategy> strategies = all_partition_strategies();
  std::vector<PieceLimits> pieces = {PieceLimits{}};  // Of nvlink-neighbourhood: each is one case.
};

// Whose rings `orrery topo rings` prices on a node of the cluster.
struct RingRequest {
  RingOrder order;             // Empty: those of `from`.
  std::filesystem::path from;  // A log or a graph file; empty and no order: in the order of numbers.
  std::int64_t bytes = std::int64_t{1} << 30;
};

// What `orrery collective` sweeps.
struct CollectiveRequest {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<std::optional<CollectiveAlgorithm>> algorithms = {std::nullopt};  // None: what NCCL chooses.
  std::int64_t begin_bytes = std::int64_t{1} << 20, end_bytes = std::int64_t{1} << 30;
  std::int32_t factor = 4;
  std::int32_t channels = 0;     // 0: as many as NCCL uses.
  std::int64_t chunk_bytes = 0;  // 0: the protocol's.
};

// What `orrery remap` compares.
struct RemapRequest {
  std::vector<RemapPolicy> policies = all_remap_policies();
  std::int64_t steps = 100;
  bool keep_batch = true;
  std::int64_t checkpoint_every = 100;
  RemapCosts costs;
};

// Files to write besides the summary; empty: none.
struct Outputs {
  std::filesystem::path json;
  std::filesystem::path trace;
};

// How `orrery run` trains: what it reads and how it moves.
struct TrainingRequest {
  std::filesystem::path data;  // Tokens; empty: the text of orrery's own documentation, byte by byte.
  std::int64_t token_bytes = 1;
  std::int64_t steps = 20;
  std::int64_t warmup = 3;  // Steps that don't count for the step time.
  std::uint64_t seed = 1;   // Of parameters and of the order of samples.
  double learning_rate = 1e-3, learning_rate_floor = 1e-4;
  std::int64_t learning_rate_warmup = 10;
  std::string learning_rate_decay = "cosine";  // Or "linear", "constant".
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clip = 1.0;  // Largest norm of the gradients; 0: none. Needs plan.clip_gradients.
};

struct Scenario {
  std::string name;
  std::filesystem::path file;
  TransformerConfig model;
  PlanShorthand plan;
  PlacementRequest placement;  // Its NICs and CPUs are those of `cluster` already.
  Cluster cluster;
  Profile profile;
  Prices prices;
  std::string engine = "fast";  // Or "simgrid", or "both".
  bool fold = true;
  std::vector<std::pair<RankId, double>> stragglers;
  std::vector<Fault> faults;
  RandomFaults random_faults;  // Drawn once the step time is known; no rates: none.
  SimTime watchdog = kWatchdog;
  RemapRequest remap;
  PartitionRequest partition;
  TrainingRequest training;
  TrafficRequest traffic;  // What `orrery fabric` sends over the fabric.
  RingRequest rings;
  CollectiveRequest collective;
  std::vector<std::int64_t> buckets;  // Sizes of gradient buckets that `orrery collective` compares.
  Outputs output;
  std::vector<std::string> notes;  // What reading assumed.
};

// Replaces one value before the file is read: "plan.tp=4", or a whole section:
// "stragglers=[{rank: 3, slowdown: 1.2}]". Paths in an override are relative to the working folder.
using Overrides = std::vector<std::string>;

// Paths inside the file are relative to it. THROWS Error(kInput) with one message per line, every one as
// "file:line:column: field: what is wrong; expected …; did you mean …"; an override stands in the place of
// the file and line.
// A plan file (scenario: FILE, plan: {…}) is read as its scenario with that plan in the place of the
// scenario's.
Scenario load_scenario(const std::filesystem::path& file, const Overrides& overrides = {});
Scenario parse_scenario(std::string_view yaml, const std::filesystem::path& file,
                        const Overrides& overrides = {});

// Every section of the file with the keys that it knows, in the words of the schema's definitions; "scenario"
// is the file itself.
struct SectionKeys {
  std::string section;
  std::vector<std::string> keys;
};
const std::vector<SectionKeys>& scenario_sections();

}  // namespace orrery
