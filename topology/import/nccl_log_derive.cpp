#include "topology/import/nccl_log_derive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery {

std::string bus_id_of_log(std::string_view hex) {
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), id, 16);
  if (error != std::errc{} || end != hex.data() + hex.size()) return std::string(hex);
  // As NCCL packs it (utils.cc, busIdToInt64): domain, bus, device, function.
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id >> 20, (id >> 12) & 0xff, (id >> 4) & 0xff, id & 0xf);
}

std::vector<RankDevice> rank_devices(const NcclLog& log) {
  const auto largest =
      std::ranges::max_element(log.comms, {}, [](const LogComm& comm) { return comm.ranks.size(); });
  std::vector<RankDevice> devices;
  if (largest == log.comms.end()) return devices;
  for (const LogRank& rank : largest->ranks) {
    RankDevice device;
    device.rank = rank.rank;
    device.host = rank.host;
    device.device_is_nvml = rank.nvml_device >= 0;
    device.device = device.device_is_nvml ? rank.nvml_device : rank.cuda_device;
    if (!rank.bus_id.empty()) device.bus_id = bus_id_of_log(rank.bus_id);
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<std::vector<std::int32_t>> ring_orders(const LogComm& comm) {
  std::vector<std::vector<std::int32_t>> orders;
  for (const LogRing& ring : comm.rings) {
    if (ring.complete && std::ranges::find(orders, ring.ranks) == orders.end()) orders.push_back(ring.ranks);
  }
  return orders;
}

}  // namespace orrery
