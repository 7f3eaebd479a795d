#pragma once
// What NCCL's debug log (NCCL_DEBUG=INFO) says about each communicator, as plain values: who its ranks are,
// its rings and trees, what its connections run over, and what NCCL decided. Read from logs as people have
// them: excerpts of many versions, with launchers' prefixes, of many ranks at once, torn or cut. What is
// damaged or not said stands in the notes, and nothing that is not sure passes for complete.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/import/import_note.hpp"
#include "topology/import/nccl_log_system.hpp"
#include "topology/import/nccl_log_tuning.hpp"

namespace orrery {

// −1, 0 and empty stand for "the log doesn't say" throughout.
struct LogRank {
  std::int32_t rank = -1;
  std::string host;
  std::int64_t pid = -1;
  std::int32_t cuda_device = -1, nvml_device = -1;
  std::string bus_id;  // As the log writes it, in hex without separators: "c1000" is 0000:c1:00.0.
  std::int32_t local_rank = -1;
  std::int32_t node = -1;  // By lowest rank, as NCCL numbers nodes.
};

struct LogRing {
  std::int32_t channel = 0;
  std::vector<std::int32_t> ranks;  // In the order in which data travels, from rank 0.
  bool complete = false;            // Every rank once; else a beginning, and a note says why.
  std::int32_t line = 0;
};

// One rank in one tree. −1: none.
struct LogTree {
  std::int32_t rank = 0, channel = 0;
  std::int32_t up = -1;
  std::array<std::int32_t, 3> down{-1, -1, -1};
};

enum class LogTransport : std::uint8_t {
  kP2pDirect,
  kP2pIpc,
  kP2pCumem,
  kP2pMnnvl,
  kP2pIndirect,
  kShm,
  kNet,
  kOther
};

struct LogConnection {
  std::int32_t channel = 0, index = 0;  // Index 0 collectives, 1 send and receive.
  std::int32_t from = 0, to = 0;
  std::string from_device, to_device;  // Device index, or bus id up to 2.17.
  LogTransport transport = LogTransport::kOther;
  std::string via;      // As the log writes it: "NET/IB/0(4)/GDRDMA".
  std::string network;  // "IBext"; empty but for kNet.
  std::int32_t net_device = -1;
  std::int32_t proxy_rank = -1;  // Whose network card is used (PXN).
  bool gpu_direct_rdma = false, read = false;
  std::optional<bool> send;  // Said of network connections: whether this is the sender's line.
  std::int32_t line = 0;
};

// "4 coll channels, 0 collnet channels, 16 nvls channels, 4 p2p channels, 2 p2p channels per peer".
struct LogChannelCounts {
  std::int32_t collective = 0, collnet = 0, nvls = 0, p2p = 0, p2p_per_peer = 0;
  bool operator==(const LogChannelCounts&) const = default;
};

struct LogTiming {
  std::string what;  // "Init", "Bootstrap"
  std::int32_t rank = -1;
  double total_s = 0;
  std::vector<std::pair<std::string, double>> phases_s;
};

// "AllReduce: opCount 1b sendbuff … count 1024 … comm 0x… [nranks=8]", as NCCL_DEBUG_SUBSYS=COLL prints when
// a rank enters an operation.
struct LogOperation {
  std::int32_t rank = -1;
  std::string function;
  std::uint64_t number = 0;  // Counts the communicator's operations, on every rank alike.
  std::int64_t elements = 0;
  std::int32_t line = 0;
};

struct LogComm {
  std::string id;               // commId, or the pointer of the first rank seen; empty: neither is said.
  std::int32_t rank_count = 0;  // 0: not known.
  bool rank_count_is_stated = false;
  std::int32_t node_count = 0, mnnvl = -1;
  std::vector<LogRank> ranks;   // Those that the log has lines of, by rank.
  std::int32_t ring_count = 0;  // The CC of "Channel cc/CC".
  std::vector<LogRing> rings;   // By channel.
  std::vector<LogTree> trees;   // By channel, then rank.
  std::vector<LogConnection> connections;
  std::vector<std::vector<std::int32_t>> nvls_heads;  // Per head one rank per node.
  std::vector<std::array<std::int32_t, 3>>
      ring_links;  // Channel, rank, next: from "Ring cc : prev -> me -> next".
  std::optional<LogChannelCounts> channel_counts;
  std::vector<std::int32_t> thread_thresholds;  // As printed: tree, ring, …
  std::vector<LogSystem> systems;               // GRAPH's dump of the machine, one per host that has one.
  std::vector<LogGraphs> graphs;                // What the search found, one per rank that says so.
  std::vector<LogTuningTable> tuning;           // One, but for ranks that disagree.
  std::vector<LogChoice> choices;
  std::vector<LogTiming> timings;
  std::vector<LogOperation> last_operations;  // By rank: the last one that it entered, where the log says it.
  std::int32_t ended = 0;                     // Ranks that destroyed or aborted it.
  std::int32_t line = 0;                      // Where it is first spoken of.
};

struct LogText {
  std::int32_t line = 0;
  std::string host, text;
};

struct LogSetting {
  std::string name, value, host;
  std::int32_t line = 0;
};

struct LogNic {
  std::int32_t index = 0, port = 1;
  std::string name, link;  // "mlx5_0", "RoCE"
  bool sharp = false;
  bool operator==(const LogNic&) const = default;
};

// "NET/IB : Using [0]mlx5_0:1/RoCE … [RO]; OOB eth0:…".
struct LogNicList {
  std::string host, network, out_of_band;
  std::vector<LogNic> nics;
  bool relaxed_ordering = false;
  std::int32_t line = 0;
};

// "GPU Direct RDMA Enabled for GPU g / HCA h (distance d <= D)".
struct LogGpuDirect {
  std::string host, gpu;
  std::int32_t nic = -1, distance = -1, limit = -1;
  bool enabled = false;
  std::int32_t line = 0;
};

struct NcclLog {
  std::string file;
  std::string version, cuda_version;  // "2.18.5", "12.2"; of the first line that says it.
  bool rccl = false;                  // AMD's.
  std::vector<LogComm> comms;
  std::vector<LogSetting> environment;  // Once per name, value and host.
  std::vector<LogNicList> nic_lists;    // Once per host and content.
  std::vector<LogGpuDirect> gpu_direct;
  std::vector<LogText> warnings;  // WARN lines, and INFO lines that tell of a failure.
  std::vector<ImportNote> notes;
};

// Takes any text; throws Error(kInput) where nothing in it is NCCL's, naming what would print it.
NcclLog read_nccl_log(std::string_view text, const std::string& file);

}  // namespace orrery
