#pragma once
// The messages in an NCCL log: what each process said, without what launchers put before it, with messages
// that share a physical line apart.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery::nccl_log {

struct Message {
  std::int32_t line = 0;
  std::string host;  // Empty: the prefix is damaged or was cut off.
  std::int64_t pid = -1, tid = -1;
  std::int32_t device = -1;  // CUDA's number, in brackets after the process.
  bool warning = false;
  bool has_prefix = false;
  bool interrupted = false;  // Another message begins before this one's line ends.
  std::string text;          // Without blanks at its ends but for a tree's or a channel's indent.
};

// Lines that aren't NCCL's are left out, but for those that can only be messages without their prefix.
std::vector<Message> messages(std::string_view text, std::vector<ImportNote>& notes);

}  // namespace orrery::nccl_log
