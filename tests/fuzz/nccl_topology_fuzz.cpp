// Whatever bytes come in, read_nccl_topology gives hosts that can be written and read back with as many GPUs,
// or throws Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/nccl_topology_xml.hpp"

namespace {

bool can_be_written(const std::vector<orrery::Host>& hosts, std::string& text) {
  try {
    text = orrery::write_nccl_topology(hosts, {.prune = true}).text;
    return true;
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  orrery::NcclTopologyOptions options;
  options.map_rccl = true;
  options.gpu_bus_ids = {"0000:53:00.0", "0000:07:00.0"};
  try {
    const orrery::HostImport import = orrery::read_nccl_topology(bytes, "fuzz.xml", options);
    std::string text;
    if (!can_be_written(import.hosts, text)) return 0;
    const orrery::HostImport again = orrery::read_nccl_topology(text, "fuzz.xml");
    if (again.hosts.size() != import.hosts.size()) std::abort();
    for (std::size_t h = 0; h < again.hosts.size(); ++h)
      if (again.hosts[h].gpus.size() != import.hosts[h].gpus.size()) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
