// Whatever bytes come in, read_nccl_graphs gives graphs that are written and read back equal, or throws
// Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/nccl_graph_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const orrery::NcclGraphImport import =
        orrery::read_nccl_graphs(bytes, "fuzz.xml", {.keep_whole_channels = true});
    const std::string text = orrery::write_nccl_graphs(import.graphs);
    if (orrery::read_nccl_graphs(text, "again.xml").graphs != import.graphs) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
