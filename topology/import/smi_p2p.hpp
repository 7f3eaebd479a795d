#pragma once
// The tables of `nvidia-smi topo -p2p`: whether the driver lets one GPU reach another's memory. Printed like
// the matrix of `topo -m`, and no substitute for it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

enum class SmiP2pStatus : std::uint8_t {
  kUnknown,               // U, or not readable.
  kSelf,                  // X
  kOk,                    // OK
  kChipsetNotSupported,   // CNS
  kGpuNotSupported,       // GNS
  kTopologyNotSupported,  // TNS
  kNotSupported,          // NS
  kDisabledByRegistry,    // DR
};
std::string_view to_string(SmiP2pStatus status);  // "GNS"

struct SmiP2pTable {
  std::vector<std::int32_t> gpus;    // By number.
  std::vector<SmiP2pStatus> status;  // gpus.size() squared; the row's GPU reaches the column's.
  std::vector<ImportNote> notes;

  SmiP2pStatus at(std::size_t row, std::size_t column) const { return status[row * gpus.size() + column]; }
};

// Reads the first such table in `text`. Throws Error(kInput) where there is none. Which of -p2p's letters
// (read, write, NVLink, atomics, PCIe) was asked for is not in the table.
SmiP2pTable read_smi_p2p(std::string_view text, const std::string& file);

}  // namespace orrery
