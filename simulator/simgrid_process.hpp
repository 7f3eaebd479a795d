#pragma once
// A function run in a process of its own, for libraries that can be started once per process.

#include <functional>
#include <string>

namespace orrery::simgrid_engine {

// What `work` returned in a forked child; what it threw is thrown here.
// THROWS Error(kRuntime) when no process can be made, or when it dies.
std::string run_in_child(const std::function<std::string()>& work);

}  // namespace orrery::simgrid_engine
