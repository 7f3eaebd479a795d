#pragma once
// A first run of something that may not survive it, in a process of its own: libhwloc takes XML at its word,
// and an edited file can make it crash or run for ever.

#include <functional>
#include <optional>
#include <string>

namespace orrery {

// Runs `work` in a forked child, which is silent and ends after `cpu_seconds` of processor time. Nothing when
// it comes to its end, also by an exception; else what happened, as a verb: "is ended by signal 11
// (Segmentation fault)". THROWS Error(kRuntime) when no process can be made.
std::optional<std::string> fault_of_trial(const std::function<void()>& work, int cpu_seconds);

}  // namespace orrery
