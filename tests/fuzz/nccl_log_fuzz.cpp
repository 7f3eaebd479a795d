// Whatever bytes come in, read_nccl_log and read_nccl_tests give values from which hosts, devices and rings
// follow, or throw Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/import/nccl_tests_table.hpp"

namespace {

void read_log(std::string_view text) {
  const orrery::NcclLog log = orrery::read_nccl_log(text, "fuzz.txt");
  for (const orrery::LogComm& comm : log.comms) {
    for (const auto& order : orrery::ring_orders(comm)) {
      if (order.size() != static_cast<std::size_t>(comm.rank_count)) std::abort();
    }
  }
  orrery::rank_devices(log);
  for (const orrery::Host& host : orrery::hosts_from_log(log).hosts) {
    for (std::size_t i = 0; i < host.pci.size(); ++i) {
      if (host.pci[i].parent >= static_cast<std::int32_t>(i)) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with("#")) {
      orrery::read_nccl_tests(text, "fuzz.txt");
    } else {
      read_log(text);
    }
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
