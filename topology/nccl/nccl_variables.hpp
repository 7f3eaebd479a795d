#pragma once
// The NCCL_… environment variables that change what NCCL decides, as values. A variable that the model knows
// but that only moves data or files is accepted in silence; one that nobody knows is said; a value that NCCL
// couldn't read is refused, with what NCCL would have done. Meanings: NCCL 2.30 documentation and source.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/import/import_note.hpp"
#include "topology/nccl/nccl_graph.hpp"

namespace orrery::nccl {

enum class NetPolicy : std::uint8_t { kAuto, kAll, kMax };  // How many network ports a GPU may use.

// Empty: NCCL's own choice.
struct Variables {
  std::string algorithms, protocols;  // NCCL_ALGO, NCCL_PROTO as they stand; the tuning model reads them.
  std::optional<std::int32_t> min_channels, max_channels;
  std::optional<std::int32_t> threads, ll128_threads;  // Per channel.
  std::optional<std::int64_t> buffer_bytes, ll_buffer_bytes, ll128_buffer_bytes;
  std::int32_t nvls = 2, pat = 2;  // 0: never, 1: always, 2: where NCCL thinks it helps.
  std::optional<std::int32_t> nvls_channels;
  bool collnet = false;
  std::int32_t collnet_nodes = 2;  // At least.
  std::int32_t cross_nic = 2;      // 0: same rail only, 1: free, 2: free where it helps.
  std::optional<PathClass> p2p_level, gdr_level;
  bool shm = true, nvb = true, net_inside_node = true;
  std::optional<bool> gdr_read;  // GPUDirect for what a GPU sends.
  bool gdr_c2c = true, pxn = true, pxn_c2c = true, ll128_c2c = true;
  std::int32_t p2p_pxn_level = 2;
  NetPolicy net_policy = NetPolicy::kAuto;
  std::int32_t net_policy_most = 0;  // Of NetPolicy::kMax.
  std::int32_t min_p2p_channels = 1, max_p2p_channels = 64;
  std::optional<std::int32_t> net_peer_channels;
  std::int32_t p2p_channel_net_gb_per_s = 14;
  std::optional<double> net_overhead_us;  // To post one message.
  bool unpack_doubles_channels = true;
  bool mnnvl = true;  // NVLink between hosts.
  std::string topology_file, graph_file;

  bool operator==(const Variables&) const = default;
};

struct ReadVariables {
  Variables values;
  std::vector<ImportNote> notes;
};

// Names may stand in any order; the last of equal ones counts, as with `export`.
// THROWS Error(kInput) on a value that NCCL can't read.
ReadVariables read_variables(const std::vector<std::pair<std::string, std::string>>& settings);

// "NAME=VALUE" a line, as `env | grep NCCL_` prints them; `export` before them, quotes around values, blank
// lines and lines that begin with # are understood. Names that don't begin with NCCL_ are passed over.
// THROWS Error(kInput) naming `source` and the line.
ReadVariables parse_variables(std::string_view text, std::string_view source);

}  // namespace orrery::nccl
