#pragma once
// What follows from a NCCL log: which GPU each rank drives, the orders of its rings, and the machines as NCCL
// saw them.

#include <cstdint>
#include <string>
#include <vector>

#include "topology/import/host.hpp"
#include "topology/import/nccl_log.hpp"

namespace orrery {

struct RankDevice {
  std::int32_t rank = 0;
  std::string host;          // Empty: not known, as below −1.
  std::int32_t device = -1;  // NVML's number, as nvidia-smi counts; CUDA's where the log has only that.
  bool device_is_nvml = false;
  std::string bus_id;  // "0000:c1:00.0"
};

// Of the communicator with the most ranks, by rank.
std::vector<RankDevice> rank_devices(const NcclLog& log);

// The different orders of the communicator's whole rings, in the order of their first channels.
std::vector<std::vector<std::int32_t>> ring_orders(const LogComm& comm);

// "c1000" is 0000:c1:00.0, "806000" is 0008:06:00.0; nothing else is changed.
std::string bus_id_of_log(std::string_view hex);

// The hosts whose machine the log dumps, good for NCCL's view of them: CPUs, PCIe, GPUs, NVLinks, network
// ports. Their rates are those that NCCL printed; what makes them up (lanes and generation, NVLinks and rate
// per link) is assumed, and noted. Without a dump: no hosts, and a note with the command that prints one.
HostImport hosts_from_log(const NcclLog& log);

}  // namespace orrery
