#pragma once
// Something in a machine's files that costs speed or will fail: what shows it, why it is so, what to do, and
// what that should bring. Findings are data; to_table and to_json print them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

struct Evidence {
  std::string file;
  std::int32_t line = 0;  // 0: the file as a whole.
  std::string text;       // The line, or what stands there.
};

struct Finding {
  std::string id;     // "gpu-without-nvlink": the same for every occurrence.
  std::string title;  // One line, with the device or host.
  std::vector<Evidence> evidence;
  std::string cause, remedy;
  // Rate of what it holds back (a ring all-reduce over the GPUs named, mostly) as it is and when mended, in
  // GB/s as NCCL's model has them. Empty: it doesn't follow from the files.
  std::optional<double> now_gb_per_s, mended_gb_per_s;
  std::string rate_of;     // "ring over 8 GPUs of one node"
  bool stops_run = false;  // It will fail or hang, at whatever speed.

  // Part of the rate that is lost, 0 … 1; 0 where nothing follows from the files.
  double loss() const;
};

// Those that stop a run first, then by what they cost; equal ones as they were found.
void order_by_cost(std::vector<Finding>& findings);

std::string to_table(const std::vector<Finding>& findings);
std::string to_json(const std::vector<Finding>& findings);

}  // namespace orrery
