// Whatever a paste holds, reading it ends in a symmetric matrix and a host with its devices, or in an input
// Error that names the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "topology/import/smi_host.hpp"
#include "topology/import/smi_p2p.hpp"

namespace {

void read_matrix(std::string_view text) {
  const orrery::SmiMatrix matrix = orrery::read_smi_matrix(text, "fuzz.txt");
  const std::size_t devices = matrix.devices.size();
  if (matrix.gpu_count() < 1 || matrix.cells.size() != devices * devices) std::abort();
  for (std::size_t a = 0; a < devices; ++a) {
    for (std::size_t b = 0; b < devices; ++b) {
      if (matrix.at(a, b) != matrix.at(b, a)) std::abort();
      if ((matrix.at(a, b).relation == orrery::SmiRelation::kSelf) != (a == b)) std::abort();
    }
  }
  const orrery::HostImport import = orrery::host_from_smi(matrix);
  const orrery::Host& host = import.hosts.at(0);
  if (host.gpus.size() + host.nics.size() != devices) std::abort();
  for (std::size_t i = 0; i < host.pci.size(); ++i) {
    if (host.pci[i].parent >= static_cast<std::int32_t>(i)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool p2p : {false, true}) {
    try {
      if (p2p) {
        orrery::read_smi_p2p(text, "fuzz.txt");
      } else {
        read_matrix(text);
      }
    } catch (const orrery::Error& error) {
      const std::string_view message = error.what();
      if (error.kind() != orrery::ErrorKind::kInput || !message.starts_with("fuzz.txt:")) std::abort();
    }
  }
  return 0;
}
