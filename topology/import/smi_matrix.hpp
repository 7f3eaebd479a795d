#pragma once
// The matrix that `nvidia-smi topo -m` prints, read from what people paste: with colours, prefixes, lost
// tabs, cut rows. A cell is what the text says for that pair of devices or it is unknown; whatever was
// repaired, assumed or dropped on the way is said in a note.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

// How two devices reach each other, in nvidia-smi's words.
enum class SmiRelation : std::uint8_t {
  kUnknown,  // The text doesn't say it, or contradicts itself.
  kSelf,     // X
  kNvLink,   // NV#, which hides how they reach each other over PCIe.
  kPix,      // At most one PCIe bridge.
  kPxb,      // Several bridges, no CPU.
  kPhb,      // Through a host bridge.
  kNode,     // Through several host bridges of one NUMA node.
  kSys,      // Between NUMA nodes. Drivers before 390 say SOC, also where later ones say NODE.
};

struct SmiCell {
  SmiRelation relation = SmiRelation::kUnknown;
  std::int32_t nvlinks = 0;  // Of kNvLink: links between the two, or of one GPU to its switches.
  bool operator==(const SmiCell&) const = default;
};
std::string to_string(const SmiCell& cell);  // "NV18"; "?" where unknown.

struct SmiDevice {
  std::string label;  // As the matrix names it: "GPU0", "NIC3", "mlx5_0".
  std::string name;   // Of a NIC: the RDMA device's name, from the legend or the label. Empty: not known.
  bool gpu = true;
  std::int32_t index = 0;                   // GPU number; of a NIC, its place among the NICs.
  std::int32_t line = 0;                    // Of its row; 0: the text has no row for it.
  std::string cpu_affinity;                 // "0-31,64-95"; empty: blank or not to be trusted.
  std::string numa_affinity;                // "0", "0,3-9,11-17"; empty: N/A, blank or not to be trusted.
  std::optional<std::int32_t> gpu_numa_id;  // Of GPUs whose memory is a NUMA node (Grace).
};

struct SmiMatrix {
  std::string file;
  std::vector<SmiDevice> devices;  // GPUs by number, then NICs as the columns have them.
  std::vector<SmiCell> cells;      // devices.size() squared, symmetric.
  bool nvlink_hidden = false;      // `topo -mp`: NVLink pairs show their PCIe relation.
  bool mig_enabled = false;        // The text around the matrix says so.
  bool old_words = false;          // SOC: pairs within a NUMA node can't be told from those between two.
  std::string gpu_model;           // From lines of `nvidia-smi -L` around it; empty: not said.
  std::vector<ImportNote> notes;

  const SmiCell& at(std::size_t row, std::size_t column) const {
    return cells[row * devices.size() + column];
  }
  std::size_t gpu_count() const;
};

// What tables of other vendors' tools mean, for those who want them read all the same.
struct SmiReadOptions {
  std::vector<std::pair<std::string, SmiCell>> words;  // {"XGMI", {kNvLink, 1}}
  std::vector<std::string> gpu_labels;                 // "DCU": DCU0 is GPU 0.
};

// Reads the first matrix in `text`; `file` is how messages call it. Throws Error(kInput) where there is no
// matrix, and for `topo -p2p` tables (see smi_p2p.hpp) and tables of other vendors, saying what it found.
SmiMatrix read_smi_matrix(std::string_view text, const std::string& file, const SmiReadOptions& options = {});

}  // namespace orrery
