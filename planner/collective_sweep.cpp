#include "planner/collective_sweep.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "simulator/collective_time.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

using nccl::Protocol;
using enum CollectiveAlgorithm;

constexpr std::array kProtocols{Protocol::kLl, Protocol::kLl128, Protocol::kSimple};

// NCCL's buffers have eight slots per connection: of 32 KiB payload for LL, 576,000 bytes for LL128, 512 KiB
// for Simple. Rings by Simple move four slots as one chunk.
constexpr std::int32_t kSlots = 8, kSlotsOfRingChunk = 4;
constexpr std::int64_t kMostChunks = 128;

std::int64_t slot_bytes(Protocol protocol) {
  constexpr std::array<std::int64_t, 3> kSlot{32 << 10, 576'000, 512 << 10};
  return kSlot[static_cast<std::size_t>(protocol)];
}

// LL: four bytes of flag for four of data; LL128: eight of 128.
double wire_factor(Protocol protocol) {
  constexpr std::array kWire{2.0, 16.0 / 15, 1.0};
  return kWire[static_cast<std::size_t>(protocol)];
}

// The one of NCCL whose latencies an algorithm has.
nccl::Algorithm nccl_algorithm(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case kTree: return nccl::Algorithm::kTree;
    case kNvls: return nccl::Algorithm::kNvls;
    case kNvlsTree: return nccl::Algorithm::kNvlsTree;
    default: return nccl::Algorithm::kRing;
  }
}

CollectiveAlgorithm from_nccl(nccl::Algorithm algorithm) {
  switch (algorithm) {
    case nccl::Algorithm::kTree: return kTree;
    case nccl::Algorithm::kNvls: return kNvls;
    case nccl::Algorithm::kNvlsTree: return kNvlsTree;
    case nccl::Algorithm::kPat: return kPat;
    case nccl::Algorithm::kRing:
    case nccl::Algorithm::kCollNetDirect:  // Without a schedule of its own, and only chosen where asked for.
    case nccl::Algorithm::kCollNetChain: break;
  }
  return kRing;
}

// Does NCCL price it?
bool priced(CollectiveAlgorithm algorithm) {
  return algorithm == kRing || algorithm == kTree || algorithm == kNvls || algorithm == kNvlsTree;
}

std::vector<std::int32_t> devices_of(const CollectiveSweep& sweep, const Cluster& cluster) {
  std::vector<std::int32_t> devices = sweep.devices;
  if (devices.empty()) {
    devices.resize(static_cast<std::size_t>(cluster.gpu_count()));
    std::iota(devices.begin(), devices.end(), 0);
  }
  std::ranges::sort(devices);
  for (const std::int32_t device : devices)
    if (device < 0 || device >= cluster.gpu_count())
      fail(ErrorKind::kInput, "collective: there is no GPU {}; cluster {} has {}", device, cluster.name,
           cluster.gpu_count());
  if (devices.size() < 2) fail(ErrorKind::kInput, "collective: one GPU; expected two or more");
  return devices;
}

std::int32_t ranks_per_node(const std::vector<std::int32_t>& devices, std::int32_t gpus) {
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == 0 || devices[i] / gpus != devices[i - 1] / gpus) counts.push_back(0);
    ++counts.back();
  }
  if (std::ranges::adjacent_find(counts, std::ranges::not_equal_to{}) != counts.end())
    fail(ErrorKind::kInput,
         "collective: nodes with {} and with {} of its GPUs; expected equally many on each", counts.front(),
         *std::ranges::find_if(counts, [&](std::int32_t n) { return n != counts.front(); }));
  return counts.front();
}

struct Chosen {
  CollectiveAlgorithm algorithm = kRing;
  Protocol protocol = Protocol::kSimple;
};

Chosen choose(const CollectiveSweep& sweep, std::int64_t bytes, const nccl::Communicator& comm,
              const Profile& profile) {
  Chosen chosen;
  const bool all_to_all = sweep.kind == CollectiveKind::kAllToAll;
  if (sweep.algorithm) {
    chosen.algorithm = *sweep.algorithm;
  } else if (all_to_all) {
    chosen.algorithm = comm.nodes > 1 && comm.ranks > comm.nodes && comm.nvlink ? kPxn : kPairwise;
  } else if (profile.collectives.nccl) {
    const nccl::Choice choice = nccl::choose(sweep.kind, bytes, comm);
    chosen = {from_nccl(choice.algorithm), choice.protocol};
  }
  if (sweep.protocol) {
    chosen.protocol = *sweep.protocol;
  } else if (sweep.algorithm && priced(chosen.algorithm) && !all_to_all && profile.collectives.nccl) {
    double least = 0;
    for (const Protocol protocol : kProtocols) {
      const nccl::Price price = nccl::price(sweep.kind, nccl_algorithm(chosen.algorithm), protocol, comm);
      if (price.gb_per_s <= 0 || (least > 0 && price.microseconds(bytes) >= least)) continue;
      least = price.microseconds(bytes);
      chosen.protocol = protocol;
    }
  }
  return chosen;
}

// NCCL cuts a call into cells of 32 KiB traffic (section "cutting work over channels" of its model).
std::int32_t channels_at(CollectiveKind kind, std::int64_t bytes, Protocol protocol, std::int32_t all) {
  constexpr double kCell = 32 << 10;
  const double traffic = static_cast<double>(bytes) * (kind == CollectiveKind::kAllReduce ? 2 : 1) *
                         (protocol == Protocol::kLl ? 4 : 1);
  return static_cast<std::int32_t>(std::clamp(std::ceil(traffic / kCell), 1.0, static_cast<double>(all)));
}

// NCCL's steps, less the way, which the links of the cluster say themselves.
void set_latencies(const nccl::StepLatency& step, const CollectiveSpec& spec, const Router& router,
                   Profile& profile) {
  const std::int32_t per_node = spec.ranks_per_node;
  const auto rest = [&](double step_us, std::int32_t rank) {
    const Path way = router.path(spec.devices.front(), spec.devices[static_cast<std::size_t>(rank)]);
    return std::max(0.0, step_us * 1e-6 - way.latency_s);
  };
  profile.step_latency_s = per_node > 1 ? rest(step.node_us, 1) : 0;
  profile.network_step_latency_s = spec.ranks > per_node ? rest(step.network_us, per_node) : 0;
}

// What one message may take of its links, so that all channels together move what NCCL prices them at. A ring
// sends a message at a time per channel, a tree one up and one down. 0: whatever the links do.
double message_rate(const CollectiveSweep& sweep, const CollectiveSetup& setup,
                    const nccl::Communicator& comm, std::int32_t all_channels) {
  const CollectiveAlgorithm algorithm = setup.spec.algorithm;
  if (algorithm != kRing && algorithm != kTree) return 0;
  const nccl::Price price = nccl::price(sweep.kind, nccl_algorithm(algorithm), setup.protocol, comm);
  if (price.gb_per_s <= 0)
    fail(ErrorKind::kInput,
         "collective: NCCL has no {} by {} with this protocol here; leave the protocol out",
         to_string(sweep.kind), to_string(algorithm));
  const double n = comm.ranks;
  double share = 1;
  if (algorithm == kRing && sweep.kind == CollectiveKind::kAllReduce) share = 2 * (n - 1) / n;
  if (algorithm == kRing && sweep.kind != CollectiveKind::kAllReduce &&
      sweep.kind != CollectiveKind::kBroadcast)
    share = (n - 1) / n;
  return price.gb_per_s * 1e9 * share / all_channels * setup.spec.wire_factor;
}

// By how much more the switch's messages take of the links than their bytes, where NCCL prices it so.
double switch_factor(const CollectiveSweep& sweep, const GroupOnMachine& group) {
  nccl::Communicator node = group.communicator;
  node.ranks /= node.nodes;
  node.nodes = 1;
  const nccl::Price price = nccl::price(sweep.kind, nccl::Algorithm::kNvls, Protocol::kSimple, node);
  if (price.gb_per_s <= 0) return 1;
  const double traffic = sweep.kind == CollectiveKind::kAllReduce ? 1 + 1.0 / node.ranks : 1;
  return std::max(1.0, group.shape.nvlink_bytes_per_s / (price.gb_per_s * 1e9 * traffic));
}

void set_chunk(const CollectiveSweep& sweep, CollectiveSpec& spec, Protocol protocol) {
  const bool ring_chunk = spec.algorithm == kRing && sweep.kind != CollectiveKind::kBroadcast;
  const std::int64_t slots = ring_chunk && protocol == Protocol::kSimple ? kSlotsOfRingChunk : 1;
  spec.slots = static_cast<std::int32_t>(kSlots / slots);
  if (sweep.chunk_bytes > 0) {
    spec.chunk_bytes = sweep.chunk_bytes;
    return;
  }
  // Through a ring and a switch a channel's bytes go in parts of one rank.
  std::int64_t stream = spec.bytes / spec.channels;
  if (ring_chunk || spec.algorithm == kHierarchical) stream /= spec.ranks;
  if (spec.algorithm == kNvls || spec.algorithm == kNvlsTree || spec.algorithm == kRingChain)
    stream /= spec.ranks_per_node;
  spec.chunk_bytes = std::max(slots * slot_bytes(protocol), (stream + kMostChunks - 1) / kMostChunks);
}

SimTime alone(const Job& job, CollectiveRow& row) {
  EngineOptions one_step;
  one_step.max_steps = 1;
  EngineCounters counters;
  const SimTime time = run_fast(job, one_step, &counters).makespan;
  row.instructions = counters.instructions;
  row.classes = static_cast<std::int32_t>(job.classes.size());
  return time;
}

}  // namespace

double bus_factor(CollectiveKind kind, std::int32_t ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * (n - 1) / n;
    case CollectiveKind::kBroadcast: return 1;
    default: return (n - 1) / n;
  }
}

CollectiveSetup collective_setup(const CollectiveSweep& sweep, std::int64_t bytes, const Router& router,
                                 const Profile& profile) {
  const Cluster& cluster = router.cluster();
  CollectiveSetup setup;
  CollectiveSpec& spec = setup.spec;
  spec.kind = sweep.kind;
  spec.bytes = bytes;
  spec.devices = devices_of(sweep, cluster);
  spec.ranks = static_cast<std::int32_t>(spec.devices.size());
  spec.ranks_per_node = ranks_per_node(spec.devices, cluster.node.gpus);
  spec.root = sweep.root;

  const GroupOnMachine group = group_on_machine(spec.devices, router, profile);
  const nccl::Communicator& comm = group.communicator;
  const Chosen chosen = choose(sweep, bytes, comm, profile);
  spec.algorithm = chosen.algorithm;
  if (!has_schedule(spec.algorithm, sweep.kind))
    fail(ErrorKind::kInput, "collective: {} by {} isn't done; choose another algorithm",
         to_string(sweep.kind), to_string(spec.algorithm));
  setup.protocol = chosen.protocol;
  const bool as_nccl = profile.collectives.nccl;
  const bool lines = spec.algorithm == kRing || spec.algorithm == kTree || spec.algorithm == kChain;
  const std::int32_t all_channels = as_nccl ? comm.ring.channels : group.shape.channels;
  if (lines && sweep.channels > 0) spec.channels = sweep.channels;
  if (lines && sweep.channels == 0)
    spec.channels = channels_at(sweep.kind, bytes, setup.protocol, all_channels);
  if (comm.nodes > 1 && (spec.algorithm == kRing || spec.algorithm == kChain))
    spec.orders = rail_orders(spec.ranks, spec.ranks_per_node, spec.channels);
  set_chunk(sweep, spec, setup.protocol);

  setup.profile = profile;
  setup.profile.launch_s = setup.profile.graph_node_s = 0;  // One kernel does all of it.
  if (!as_nccl) return setup;
  spec.wire_factor = wire_factor(setup.protocol);
  if (spec.algorithm == kNvls || spec.algorithm == kNvlsTree)
    spec.switch_factor = switch_factor(sweep, group);
  const nccl::StepLatency step = nccl::step_latency(nccl_algorithm(spec.algorithm), setup.protocol, comm);
  spec.call = from_seconds(profile.collectives.call_s + step.base_us * 1e-6);
  setup.profile.collective_base_s = 0;
  set_latencies(step, spec, router, setup.profile);
  setup.profile.message_bytes_per_s = message_rate(sweep, setup, comm, all_channels);
  // What was measured to be slower keeps its links for longer, also where several messages are under way at
  // once. It was measured on rings and messages of two GPUs; a tree's slow start comes out of its chunks.
  if (sweep.kind == CollectiveKind::kAllToAll || spec.algorithm == kRing)
    spec.wire_factor *= move_factor(sweep.kind, static_cast<double>(bytes), nccl_algorithm(spec.algorithm),
                                    setup.protocol, comm, profile.collectives);
  return setup;
}

std::vector<CollectiveRow> sweep_collective(const CollectiveSweep& sweep, const Cluster& cluster,
                                            const Profile& profile) {
  const Router router(cluster);
  std::vector<CollectiveRow> rows;
  for (const std::int64_t bytes : sweep.sizes) {
    const CollectiveSetup setup = collective_setup(sweep, bytes, router, profile);
    const CollectiveProgram collective = collective_program(setup.spec);
    const Job job = make_job(collective.program, cluster, setup.profile, sweep.job);
    CollectiveRow row;
    row.bytes = bytes;
    row.algorithm = setup.spec.algorithm;
    row.protocol = setup.protocol;
    row.channels = setup.spec.channels;
    row.chunk_bytes = setup.spec.chunk_bytes;
    row.time = alone(job, row);
    row.algbw_bytes_per_s = static_cast<double>(bytes) / row.time.seconds();
    row.busbw_bytes_per_s = row.algbw_bytes_per_s * bus_factor(sweep.kind, setup.spec.ranks);
    row.formula =
        from_seconds(collective_alone(sweep.kind, bytes, setup.spec.devices, router, profile).seconds());
    if (sweep.simgrid) row.simgrid_time = run_simgrid(job, {1, false}).makespan;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace orrery
