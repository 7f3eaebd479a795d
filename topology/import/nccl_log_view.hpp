#pragma once
// What one rank said of one communicator, as the lines of its thread come in. A log mixes many of these;
// views that belong together become one LogComm.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/import/nccl_log.hpp"
#include "topology/import/nccl_log_lines.hpp"

namespace orrery::nccl_log {

struct RingLink {
  std::int32_t channel = 0, previous = 0, rank = 0, next = 0, line = 0;
};

struct View {
  std::string host;
  std::int64_t pid = -1, tid = -1;
  std::int32_t device = -1;
  bool has_prefix = false;
  std::string pointer, comm_id;
  std::int32_t rank = -1, rank_count = 0, node_count = 0, mnnvl = -1;
  std::int32_t local_rank = -1, cuda_device = -1, nvml_device = -1;
  std::string bus_id;
  std::int32_t ring_count = 0;
  std::vector<LogRing> rings;
  std::vector<RingLink> ring_links;
  std::vector<LogTree> trees;
  std::vector<LogConnection> connections;
  std::size_t ring_connections = 0;  // Those before "Connected all rings": the ring's own edges.
  bool connected_rings = false;
  std::vector<std::vector<std::int32_t>> nvls_heads;
  std::optional<LogChannelCounts> channel_counts;
  std::vector<std::int32_t> thread_thresholds;
  std::vector<LogSystem> systems;
  LogGraphs graphs;
  std::vector<LogTuningTable> tuning;
  std::vector<LogChoice> choices;
  std::vector<LogTiming> timings;
  std::optional<LogOperation> last_operation;
  bool ended = false;   // "Destroy COMPLETE" or "Abort COMPLETE".
  bool closed = false;  // "Init COMPLETE", or the counts of channels, were said.
  std::int32_t line = 0;
};

// Each takes a message if it is one of its kind. What belongs to another communicator of the same thread is
// found out before, by starts_anew.
bool read_ring_line(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_ring_link(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_trees(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_nvls_head(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_connection(const Message& message, std::vector<LogConnection>& connections,
                     std::vector<ImportNote>& notes);
bool read_comm_line(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_counts(const Message& message, View& view, std::vector<ImportNote>& notes);
bool read_timings(const Message& message, View& view, std::vector<ImportNote>& notes);

// The pointer is that of the line's communicator: "55…"; empty where it was blotted out.
std::optional<LogOperation> read_operation(const Message& message, std::string& pointer);

// Lines that speak of the process, not of a communicator.
bool read_process_line(const Message& message, NcclLog& log);

// The views of one communicator together, with rings completed and everything compared.
LogComm join_views(std::vector<View> views, std::vector<ImportNote>& notes);
// Which views belong together: groups in the order of the log.
std::vector<std::vector<View>> group_views(std::vector<View> views, std::vector<ImportNote>& notes);

}  // namespace orrery::nccl_log
