#pragma once
// What a reader of somebody's file had to decide on its own. Nothing is repaired or assumed silently.

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

struct ImportNote {
  enum class Kind : std::uint8_t {
    kRepaired,  // The file is damaged here; what it must have said follows from the rest.
    kAssumed,   // The file doesn't say it; a value was taken.
    kMissing,   // The file doesn't say it and nothing was taken: `remedy` prints it.
    kSuspect,   // The file says it, and it can hardly be so.
  };
  Kind kind = Kind::kAssumed;
  std::int32_t line = 0;  // From 1; 0: the file as a whole.
  std::string text;       // "cell GPU3 × NIC2 is cut off: taken as SYS from NIC2 × GPU3"
  std::string remedy;     // A command or a step; empty: none is needed.
  bool operator==(const ImportNote&) const = default;
};

}  // namespace orrery
